"""`trimtab sample` and `trimtab runbook`: print what comes with Trimtab.  Both need the standard library alone."""

import argparse
import re
import sys
import sysconfig
import textwrap
from collections.abc import Mapping
from pathlib import Path

from trimtab_process.exit_codes import BAD_USAGE, DONE
from trimtab_process.shipped import shipped

SAMPLES = {
    "agent.toml": ("deploy/samples/agent.toml", "configuration of trimtab-agent, every key"),
    "controller.toml": ("deploy/samples/controller.toml", "configuration of trimtab controller, every key"),
    "console.toml": ("deploy/samples/console.toml", "configuration of trimtab console, every key"),
    "trimtab-agent.service": ("deploy/systemd/trimtab-agent.service", "systemd unit of the agent"),
    "trimtab-controller.service": ("deploy/systemd/trimtab-controller.service", "systemd unit of the controller"),
    "trimtab-console.service": ("deploy/systemd/trimtab-console.service", "systemd unit of the console"),
    "trimtab.rules.yml": ("deploy/prometheus/trimtab.rules.yml", "alerts for Prometheus"),
    "prometheus.yml": ("deploy/prometheus/prometheus.example.yml", "scrape configuration for Prometheus"),
    "overview.json": ("deploy/grafana/overview.json", "dashboard for Grafana: the clusters"),
    "controller.json": ("deploy/grafana/controller.json", "dashboard for Grafana: the controllers"),
}
"""Name -> (file in the repository, what it is)."""
UNIT_BIN = "/opt/trimtab/bin"
"""The folder of the programs in the units of the repository."""
SUMMARY_WIDTH = 96


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `sample` or `runbook`."""
    if command == "sample":
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = (
            "trimtab sample agent.toml > /etc/trimtab/agent.toml\nUnits name the programs of this installation."
        )
        parser.add_argument("name", nargs="?", metavar="NAME", help=f"{', '.join(SAMPLES)} (default: list them)")
        parser.set_defaults(run=run_sample)
    else:
        text = "as `trimtab status` names it (default: list them)"
        parser.add_argument("name", nargs="?", metavar="NAME", help=text)
        parser.set_defaults(run=run_runbook)


def run_sample(args: argparse.Namespace) -> int:
    """Print a sample, or list them; the exit code."""
    if args.name is None:
        return _list({name: text for name, (_, text) in SAMPLES.items()})
    if args.name not in SAMPLES:
        return _unknown("sample", args.name, SAMPLES)
    path, _ = SAMPLES[args.name]
    text = shipped(path).read_text(encoding="utf-8")
    if args.name.endswith(".service"):
        text = text.replace(UNIT_BIN, sysconfig.get_path("scripts"))
    return _print(text)


def run_runbook(args: argparse.Namespace) -> int:
    """Print a runbook, or list them; the exit code."""
    runbooks = {path.stem: path for path in sorted(shipped("runbooks").glob("*.md")) if path.stem != "README"}
    if args.name is None:
        return _list({name: first_sentence(path) for name, path in runbooks.items()})
    if args.name not in runbooks:
        return _unknown("runbook", args.name, runbooks)
    return _print(runbooks[args.name].read_text(encoding="utf-8"))


def first_sentence(runbook: Path) -> str:
    """What stands first below the title of a runbook."""
    _, _, below = runbook.read_text(encoding="utf-8").partition("\n")
    sentence = re.split(r"(?<=\.)\s|\n\n", below.strip(), maxsplit=1)[0]
    return textwrap.shorten(sentence, SUMMARY_WIDTH, placeholder=" ...")


def _list(rows: Mapping[str, str]) -> int:
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:<{width}}  {text}")
    return DONE


def _print(text: str) -> int:
    sys.stdout.write(text)
    return DONE


def _unknown(what: str, name: str, known: Mapping[str, object]) -> int:
    print(f"trimtab {what}: found {name!r}, expected one of {', '.join(known)}", file=sys.stderr)
    return BAD_USAGE
