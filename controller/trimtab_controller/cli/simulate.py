"""`trimtab simulate POLICY`: rounds of a policy on a generated or recorded workload.

Everything but the planning seconds is the same for the same options: no clock is read but to time the plans, and to
stop them where `--time-limit` asks for it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trimtab_controller.cli.picture import PictureError, check_picture, draw
from trimtab_controller.cli.simulation_view import document, show_comparison, show_run, write_json
from trimtab_models.instances import BadInstance, BalanceInstance, Budget, parse_snapshot
from trimtab_models.simulation import (
    POLICIES,
    QUICK,
    THOROUGH,
    WORKLOADS,
    Change,
    ChangeKind,
    Moment,
    Perception,
    Run,
    Size,
    Unfit,
    churn,
    generated,
    policy_named,
    recorded,
    simulate,
)
from trimtab_models.solving import Deadline, Infeasible, Never, Stop

DONE, BAD_INPUT, INFEASIBLE = 0, 2, 3
DEFAULT_WORKLOAD, DEFAULT_NODES, DEFAULT_ROUNDS = "drift", 20, 20
MOST_NODES, MOST_KEY_GROUPS, MOST_ROUNDS = 10_000, 1_000_000, 100_000
KEY_GROUPS_PER_NODE = 20
LEAST_BUDGET, BUDGET_SHARE = 10, 0.01


class BadInput(Exception):
    """What was asked for cannot be simulated; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What every policy is played on; `moments` begins anew with every call."""

    name: str
    moments: Callable[[], Iterable[Moment]]
    changes: tuple[Change, ...]


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command `simulate`."""
    parser = commands.add_parser("simulate", help="rounds of a policy on a generated or recorded workload")
    parser.add_argument("policy", choices=POLICIES, metavar="POLICY", help=" | ".join(POLICIES))
    add_options(parser)
    parser.set_defaults(run=lambda args: run(args, [args.policy], "simulate"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `simulate` and `compare` have in common."""
    workload = parser.add_argument_group("workload")
    names = "; ".join(f"{name}: {each.text}" for name, each in WORKLOADS.items())
    source = workload.add_mutually_exclusive_group()
    source.add_argument("--workload", choices=WORKLOADS, metavar="NAME", help=f"{names} ({DEFAULT_WORKLOAD})")
    source.add_argument(
        "--recorded",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="snapshot files, or directories of them, in their order",
    )
    workload.add_argument(
        "--nodes", type=_count(1, MOST_NODES), default=DEFAULT_NODES, metavar="N", help="at the start (%(default)s)"
    )
    workload.add_argument(
        "--key-groups", type=_count(1, MOST_KEY_GROUPS), metavar="K", help="of all operators (20 a node)"
    )
    workload.add_argument("--rounds", type=_count(1, MOST_ROUNDS), metavar="N", help="(20; recorded: one per snapshot)")
    workload.add_argument(
        "--seed", type=_count(0), default=0, metavar="N", help="the same seed gives the same rounds (0)"
    )
    workload.add_argument("--change", type=_number(0, 100), default=50.0, metavar="PERCENT", help="of `uneven` (50)")
    workload.add_argument("--alike", type=_number(0, 100), default=50.0, metavar="PERCENT", help="of `one-to-one` (50)")
    _add_cluster_options(parser)
    seen = parser.add_argument_group("planning")
    seen.add_argument(
        "--max-migrations", type=_count(0), metavar="N", help="budget of a round (1 %% of the key groups)"
    )
    seen.add_argument("--max-cost-bytes", type=_number(0), metavar="B", help="budget of a round (no limit)")
    seen.add_argument("--noise", type=_number(0), default=0.0, metavar="SHARE", help="of the measured loads (0)")
    seen.add_argument(
        "--smoothing", type=_number(0, 1), default=1.0, metavar="W", help="newest measurement's weight (1)"
    )
    seen.add_argument("--thorough", action="store_true", help="search as long as `trimtab solve` does")
    seen.add_argument("--time-limit", type=_number(0), metavar="S", help="of every plan; then runs may differ")
    output = parser.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write all rounds to FILE, or - for standard output")
    output.add_argument("--picture", type=Path, metavar="FILE", help="draw the rounds (needs matplotlib)")


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster", "nodes that come and go; ROUND:COUNT, as often as wanted")
    for kind, text in (
        (ChangeKind.JOIN, "nodes that join"),
        (ChangeKind.MARK, "nodes marked for removal; they leave when empty"),
        (ChangeKind.LOSE, "nodes that are lost with their key groups' place"),
    ):
        name = f"--{kind.value}"
        cluster.add_argument(name, type=_change(kind), action="append", default=[], metavar="ROUND:COUNT", help=text)
    cluster.add_argument(
        "--churn",
        type=_number(0, 1),
        default=0.0,
        metavar="P",
        help="every round with P a node joins, with P one leaves",
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


def _change(kind: ChangeKind) -> Callable[[str], Change]:
    def change(text: str) -> Change:
        number, _, count = text.partition(":")
        try:
            return Change(round=int(number), kind=kind, count=int(count))
        except ValueError:
            raise argparse.ArgumentTypeError(f"ROUND:COUNT expected, such as 5:2, found {text!r}") from None

    return change


def run(args: argparse.Namespace, names: Sequence[str], command: str) -> int:
    """Plays the policies `names`; exit codes and errors like those of `trimtab solve`."""
    try:
        if args.picture is not None:
            check_picture(args.picture)
        scene = scene_of(args)
        runs: dict[str, Run] = {}
        for name in names:
            played = _play(args, scene, name)
            if isinstance(played, Infeasible):
                return _refuse(command, played.reason, INFEASIBLE)
            runs[name] = played
        _report(args, scene, runs)
    except (BadInput, Unfit, BadInstance, PictureError) as error:
        return _refuse(command, str(error), BAD_INPUT)
    except OSError as error:
        return _refuse(command, f"{error.filename}: {error.strerror or error}", BAD_INPUT)
    return DONE


def _play(args: argparse.Namespace, scene: Scene, name: str) -> Run | Infeasible:
    return simulate(
        scene.moments(),
        policy_named(name, THOROUGH if args.thorough else QUICK),
        seed=args.seed,
        changes=scene.changes,
        perception=Perception(noise=args.noise, smoothing=args.smoothing),
        stops=Never if args.time_limit is None else partial(_deadline, args.time_limit),
        clock=time.monotonic,
    )


def _deadline(seconds: float) -> Stop:
    return Deadline(time.monotonic, time.monotonic() + seconds)


def scene_of(args: argparse.Namespace) -> Scene:
    """The workload and the changes that the options name. Raises BadInput, Unfit, BadInstance, OSError."""
    if not args.smoothing:
        raise BadInput("--smoothing must be above 0: nothing would ever be measured")
    if args.recorded:
        snapshots = [_read(path) for path in _files(args.recorded)][: args.rounds]
        name, rounds = f"{len(snapshots)} snapshots", len(snapshots)
        budget = None
        if args.max_migrations is not None or args.max_cost_bytes is not None:
            budget = Budget(max_migrations=args.max_migrations, max_cost_bytes=args.max_cost_bytes)
        moments: Callable[[], Iterable[Moment]] = partial(recorded, snapshots, budget=budget)
    else:
        rounds = args.rounds or DEFAULT_ROUNDS
        name, moments = _generated(args, rounds)
    changes = (*args.join, *args.mark, *args.lose, *churn(rounds, args.churn, args.seed))
    return Scene(name=name, moments=moments, changes=changes)


def _generated(args: argparse.Namespace, rounds: int) -> tuple[str, Callable[[], Iterator[Moment]]]:
    workload = args.workload or DEFAULT_WORKLOAD
    key_groups = args.key_groups or KEY_GROUPS_PER_NODE * args.nodes
    size = Size(nodes=args.nodes, key_groups=key_groups, one_to_one=args.alike / 100, change_percent=args.change)
    migrations = args.max_migrations
    if migrations is None and args.max_cost_bytes is None:
        migrations = max(LEAST_BUDGET, round(BUDGET_SHARE * key_groups))
    budget = Budget(max_migrations=migrations, max_cost_bytes=args.max_cost_bytes)
    name = f"{workload}, {args.nodes:,} nodes, {key_groups:,} key groups"
    return name, partial(generated, workload, size, rounds=rounds, seed=args.seed, budget=budget)


def _files(paths: Sequence[Path]) -> list[Path]:
    files = []
    for path in paths:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise BadInput(f"{path}: no snapshot (*.json) in this directory")
        files += found
    return files


def _read(path: Path) -> BalanceInstance:
    try:
        return parse_snapshot(path.read_bytes())
    except BadInstance as error:
        raise BadInput(f"{path}: {error}") from error


def _report(args: argparse.Namespace, scene: Scene, runs: dict[str, Run]) -> None:
    if args.json is not None:
        write_json(document(scene.name, args.seed, runs), args.json)
    if args.json != "-":
        if len(runs) == 1:
            show_run(scene.name, args.seed, *runs.items())
        else:
            show_comparison(scene.name, args.seed, runs)
    if args.picture is not None:
        draw(f"{scene.name}, seed {args.seed}", runs, args.picture)


def _refuse(command: str, reason: str, code: int) -> int:
    print(f"trimtab {command}: {reason}", file=sys.stderr)
    return code
