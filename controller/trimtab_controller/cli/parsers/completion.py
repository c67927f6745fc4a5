"""The options of `trimtab completion`."""

import argparse

SHELLS = ("bash", "zsh", "fish")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `completion`."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for bash, zsh or fish",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="bash:  trimtab completion bash > ~/.local/share/bash-completion/completions/trimtab\n"
        "zsh:   trimtab completion zsh > DIRECTORY/_trimtab   (a DIRECTORY of $fpath)\n"
        "fish:  trimtab completion fish > ~/.config/fish/completions/trimtab.fish\n"
        "Then open a new shell.",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" | ".join(SHELLS))
    parser.set_defaults(run="trimtab_controller.cli.completion:run")
