"""The options of `trimtab controller run`."""

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `controller run`."""
    actions = parser.add_subparsers(metavar="run", required=True)
    run = actions.add_parser(
        "run",
        help="decide, and with --act carry out",
        epilog="Exit code 0: ended by a signal; 1: a fault; 2: wrong configuration or a missing package; "
        "3: another dry run has taken over.",
    )
    run.add_argument("--config", type=Path, required=True, metavar="FILE", help="controller.toml")
    run.add_argument(
        "--act",
        action="store_true",
        help="carry out plans, or stand by while another controller leads; without it, only log what it would do",
    )
    run.set_defaults(run="trimtab_controller.cli.controller:run")
