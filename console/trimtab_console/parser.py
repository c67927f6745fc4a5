"""The options of `trimtab console`; they need the standard library alone."""

import argparse
from pathlib import Path


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `console`."""
    parser = commands.add_parser(
        "console",
        help="serve the browser console and the HTTP API; it only reads",
        epilog="Exit code 0: ended by a signal; 1: Kafka does not answer, or the address is in use; "
        "2: bad configuration, or a package is not installed.",
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="console.toml")
    parser.set_defaults(run="trimtab_console.command:run", extra="console")
