"""The options that several commands have."""

import argparse
import os
import re
import sys
from pathlib import Path

CONFIG_VARIABLE = "TRIMTAB_CONFIG"
"""Environment variable that names controller.toml where no option names the cluster."""
BAD_USAGE = 2
SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def add_config(parser: "argparse._ActionsContainer", what: str = "controller.toml") -> None:
    """Add `--config` to a command or a group of options; `what` it must be."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"{what} (default: {CONFIG_VARIABLE})")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the cluster that the function of the command gets, and `--json`."""
    where = parser.add_argument_group("cluster", "by --config, or by --bootstrap and --cluster")
    add_config(where)
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="the Kafka brokers (no TLS, no password)")
    where.add_argument("--cluster", metavar="NAME", help="the name of the Trimtab cluster")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(with_cluster=True)


def named_config(args: argparse.Namespace) -> Path | None:
    """The file that the option or the environment names, if any."""
    named = args.config or os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def config_of(args: argparse.Namespace) -> Path:
    """The named file, for a command that has nothing else to go by.  Raises SystemExit where none is named."""
    if (path := named_config(args)) is None:
        print(f"trimtab: name the configuration: --config FILE, or {CONFIG_VARIABLE}", file=sys.stderr)
        raise SystemExit(BAD_USAGE)
    return path


def span(text: str) -> float:
    """The seconds in `15m`, for example.  Raises ArgumentTypeError."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected a number with s, m, h or d behind it")
    return float(found[1]) * SECONDS[found[2]]
