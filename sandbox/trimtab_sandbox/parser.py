"""The options of `trimtab sandbox`; they need the standard library alone."""

import argparse
from pathlib import Path

FOLDER = Path("out", "sandbox")
FLIGHTS_APP = "flights.app:app"


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `sandbox`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="up | status | down")
    up = actions.add_parser("up", help="start broker, topics, workers, agents and controller")
    up.add_argument(
        "--app", metavar="MODULE:ATTRIBUTE", help=f"the Faust app (default: the flights example, {FLIGHTS_APP})"
    )
    up.add_argument(
        "--app-folder", type=Path, default=Path(), metavar="FOLDER", help="where Python finds that module (default: .)"
    )
    up.add_argument("--workers", type=int, default=4, metavar="N", help="workers, each with its own agent (default: 4)")
    up.add_argument("--capacity", type=float, default=0.25, metavar="CORES", help="cores per worker (default: 0.25)")
    up.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create this topic first (repeat for more)",
    )
    up.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set this for the workers (repeat for more); {broker}, {data}, {web_port} and {worker} are replaced",
    )
    up.add_argument(
        "--idle", action="store_true", help="without load (default: the flights example gets one that shifts)"
    )
    up.add_argument("--act", action="store_true", help="carry out plans; without it, the controller only logs them")
    status = actions.add_parser(
        "status", help="show which processes are alive, where their logs are, and the last windows, plans and decisions"
    )
    down = actions.add_parser(
        "down", help="stop everything, also workers that agents have started; data and logs are kept"
    )
    for name, action in (("up", up), ("status", status), ("down", down)):
        text = f"state, data and logs (default: {FOLDER})"
        action.add_argument("--folder", type=Path, default=FOLDER, metavar="FOLDER", help=text)
        action.set_defaults(run="trimtab_sandbox.command:run", function=name)
