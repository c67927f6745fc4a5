"""The options of commands whose modules need an extra; this module needs only the standard library.

So help and completion work wherever `trimtab` is installed.  `run` names the function of the command as
`module:function`; it is imported when the command is called.
"""

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from trimtab_process.exit_codes import BAD_USAGE
from trimtab_protocol.actions import ACTIONS, NEEDED, Action, Field
from trimtab_protocol.messages.events import EventKind
from trimtab_protocol.messages.intents import MAX_WORKERS

# --- options that several commands have -------------------------------------------------------------------------------


CONFIG_VARIABLE = "TRIMTAB_CONFIG"
"""Environment variable that names controller.toml where no option names the cluster."""
SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def add_config(parser: "argparse._ActionsContainer", what: str = "controller.toml") -> None:
    """Add `--config` to a command or a group of options; `what` it must be."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"{what} (default: {CONFIG_VARIABLE})")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the cluster that the function of the command gets, and `--json`."""
    where = parser.add_argument_group("cluster", "by --config, or by --bootstrap and --cluster")
    add_config(where)
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="the Kafka brokers (no TLS, no password)")
    where.add_argument("--cluster", metavar="NAME", help="the name of the Trimtab cluster")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(with_cluster=True)


def named_config(args: argparse.Namespace) -> Path | None:
    """The file that the option or the environment names, if any."""
    named = args.config or os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def config_of(args: argparse.Namespace) -> Path:
    """The named file, for a command that has nothing else to go by.  Raises SystemExit where none is named."""
    if (path := named_config(args)) is None:
        print(f"trimtab: name the configuration: --config FILE, or {CONFIG_VARIABLE}", file=sys.stderr)
        raise SystemExit(BAD_USAGE)
    return path


def span(text: str) -> float:
    """The seconds in `15m`, for example.  Raises ArgumentTypeError."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected a number with s, m, h or d behind it")
    return float(found[1]) * SECONDS[found[2]]


# --- commands that show what the controller sees, knows, did and would do ---------------------------------------------


VIEWS = {
    "status": "workers, loads, plan in flight, last decisions and their reasons",
    "plan": "what the controller would do now; changes nothing",
    "size": "how many workers an app needs for a multiple of its present input",
    "snapshot": "write the present state of the cluster to an instance file for `trimtab solve`",
    "events": "what the controller decided and did, and why, for the last 30 days",
    "why": "where a key group is, by which plan, and what moving it would do; or why a plan makes its moves",
    "replay": "what the controller would have done with the recorded windows under other settings",
}
"""Command -> help."""
MODULES = {"plan": "preview", "snapshot": "preview"}
"""Commands that are not in a module of their own."""


def _add_view(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of one of the commands."""
    add_cluster(parser)
    parser.set_defaults(run=f"trimtab_controller.cli.{MODULES.get(command, command)}:run_{command}")
    if command == "status":
        parser.add_argument("--all", action="store_true", help="list every worker, however many there are")
    if command == "size":
        parser.add_argument("app", metavar="APP", nargs="?", help="the app's id, if there are several")
        text = "how many times the present input (default: 1)"
        parser.add_argument("--rate", type=float, default=1.0, metavar="TIMES", help=text)
        text = (
            "how many times the present state, in memory and on disks (default: 1, state does not grow with the input)"
        )
        parser.add_argument("--state", type=float, default=1.0, metavar="TIMES", help=text)
        text = "share of its CPU capacity that a worker may use (default: 0.7)"
        parser.add_argument("--target", type=float, default=0.7, metavar="SHARE", help=text)
    if command == "snapshot":
        parser.add_argument("--app", metavar="ID", help="which app, if there are several")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write to FILE, not to standard output")
    if command == "events":
        parser.add_argument("--app", metavar="ID", help="only those of this app")
        text = "how far back, such as 90s, 15m, 6h or 7d (default: 1d)"
        parser.add_argument("--since", type=span, default="1d", metavar="SPAN", help=text)
        text = "only events of this kind"
        parser.add_argument("--kind", choices=[str(kind) for kind in EventKind], help=text)
        parser.add_argument("--follow", action="store_true", help="go on with new events, until Ctrl-C")
    if command == "why":
        text = "a key group, such as orders/sums/17, or a plan, such as 3.17"
        parser.add_argument("about", metavar="APP/OPERATOR/KEYGROUP|PLAN", help=text)
    if command == "replay":
        parser.add_argument("--app", metavar="ID", help="only those of this app")
        text = "how far back, such as 6h or 7d (default: 1d); the topic of snapshots keeps 7 days"
        parser.add_argument("--last", type=span, default="1d", metavar="SPAN", help=text)
        text = (
            "settings to try beside the present ones: keys of [balance], [execution] and [scaling], such as "
            "balance.load_distance=3, separated by commas"
        )
        parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE[,...]", help=text)


