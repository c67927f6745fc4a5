"""Shows the results of a simulation as tables or JSON."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from trimtab_models.simulation import Round, Run, summarise

SHOWN_ROUNDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table of rounds; an `optional` one is left out if all its values are 0."""

    title: str
    value: Callable[[Round], float]
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


def show_run(workload: str, seed: int, named: tuple[str, Run]) -> None:
    """Print the rounds of one policy, at most `SHOWN_ROUNDS` of them, and their summary."""
    name, run = named
    console = Console(highlight=False)
    shown = _shown(run.rounds)
    table = Table(
        title=f"{name} on {workload}, seed {seed}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
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


def _shown(rounds: tuple[Round, ...]) -> list[Round]:
    """The rounds to show: all if there are few, else some at equal steps with the first and the last."""
    if len(rounds) <= SHOWN_ROUNDS:
        return list(rounds)
    last = len(rounds) - 1
    return [rounds[round(at * last / (SHOWN_ROUNDS - 1))] for at in range(SHOWN_ROUNDS)]


def show_comparison(workload: str, seed: int, runs: Mapping[str, Run]) -> None:
    """Print one row per policy."""
    console = Console(highlight=False)
    count = len(next(iter(runs.values())).rounds)
    table = Table(
        title=f"{workload}, {count} rounds, seed {seed}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
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
