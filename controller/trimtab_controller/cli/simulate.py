"""`trimtab simulate POLICY ...`: rounds of policies on a generated or recorded workload, as table, JSON or picture.

The same options give the same results, except for the planning seconds: the clock only times the plans, and stops them
if `--time-limit` is given.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from trimtab_controller.cli.parsers import DEFAULT_WORKLOAD
from trimtab_models.instances.reading import BadInstance, parsed_instance
from trimtab_models.instances.snapshot import BalanceInstance, MigrationBudget
from trimtab_models.simulation.rounds import (
    QUICK,
    THOROUGH,
    ChangeKind,
    Moment,
    NodeChange,
    Perception,
    Run,
    SimulatedRound,
    churn,
    policy_named,
    simulate,
    summarise,
)
from trimtab_models.simulation.workloads import InvalidSize, Size, generated, recorded
from trimtab_models.solving import Deadline, Infeasible, Never, StopRule
from trimtab_process.exit_codes import BAD_USAGE, DONE, INFEASIBLE, refuse

DEFAULT_ROUNDS = 20
KEY_GROUPS_PER_NODE = 20
LEAST_BUDGET, BUDGET_SHARE = 10, 0.01
SHOWN_ROUNDS = 30


class BadInput(Exception):
    """The options cannot be simulated; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The workload on which each policy is played; each call of `moments` starts over."""

    name: str
    moments: Callable[[], Iterable[Moment]]
    changes: tuple[NodeChange, ...]


def run(args: argparse.Namespace) -> int:
    """Play the policies, each once; exit codes and errors are like those of `trimtab solve`."""
    try:
        if args.picture is not None:
            check_picture(args.picture)
        scene = scene_of(args)
        runs: dict[str, Run] = {}
        for name in dict.fromkeys(args.policies):
            played = _play(args, scene, name)
            if isinstance(played, Infeasible):
                return refuse("trimtab simulate", played.reason, INFEASIBLE)
            runs[name] = played
        _report(args, scene, runs)
    except (BadInput, InvalidSize, BadInstance) as error:
        return refuse("trimtab simulate", str(error), BAD_USAGE)
    except OSError as error:
        return refuse("trimtab simulate", f"{error.filename}: {error.strerror or error}", BAD_USAGE)
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


def _deadline(seconds: float) -> StopRule:
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
            budget = MigrationBudget(max_migrations=args.max_migrations, max_cost_bytes=args.max_cost_bytes)
        moments: Callable[[], Iterable[Moment]] = partial(recorded, snapshots, budget=budget)
    else:
        rounds = args.rounds or DEFAULT_ROUNDS
        name, moments = _generated(args, rounds)
    asked = {ChangeKind.JOIN: args.join, ChangeKind.MARK: args.mark, ChangeKind.LOSE: args.lose}
    changes = (
        *(NodeChange(round=at, kind=kind, count=count) for kind, wanted in asked.items() for at, count in wanted),
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
    budget = MigrationBudget(max_migrations=migrations, max_cost_bytes=args.max_cost_bytes)
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
        return parsed_instance(path.read_bytes(), BalanceInstance)
    except BadInstance as error:
        raise BadInput(f"{path}: {error}") from error


def _report(args: argparse.Namespace, scene: Scene, runs: dict[str, Run]) -> None:
    if args.json is not None:
        write_json(document(scene.name, args.seed, runs), args.json)
    if args.json != "-":
        if len(runs) == 1:
            show_run(scene.name, args.seed, runs)
        else:
            show_comparison(scene.name, args.seed, runs)
    if args.picture is not None:
        draw(f"{scene.name}, seed {args.seed}", runs, args.picture)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table of rounds; an `optional` one is left out if all its values are 0."""

    title: str
    value: Callable[[SimulatedRound], float]
    shown: str
    optional: bool = False


COLUMNS = (
    Column(title="round", value=lambda each: each.number, shown="{}"),
    Column(title="nodes", value=lambda each: each.nodes, shown="{:,}"),
    Column(title="to\nempty", value=lambda each: each.marked, shown="{:,}", optional=True),
    Column(title="lost key\ngroups", value=lambda each: each.placed, shown="{:,}", optional=True),
    Column(title="before", value=lambda each: each.load_distance_before, shown="{:.2f}"),
    Column(title="after", value=lambda each: each.load_distance, shown="{:.2f}"),
    Column(title="collo-\ncated", value=lambda each: each.collocation, shown="{:.0%}"),
    Column(title="load\nindex", value=lambda each: each.load_index, shown="{:.1f}"),
    Column(title="moves", value=lambda each: each.migrations, shown="{:,}"),
    Column(title="moved\nMiB", value=lambda each: each.cost_bytes / 2**20, shown="{:,.1f}"),
)