# --- commands that ask the controller for something, from the table of actions; and `rule list` -----------------------


RUN = "trimtab_controller.cli.actions:run_action"
RULE = "rules about where key groups may be, beside those in controller.toml: add, remove, list"
AUTO = "auto"
ELSEWHERE = {"accept-journal": "resume", "add-rule": "rule", "remove-rule": "rule"}
"""Actions that have no command of their own, and the command with an option or a subcommand for them."""
ACTION_COMMANDS = {name: action.help for name, action in ACTIONS.items() if name not in ELSEWHERE} | {
    "resume": "end a pause or a hold",
    "rule": RULE,
}
"""Command -> help."""


def _add_action_command(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of one of the commands."""
    if command != "rule":
        _add_action(parser, ACTIONS[command])
        return
    functions = parser.add_subparsers(metavar="ACTION", required=True)
    for name in ("add", "remove"):
        action = ACTIONS[f"{name}-rule"]
        _add_action(functions.add_parser(name, help=action.help), action)
    listed = functions.add_parser("list", help="list all rules, also those of controller.toml")
    add_cluster(listed)
    listed.set_defaults(run="trimtab_controller.cli.status:run_rules")


def _add_action(parser: argparse.ArgumentParser, action: Action) -> None:
    add_cluster(parser)
    for field in action.fields:
        if field.name == "for_s":
            which = parser.add_mutually_exclusive_group(required=True)
            _add_field(which, action, field)
            text = "end a maintenance now: what was stopped is started"
            which.add_argument("--end", dest=field.name, action="store_const", const=None, help=text)
        else:
            _add_field(parser, action, field)
    if action.name == "resume":
        text = ACTIONS["accept-journal"].help
        parser.add_argument("--accept-journal", dest="action", action="store_const", const="accept-journal", help=text)
    if action.name == "undo":
        parser.add_argument("--yes", action="store_true", help="do not ask after the costs are shown")
    if action.name == "add-rule":
        parser.add_argument("--dry-run", action="store_true", help="say what would follow, and write nothing")
    default = None if action.reason_needed else "no reason given"
    text = "shown in status, events and the controller's log"
    parser.add_argument("--reason", default=default, required=action.reason_needed, metavar="TEXT", help=text)
    parser.set_defaults(run=RUN, action=action.name)


def _add_field(parser: "argparse._ActionsContainer", action: Action, field: Field) -> None:
    """Add the position, or the option, that a field is on the command line."""
    options: dict[str, Any] = {"metavar": field.metavar, "help": field.help}
    options["type"] = READERS.get((action.name, field.name), int if field.kind is int else str)
    if issubclass(field.kind, StrEnum):
        options["choices"] = [str(each) for each in field.kind]
    needed = field.default is NEEDED
    if field.flag is None:
        parser.add_argument(field.name, nargs="+" if field.many else None if needed else "?", **options)
    elif field.kind is bool:
        parser.add_argument(field.flag, action="store_true", help=field.help)
    else:
        options |= {"required": needed and not field.null, "default": None if needed else field.default}
        parser.add_argument(field.flag, dest=field.name, action="append" if field.many else "store", **options)


def _workers(text: str) -> int | None:
    """A number of workers; None for `auto`.  Raises ArgumentTypeError."""
    if text == AUTO:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(
            f"found {text[:80]!r}, expected a number of workers from 1 to {MAX_WORKERS}, or {AUTO!r}"
        )
    return int(text)


def _end(text: str) -> float:
    """A time, or the end of a span from now, in epoch seconds.  Raises ArgumentTypeError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return time.time() + span(text)
        except argparse.ArgumentTypeError as error:
            expected = "a number with s, m, h or d behind it, or a time with its zone: 2026-12-01T00:00:00Z"
            raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected {expected}") from error
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time with its zone: 2026-12-01T00:00:00Z")
    return found.timestamp()


READERS: Mapping[tuple[str, str], Callable[[str], Any]] = {
    ("scale", "workers"): _workers,
    ("maintenance", "for_s"): span,
    ("add-rule", "until"): _end,
}
"""How the values of fields are written on the command line."""


# --- controller run ---------------------------------------------------------------------------------------------------


def _add_controller(parser: argparse.ArgumentParser) -> None:
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


# --- keys -------------------------------------------------------------------------------------------------------------


LONGEST_S = 86_400.0
"""How long a token may count."""
STEPS = ("begin", "switch", "finish")


def _add_keys(parser: argparse.ArgumentParser) -> None:
    metavar = "init | show | rotate | enroll | approve | revoke | hosts"
    actions = parser.add_subparsers(metavar=metavar, required=True)
    init = actions.add_parser("init", help="create the first key and its trust file")
    show = actions.add_parser("show", help="show which key signs, and which keys are trusted")
    rotate = actions.add_parser("rotate", help="replace the key in three steps; no command is refused meanwhile")
    text = "begin: create the next key and trust it too; switch: sign with it; finish: stop trusting the old key"
    rotate.add_argument("step", choices=STEPS, help=text)
    for name, action in (("init", init), ("show", show), ("rotate", rotate)):
        action.add_argument("--config", type=Path, metavar="FILE", help="controller.toml, with [signing]")
        action.add_argument("--key-file", type=Path, metavar="FILE", help="the private key (stays on this host)")
        action.add_argument("--trust-file", type=Path, metavar="FILE", help="the public keys (copied to all hosts)")
        action.set_defaults(run="trimtab_controller.cli.keys:run", function=name)
    _add_hosts(actions)


def _token_seconds(text: str) -> float:
    """A time of at most a day.  Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 < found <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"found {text[:80]!r}, expected seconds, above 0 and up to {LONGEST_S:g}")
    return found


def _add_hosts(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    enroll = actions.add_parser("enroll", help="enroll a host: show a token, and wait for the host's key")
    enroll.add_argument(
        "--valid", type=_token_seconds, default=600.0, metavar="SECONDS", help="how long the token is valid (600)"
    )
    enroll.add_argument("--token-file", type=Path, metavar="FILE", help="write the token there, and do not show it")
    enroll.add_argument("--yes", action="store_true", help="approve the key without asking")
    approve = actions.add_parser("approve", help="approve a key that the host has shown to you")
    revoke = actions.add_parser("revoke", help="stop trusting what a host signs")
    hosts = actions.add_parser("hosts", help="list the keys of all hosts")
    for action in (enroll, approve, revoke):
        action.add_argument("host", metavar="HOST", help="name of the host, as in its agent.toml")
    approve.add_argument("key", metavar="KEY", help="ed25519:..., as `trimtab-agent enroll` shows it")
    revoke.add_argument("--key", metavar="ID", help="this key only (16 hex digits), not all keys of the host")
    for name, action in (("enroll", enroll), ("approve", approve), ("revoke", revoke), ("hosts", hosts)):
        add_config(action, "controller.toml, with [signing]")
        action.set_defaults(run="trimtab_controller.cli.host_keys:run", function=name)


# --- solve ------------------------------------------------------------------------------------------------------------


def _add_solve(parser: argparse.ArgumentParser) -> None:
    from trimtab_models.solving import FAMILIES

    parser.epilog = "Exit code 0: a plan; 2: wrong usage or file; 3: proven infeasible."
    parser.add_argument("method", choices=sorted(FAMILIES), metavar="METHOD", help=", ".join(FAMILIES))
    text = "a JSON file: for milp, flux, albic, cola, elastic as `trimtab snapshot` writes it"
    parser.add_argument("instance", type=Path, metavar="INSTANCE", help=text)
    parser.add_argument(
        "--time-limit", type=_number(0), metavar="S", help="answer with the best plan after S seconds of solving"
    )
    parser.add_argument("--seed", type=_count(0), default=0, metavar="N", help="the same seed gives the same plan (0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to FILE, not to standard output")
    parser.set_defaults(run="trimtab_controller.cli.solve:run")


# --- simulate ---------------------------------------------------------------------------------------------------------


POLICIES = ("milp", "flux", "albic", "albic-paper", "cola", "elastic", "stay")
WORKLOADS = {
    "drift": "one operator, loads that drift, no flows",
    "uneven": "section 5.1: loads uneven from the start, that stay; no flows",
    "one-to-one": "section 5.3: pairs of operators, some keyed alike",
    "real-job-1": "section 5.2: three operators, each keyed differently",
    "real-job-2": "section 5.4: two operators, keyed alike",
    "real-job-3": "section 5.4: a third operator, keyed differently",
    "real-job-4": "section 5.4: nine operators, a reconstruction",
}
"""Workload -> what it is; sections are those of the ALBIC paper."""
DEFAULT_WORKLOAD, DEFAULT_NODES = "drift", 20
MOST_NODES, MOST_KEY_GROUPS, MOST_ROUNDS = 10_000, 1_000_000, 100_000

RoundCount = tuple[int, int]
"""In which round, how many nodes."""


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policies",
        nargs="+",
        choices=POLICIES,
        metavar="POLICY",
        help=f"{' | '.join(POLICIES)}; of several, a line each, for the same workload and seed",
    )
    parser.set_defaults(run="trimtab_controller.cli.simulate:run")
    workload = parser.add_argument_group("workload")
    names = "; ".join(f"{name}: {text}" for name, text in WORKLOADS.items())
    source = workload.add_mutually_exclusive_group()
    source.add_argument("--workload", choices=WORKLOADS, metavar="NAME", help=f"{names} ({DEFAULT_WORKLOAD})")
    source.add_argument(
        "--recorded",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="snapshot files, or directories of them, played in this order",
    )
    workload.add_argument(
        "--nodes", type=_count(1, MOST_NODES), default=DEFAULT_NODES, metavar="N", help="workers of the cluster (20)"
    )
    workload.add_argument(
        "--key-groups",
        type=_count(1, MOST_KEY_GROUPS),
        metavar="K",
        help="key groups of all operators together (20 per node)",
    )
    workload.add_argument(
        "--rounds", type=_count(1, MOST_ROUNDS), metavar="N", help="rounds to play (20; recorded: one per snapshot)"
    )
    workload.add_argument(
        "--seed", type=_count(0), default=0, metavar="N", help="the same seed gives the same rounds (0)"
    )
    workload.add_argument(
        "--change",
        type=_number(0, 100),
        default=50.0,
        metavar="PERCENT",
        help="by how much the loads of some nodes differ in `uneven` (50)",
    )
    workload.add_argument(
        "--alike",
        type=_number(0, 100),
        default=50.0,
        metavar="PERCENT",
        help="share of pairs keyed alike in `one-to-one` (50)",
    )
    _add_cluster_options(parser)
    seen = parser.add_argument_group("planning")
    seen.add_argument(
        "--max-migrations", type=_count(0), metavar="N", help="most moves per round (1 %% of the key groups)"
    )
    seen.add_argument(
        "--max-cost-bytes", type=_number(0), metavar="B", help="most bytes of state moved per round (no limit)"
    )
    seen.add_argument(
        "--noise", type=_number(0), default=0.0, metavar="SHARE", help="relative noise added to the measured loads (0)"
    )
    seen.add_argument(
        "--smoothing",
        type=_number(0, 1),
        default=1.0,
        metavar="W",
        help="weight of the newest measurement, above 0 (1)",
    )
    seen.add_argument("--thorough", action="store_true", help="search as long as `trimtab solve` does")
    seen.add_argument("--time-limit", type=_number(0), metavar="S", help="seconds for each plan; runs may then differ")
    output = parser.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write all rounds to FILE, or - for standard output")
    output.add_argument("--picture", type=Path, metavar="FILE", help="draw the rounds (needs matplotlib)")


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster", "nodes that come and go; ROUND:COUNT, as often as wanted")
    for name, text in (
        ("--join", "nodes that join"),
        ("--mark", "nodes that are drained; they leave when empty"),
        ("--lose", "nodes that are lost; their key groups have no owner then"),
    ):
        cluster.add_argument(name, type=_change, action="append", default=[], metavar="ROUND:COUNT", help=text)
    cluster.add_argument(
        "--churn",
        type=_number(0, 1),
        default=0.0,
        metavar="P",
        help="in each round a node joins with probability P, and one leaves with P",
    )


def _count(least: int, most: int | None = None) -> Callable[[str], int]:
    def count(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(
                f"a whole number from {least} on{f' to {most:,}' if most else ''} expected"
            )
        return value

    return count


def _number(least: float, most: float = sys.float_info.max) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"a number >= {least:g}{f' and <= {most:g}' if most < 1e9 else ''} expected"
            )
        return value

    return number


def _change(text: str) -> RoundCount:
    number, _, count = text.partition(":")
    try:
        change = int(number), int(count)
    except ValueError:
        change = 0, 0
    if min(change) < 1:
        raise argparse.ArgumentTypeError(f"ROUND:COUNT expected, such as 5:2, found {text!r}")
    return change


OTHERS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "controller": _add_controller,
    "solve": _add_solve,
    "simulate": _add_simulate,
    "keys": _add_keys,
}


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the options of one of the commands."""
    if command in OTHERS:
        OTHERS[command](parser)
    elif command in VIEWS:
        _add_view(parser, command)
    else:
        _add_action_command(parser, command)
