"""The option that names controller.toml, and the environment variable that stands in for it."""

import argparse
import os
import sys
from pathlib import Path

CONFIG_VARIABLE = "TRIMTAB_CONFIG"
"""Environment variable that names controller.toml where no option names the cluster."""
BAD_USAGE = 2


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add `--config` to a command that needs the file itself."""
    text = f"controller.toml (default: {CONFIG_VARIABLE})"
    parser.add_argument("--config", type=Path, metavar="FILE", help=text)


def config_of(args: argparse.Namespace) -> Path:
    """The file that the option or the environment names.  Raises SystemExit where neither does."""
    named = args.config or os.environ.get(CONFIG_VARIABLE)
    if not named:
        print(f"trimtab: name the configuration: --config FILE, or {CONFIG_VARIABLE}", file=sys.stderr)
        raise SystemExit(BAD_USAGE)
    return Path(named)
