"""`trimtab simulate POLICY`: rounds of a policy on a generated or recorded workload.

The same options give the same results, except for the planning seconds: the clock only times the plans, and stops them
if `--time-limit` is given.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trimtab_controller.cli.parsers.simulate import DEFAULT_WORKLOAD
from trimtab_controller.cli.picture import PictureError, check_picture, draw
from trimtab_controller.cli.simulation_view import document, show_comparison, show_run, write_json
from trimtab_models.instances import BadInstance, BalanceInstance, Budget, parse_snapshot
from trimtab_models.simulation import (
    QUICK,
    THOROUGH,
    Change,
    ChangeKind,
    InvalidSize,
    Moment,
    Perception,
    Run,
    Size,
    churn,
    generated,
    policy_named,
    recorded,
    simulate,
)
from trimtab_models.solving import Deadline, Infeasible, Never, Stop

DONE, BAD_INPUT, INFEASIBLE = 0, 2, 3
DEFAULT_ROUNDS = 20
KEY_GROUPS_PER_NODE = 20
LEAST_BUDGET, BUDGET_SHARE = 10, 0.01


class BadInput(Exception):
    """The options cannot be simulated; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The workload on which each policy is played; each call of `moments` starts over."""

    name: str
    moments: Callable[[], Iterable[Moment]]
    changes: tuple[Change, ...]


def run_simulate(args: argparse.Namespace) -> int:
    """Play one policy."""
    return run(args, [args.policy], "simulate")


def run_compare(args: argparse.Namespace) -> int:
    """Play several policies, each once."""
    return run(args, list(dict.fromkeys(args.policies)), "compare")


def run(args: argparse.Namespace, names: Sequence[str], command: str) -> int:
    """Play the policies `names`; exit codes and errors are like those of `trimtab solve`."""
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
    except (BadInput, InvalidSize, BadInstance, PictureError) as error:
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
    """The workload and the changes that the options name. Raises BadInput, InvalidSize, BadInstance, OSError."""
    if not args.smoothing:
        raise BadInput("--smoothing must be above 0: otherwise no measurement would ever count")
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
    asked = {ChangeKind.JOIN: args.join, ChangeKind.MARK: args.mark, ChangeKind.LOSE: args.lose}
    changes = (
        *(Change(round=at, kind=kind, count=count) for kind, wanted in asked.items() for at, count in wanted),
        *churn(rounds, args.churn, args.seed),
    )
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
