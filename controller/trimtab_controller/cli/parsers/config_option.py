"""The option that names controller.toml, and the environment variable that stands in for it."""

import argparse
import os
import sys
from pathlib import Path

CONFIG_VARIABLE = "TRIMTAB_CONFIG"
"""Environment variable that names controller.toml where no option names the cluster."""
BAD_USAGE = 2


def add_config(parser: "argparse._ActionsContainer", what: str = "controller.toml") -> None:
    """Add `--config` to a command or a group of options; `what` it must be."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"{what} (default: {CONFIG_VARIABLE})")


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
