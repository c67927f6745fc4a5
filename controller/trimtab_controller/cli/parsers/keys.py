"""The options of `trimtab keys`."""

import argparse
from pathlib import Path

STEPS = ("begin", "switch", "finish")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `keys` and its subcommands."""
    parser = commands.add_parser("keys", help="create, show and rotate the key that signs commands")
    actions = parser.add_subparsers(metavar="init | show | rotate", required=True)
    init = actions.add_parser("init", help="create the first key and its trust file")
    show = actions.add_parser("show", help="which key signs, and which keys are trusted")
    rotate = actions.add_parser("rotate", help="replace the key in three steps; no command is refused meanwhile")
    text = "begin: create the next key and trust it too; switch: sign with it; finish: stop trusting the old key"
    rotate.add_argument("step", choices=STEPS, help=text)
    for name, action in (("init", init), ("show", show), ("rotate", rotate)):
        action.add_argument("--config", type=Path, metavar="FILE", help="controller.toml, with [signing]")
        action.add_argument("--key-file", type=Path, metavar="FILE", help="the private key (stays on this host)")
        action.add_argument("--trust-file", type=Path, metavar="FILE", help="the public keys (copied to all hosts)")
        action.set_defaults(run="trimtab_controller.cli.keys:run", function=name)
