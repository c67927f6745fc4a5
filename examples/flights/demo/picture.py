"""The picture of a run: what each worker uses over time, how much of it can move, hand-overs marked."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from flights.demo.loads import collocation, load_distance, local_sends, node_loads, node_use
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

LINE, WIDTH = 0.045, 34
"""A line of the list of phases: its height as a share of the upper diagram, and its characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What is drawn of a run; times in epoch seconds."""

    started_at: float
    """Second 0 of the picture."""
    snapshots: Sequence[Snapshot]
    handovers: Iterable[float]
    """When each took place."""
    phases: Sequence[tuple[float, str]]
    """(start, name)"""
    changes: Iterable[tuple[float, str]]
    """When a worker was started or stopped, and which."""
    draining_at: Callable[[float], Collection[WorkerId]]
    """The workers that were being drained then."""
    saved: str = ""
    """What collocation has saved; empty: it is no part of the run, and not drawn."""


def draw(run: Drawn, path: Path) -> None:
    """Write the picture."""
    heights = [3, 2, 1, 1] if run.saved else [3, 2, 1]
    figure, grid = plt.subplots(
        len(heights), 2, figsize=(13, 3 + sum(heights)), sharex="col", height_ratios=heights, width_ratios=[4, 1],
        layout="constrained",
    )  # fmt: skip
    use_axis, loads_axis, distance_axis = grid[:3, 0]
    for beside in grid[:, 1]:
        beside.axis("off")
    uses = [(row.end_ms / 1000 - run.started_at, node_use(row)) for row in run.snapshots]
    loads = [(row.end_ms / 1000 - run.started_at, node_loads(row)) for row in run.snapshots]
    workers = sorted({worker for _, values in uses for worker in values})
    _plot(use_axis, uses, workers)
    _plot(loads_axis, [(at, known) for at, known in loads if known is not None], workers)
    for axis in (use_axis, loads_axis):
        _mark(axis, run)
    _list_phases(use_axis, grid[0, 1], run)
    use_axis.axhline(100, color="tab:red", linewidth=0.8)
    use_axis.set_ylabel("CPU that a worker uses,\n% of its capacity")
    use_axis.set_ylim(0, 110)
    use_axis.legend(loc="upper left", ncols=len(workers))
    loads_axis.set_ylabel("of which its key groups,\nwhich can move")
    loads_axis.set_ylim(bottom=0)
    distances = [
        (row.end_ms / 1000 - run.started_at, load_distance(row, run.draining_at(row.start_ms / 1000)))
        for row in run.snapshots
    ]
    known = [(at, distance) for at, distance in distances if distance is not None]
    distance_axis.step([at for at, _ in known], [distance for _, distance in known], where="pre", color="tab:red")
    distance_axis.set_ylabel("load distance, pp")
    distance_axis.set_ylim(bottom=0)
    if run.saved:
        _draw_shares(grid[3, 0], grid[3, 1], run)
    grid[-1, 0].set_xlabel("seconds; grey: a hand-over took place; points: end of a window")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _plot(axis: Axes, windows: list[tuple[float, dict[WorkerId, float]]], workers: Sequence[WorkerId]) -> None:
    """A line for each worker, broken where its value is not known."""
    ats = [at for at, _ in windows]
    for number, worker in enumerate(workers):
        values = [known.get(worker, float("nan")) for _, known in windows]
        axis.plot(ats, values, marker="o", markersize=3, label=worker, color=f"C{number}")


def _draw_shares(axis: Axes, beside: Axes, run: Drawn) -> None:
    """Which share of the tuples stays on its worker, and which skips the broker; beside it, what that saves."""
    ats = [row.end_ms / 1000 - run.started_at for row in run.snapshots]
    for name, share, color in (
        ("on one worker", collocation, "tab:grey"),
        ("past the broker", local_sends, "tab:green"),
    ):
        values = [share(row) for row in run.snapshots]
        axis.plot(ats, [float("nan") if each is None else 100.0 * each for each in values], label=name, color=color)
    axis.set_ylabel("flights between\nkey groups, %")
    axis.set_ylim(-5, 105)
    axis.legend(loc="upper center")
    for at, _ in run.phases:
        axis.axvline(at - run.started_at, color="black", linestyle="--", linewidth=1)
    beside.text(0.0, 1.0, "\n".join(wrap(run.saved, WIDTH)), va="top", transform=beside.transAxes, fontsize=9)


def _mark(axis: Axes, run: Drawn) -> None:
    """Hand-overs, phases, and the starts and stops of workers."""
    for at in run.handovers:
        axis.axvline(at - run.started_at, color="grey", alpha=0.35, linewidth=0.8)
    for at, event in run.changes:
        axis.axvline(at - run.started_at, color="tab:purple", linestyle=":", linewidth=1)
        axis.text(at - run.started_at, 0.02, f" {event}", transform=axis.get_xaxis_transform(), fontsize=8)
    for at, _ in run.phases:
        axis.axvline(at - run.started_at, color="black", linestyle="--", linewidth=1)


def _list_phases(axis: Axes, beside: Axes, run: Drawn) -> None:
    """Number the phases above the diagram, and say beside it what they are."""
    height = 1.0
    for number, (at, name) in enumerate(run.phases, start=1):
        axis.text(at - run.started_at, 1.01, str(number), ha="center", transform=axis.get_xaxis_transform(), fontsize=9)
        lines = wrap(f"{number}  {name}", WIDTH, subsequent_indent="     ")
        beside.text(0.0, height, "\n".join(lines), va="top", transform=beside.transAxes, fontsize=9)
        height -= LINE * len(lines)