def document(workload: str, seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """All rounds and their summary by policy; only `planning_seconds` depends on the machine."""
    policies = {
        name: {
            "summary": asdict(summarise(run.rounds)),
            "rounds": [asdict(each) for each in run.rounds],
        }
        for name, run in runs.items()
    }
    return {
        "version": 1,
        "workload": workload,
        "seed": seed,
        "policies": policies,
        "planning_seconds": {name: list(run.planning_s) for name, run in runs.items()},
    }


def write_json(content: dict[str, Any], target: str) -> None:
    """Write to the file `target`, or to standard output if it is `-`.  Raises OSError."""
    text = json.dumps(content, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


def show_run(workload: str, seed: int, runs: Mapping[str, Run]) -> None:
    """Print the rounds of one policy, at most `SHOWN_ROUNDS` of them, and their summary."""
    ((name, run),) = runs.items()
    console = Console(highlight=False)
    shown = _shown(run.rounds)
    table = _table(f"{name} on {workload}, seed {seed}")
    columns = [column for column in COLUMNS if not column.optional or any(column.value(each) for each in run.rounds)]
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    for each in shown:
        table.add_row(*(column.shown.format(column.value(each)) for column in columns))
    console.print(table)
    if len(shown) < len(run.rounds):
        console.print(f"{len(shown)} of {len(run.rounds)} rounds are shown; --json has all")
    summary = summarise(run.rounds)
    console.print(
        f"load distance: median {summary.after.p50:.2f}, p95 {summary.after.p95:.2f}, most {summary.after.max:.2f}\n"
        f"moves: {summary.migrations:,}, {summary.most_migrations:,} in one round at most\n"
        f"planning: {sum(run.planning_s) / len(run.planning_s):.3f} s a round, {max(run.planning_s):.3f} s at most"
    )


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _shown(rounds: tuple[SimulatedRound, ...]) -> list[SimulatedRound]:
    """The rounds to show: all if there are few, else some at equal steps with the first and the last."""
    if len(rounds) <= SHOWN_ROUNDS:
        return list(rounds)
    last = len(rounds) - 1
    return [rounds[round(at * last / (SHOWN_ROUNDS - 1))] for at in range(SHOWN_ROUNDS)]


def show_comparison(workload: str, seed: int, runs: Mapping[str, Run]) -> None:
    """Print one row per policy."""
    console = Console(highlight=False)
    count = len(next(iter(runs.values())).rounds)
    table = _table(f"{workload}, {count} rounds, seed {seed}")
    table.add_column("policy")
    for column in ("median", "p95", "most", "collo-\ncated", "load\nindex", "moves", "most in\na round", "plan s"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, run in runs.items():
        summary = summarise(run.rounds)
        table.add_row(
            name,
            f"{summary.after.p50:.2f}",
            f"{summary.after.p95:.2f}",
            f"{summary.after.max:.2f}",
            f"{summary.collocation:.0%}",
            f"{summary.load_index:.1f}",
            f"{summary.migrations:,}",
            f"{summary.most_migrations:,}",
            f"{sum(run.planning_s) / count:.3f}",
        )
    console.print(table)
    console.print("median, p95, most: load distance after the moves in pp; collocation and load index at the end")


FORMATS = (".png", ".svg", ".pdf")
PANELS: tuple[tuple[str, Callable[[SimulatedRound], float], float], ...] = (
    ("load distance after the moves (pp)", lambda each: each.load_distance, 1.0),
    ("collocation (%)", lambda each: 100 * each.collocation, 100.0),
    ("load index", lambda each: each.load_index, 100.0),
    ("migrations", lambda each: each.migrations, 1.0),
)
"""Title, measure, and the minimum upper end of the axis."""
POINTS_UP_TO = 60  # rounds; more of them are a line


def check_picture(path: Path) -> None:
    """Raise BadInput if `path` cannot be drawn; call this before computing anything."""
    if path.suffix not in FORMATS:
        raise BadInput(f"--picture {path}: one of {', '.join(FORMATS)} expected")
    if find_spec("matplotlib") is None:
        raise BadInput("--picture needs matplotlib, which is not installed: pip install matplotlib")


def draw(title: str, runs: Mapping[str, Run], path: Path) -> None:
    """Write the picture; the suffix of `path` is its format.  Raises OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    for axis, (label, measure, top) in zip(axes.flat, PANELS, strict=True):
        for name, run in runs.items():
            style = {"marker": ".", "markersize": 5} if len(run.rounds) <= POINTS_UP_TO else {"linewidth": 0.9}
            numbers, values = [each.number for each in run.rounds], [measure(each) for each in run.rounds]
            axis.plot(numbers, values, label=name, clip_on=False, **style)
            top = max(top, 1.05 * max(values))
        if len(runs) == 1 and axis is axes.flat[0]:
            (run,) = runs.values()
            before = [each.load_distance_before for each in run.rounds]
            axis.plot(numbers, before, label="before the moves", color="0.6", linestyle=":")
            top = max(top, 1.05 * max(before))
        axis.set_title(label, loc="left", fontsize=10)
        axis.set_ylim(0, top)
        axis.grid(visible=True, alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes.flat[3].yaxis.get_major_locator().set_params(integer=True)
    for axis in axes[1]:
        axis.set_xlabel("round")
    figure.suptitle(title, x=0.01, ha="left")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper right", ncols=4, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
