"""The options of `trimtab keys`."""

import argparse
import math
from pathlib import Path

from trimtab_controller.cli.parsers.options import add_config

LONGEST_S = 86_400.0
"""How long a token may count."""
STEPS = ("begin", "switch", "finish")


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `keys`."""
    metavar = "init | show | rotate | enroll | approve | revoke | hosts"
    actions = parser.add_subparsers(metavar=metavar, required=True)
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
    _add_hosts(actions)


def _seconds(text: str) -> float:
    """A time of at most a day.  Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 < found <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected seconds, above 0 and up to {LONGEST_S:g}")
    return found


def _add_hosts(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    enroll = actions.add_parser("enroll", help="let a host have a key: shows a token, waits for the host's request")
    enroll.add_argument(
        "--valid", type=_seconds, default=600.0, metavar="SECONDS", help="how long the token counts (600)"
    )
    enroll.add_argument("--token-file", type=Path, metavar="FILE", help="write the token there, and do not show it")
    enroll.add_argument("--yes", action="store_true", help="approve without asking: the token is proof enough")
    approve = actions.add_parser("approve", help="let a host have a key that it has shown to you")
    revoke = actions.add_parser("revoke", help="what a host signs counts no more")
    hosts = actions.add_parser("hosts", help="the keys of all hosts")
    for action in (enroll, approve, revoke):
        action.add_argument("host", metavar="HOST", help="name of the host, as in its agent.toml")
    approve.add_argument("key", metavar="KEY", help="ed25519:..., as `trimtab-agent enroll` shows it")
    revoke.add_argument("--key", metavar="ID", help="this key only (16 hex digits), not all keys of the host")
    for name, action in (("enroll", enroll), ("approve", approve), ("revoke", revoke), ("hosts", hosts)):
        add_config(action, "controller.toml, with [signing]")
        action.set_defaults(run="trimtab_controller.cli.host_keys:run", function=name)
