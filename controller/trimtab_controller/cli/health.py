"""`trimtab health`: asks the controller on this host whether it does its work.  Needs the standard library alone."""

import argparse
import sys
from dataclasses import dataclass
from typing import ClassVar

from trimtab_controller.cli.parsers import add_config, config_of
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED
from trimtab_process.health import LIVE, READY, ask
from trimtab_process.toml_files import BadConfiguration, read_toml
from trimtab_protocol.messages.codec import CONFIGURATION, Wire, converted
from trimtab_protocol.settings.listen import MetricsAddress


@dataclass(frozen=True, slots=True)
class _MetricsFile:
    """A controller.toml of which nothing else is looked at."""

    WIRE: ClassVar = Wire(part=True)

    metrics: MetricsAddress = None


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `health`."""
    parser.epilog = (
        "For health checks of containers and services. It asks the port of [metrics] listen. "
        "Exit code 0: the controller does its work; 1: it does not, or does not answer; 2: wrong usage or file."
    )
    add_config(parser)
    parser.add_argument(
        "--live", action="store_true", help="only ask whether its loop runs; if not, it needs a restart"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the answer; the exit code is that of the command."""
    path = config_of(args)
    try:
        listen = read_toml(path, lambda found: converted(found, _MetricsFile, defaults=CONFIGURATION)).metrics
    except BadConfiguration as error:
        print(f"trimtab health: {error}", file=sys.stderr)
        return BAD_USAGE
    if listen is None:
        print(f"trimtab health: {path}: found no [metrics], expected listen", file=sys.stderr)
        return BAD_USAGE
    verdict = ask(listen, LIVE if args.live else READY)
    print(verdict.text)
    return DONE if verdict.well else FAILED
