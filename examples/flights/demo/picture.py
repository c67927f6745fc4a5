"""The demo's picture: what each worker uses over time, how much of it can move, hand-overs marked."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from flights.demo.evidence import Evidence
from flights.demo.loads import load_distance, node_loads, node_use, windows_inside
from flights.demo.summary import Course
from trimtab_protocol.messages.names import WorkerId


def changes_of(course: Course) -> list[tuple[float, str]]:
    """When the controller started the worker of the pool, and when that had ended (epoch seconds)."""
    if course.stay is None:
        return []
    ended_at = course.stay.stopped_at
    ended = [] if ended_at is None else [(ended_at, f"{course.scaled.worker} stopped")]
    return [(course.stay.started_at, f"{course.scaled.worker} started"), *ended]


def draw(evidence: Evidence, course: Course, path: Path) -> None:
    """Write the picture."""
    loaded = windows_inside(evidence.snapshots, course.loaded[0], float("inf"))
    figure, axes = plt.subplots(3, 1, figsize=(11, 9), sharex=True, height_ratios=[3, 2, 1], layout="constrained")
    use_axis, loads_axis, distance_axis = axes
    uses = [(row.end_ms / 1000 - course.started_at, node_use(row)) for row in loaded]
    loads = [(row.end_ms / 1000 - course.started_at, node_loads(row)) for row in loaded]
    _plot(use_axis, uses)
    _plot(loads_axis, [(at, known) for at, known in loads if known is not None])
    _mark(use_axis, evidence, course)
    _mark(loads_axis, evidence, course)
    _name_phases(use_axis, course)
    use_axis.axhline(100, color="tab:red", linewidth=0.8)
    use_axis.set_ylabel("CPU that a worker uses,\n% of its capacity")
    use_axis.set_ylim(0, 110)
    use_axis.legend(loc="upper left", ncols=5)
    loads_axis.set_ylabel("of which its key groups,\nwhich can move")
    loads_axis.set_ylim(bottom=0)
    distances = [(row, load_distance(row, course.draining_at(row.start_ms / 1000))) for row in loaded]
    known = [(row.end_ms / 1000 - course.started_at, distance) for row, distance in distances if distance is not None]
    distance_axis.step([at for at, _ in known], [distance for _, distance in known], where="pre", color="tab:red")
    distance_axis.set_ylabel("load distance, pp")
    distance_axis.set_ylim(bottom=0)
    distance_axis.set_xlabel("seconds; grey: a hand-over took place; points: end of a window")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot(axis: Axes, windows: list[tuple[float, dict[WorkerId, float]]]) -> None:
    """A line for each worker, where its value is known."""
    for number, worker in enumerate(sorted({worker for _, values in windows for worker in values})):
        rows = [(at, values[worker]) for at, values in windows if worker in values]
        ats, values = zip(*rows, strict=True)
        axis.plot(ats, values, marker="o", markersize=3, label=worker, color=f"C{number}")


def _mark(axis: Axes, evidence: Evidence, course: Course) -> None:
    """Hand-overs, and the start and the end of the worker of the pool."""
    for handover in evidence.handovers:
        axis.axvline(handover.end - course.started_at, color="grey", alpha=0.35, linewidth=0.8)
    for at, event in changes_of(course):
        axis.axvline(at - course.started_at, color="tab:purple", linestyle=":", linewidth=1)
        axis.text(at - course.started_at, 0.02, f" {event}", transform=axis.get_xaxis_transform(), fontsize=8)
    for at, _ in course.phases[1:]:
        axis.axvline(at - course.started_at, color="black", linestyle="--", linewidth=1)


def _name_phases(axis: Axes, course: Course) -> None:
    for number, (at, name) in enumerate(course.phases[1:]):
        height = 1.01 + 0.05 * (number % 3)  # keeps neighbouring labels readable
        side = "right" if at - course.started_at > 0.7 * course.seconds else "left"
        axis.text(at - course.started_at, height, name, ha=side, transform=axis.get_xaxis_transform(), fontsize=8)
