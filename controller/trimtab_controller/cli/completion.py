"""`trimtab completion SHELL`: prints a static script, so that the shell need not start Python to complete a word."""

import argparse

import shtab

from trimtab_controller.cli import DONE, parser_for

FILES = ("FILE", "PATH", "INSTANCE")
"""Placeholders in the help of options and arguments whose values are files."""


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    parser = parser_for(None, complete=True)
    _mark_files(parser)
    print(shtab.complete(parser, shell=args.shell))
    return DONE


def _mark_files(parser: argparse.ArgumentParser) -> None:
    """Have the shell complete file names where a file is expected."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _mark_files(each)
        elif action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
