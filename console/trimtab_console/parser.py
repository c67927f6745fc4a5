"""The options of `trimtab console`; they need the standard library alone."""

import argparse
from pathlib import Path

ROLES = ("viewer", "operator")


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `console`."""
    parser.epilog = (
        "Exit code 0: ended by a signal; 1: Kafka does not answer, or the address is in use; "
        "2: bad configuration, or a package is not installed."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="console.toml; needed")
    parser.set_defaults(run="trimtab_console.command:run", extra="console")
    functions = parser.add_subparsers(metavar="FUNCTION", title="further functions")
    token = functions.add_parser(
        "token",
        help="make a token for a person or a program",
        description="Makes a token, prints it once, and adds its hash to the file that [access] names. "
        "A running console takes it at once. To revoke a token, delete its table from the file.",
        epilog="Exit code 0: done; 1: the file cannot be written, or has this name already; 2: bad configuration.",
    )
    token.add_argument("name", metavar="NAME", help="who it is for: shown in the status, in the log, in intents")
    token.add_argument("--config", type=Path, required=True, metavar="FILE", help="console.toml")
    text = "viewer: reads; operator: also changes (default: viewer)"
    token.add_argument("--role", choices=ROLES, default="viewer", help=text)
    token.add_argument("--days", type=int, metavar="N", help="how long it is valid (default: until it is deleted)")
    token.set_defaults(run="trimtab_console.token_command:run", extra="console")
