"""`trimtab completion SHELL`: prints a static script, so that the shell need not start Python to complete a word."""

import argparse

from trimtab_controller.cli import parser_for
from trimtab_process.exit_codes import DONE

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "PATH", "INSTANCE")
"""Placeholders in the help of options and arguments whose values are files."""


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `completion`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "bash:  trimtab completion bash > ~/.local/share/bash-completion/completions/trimtab\n"
        "zsh:   trimtab completion zsh > DIRECTORY/_trimtab   (a DIRECTORY of $fpath)\n"
        "fish:  trimtab completion fish > ~/.config/fish/completions/trimtab.fish\n"
        "Then open a new shell."
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab  # help works without it

    parser = parser_for(None, complete=True)
    _mark_files(parser)
    print(shtab.complete(parser, shell=args.shell))
    return DONE


def _mark_files(parser: argparse.ArgumentParser) -> None:
    """Have the shell complete file names where a file is expected."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _mark_files(each)
        elif action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
