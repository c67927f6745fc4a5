"""The demo's picture: load per worker over time, hand-overs marked."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from flights.demo.evidence import Evidence
from flights.demo.loads import load_distance, node_loads, windows_inside
from flights.demo.summary import Course


def changes_of(course: Course) -> list[tuple[float, str]]:
    """When the controller started the worker of the pool, and when that had ended (epoch seconds)."""
    if course.stay is None:
        return []
    ended_at = course.stay.stopped_at
    ended = [] if ended_at is None else [(ended_at, f"{course.scaled.worker} stopped")]
    return [(course.stay.started_at, f"{course.scaled.worker} started"), *ended]


def draw(evidence: Evidence, course: Course, path: Path) -> None:
    """Write the picture."""
    started_at = course.started_at
    loaded = windows_inside(evidence.snapshots, course.loaded[0], float("inf"))
    windows = [
        (row.end_ms / 1000 - started_at, node_loads(row), load_distance(row, course.draining_at(row.start_ms / 1000)))
        for row in loaded
    ]
    known = [(at, loads, distance) for at, loads, distance in windows if loads is not None]
    figure, (loads_axis, distance_axis) = plt.subplots(
        2, 1, figsize=(11, 7), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    for worker in sorted({worker for _, loads, _ in known for worker in loads}):
        rows = [(at, loads[worker]) for at, loads, _ in known if worker in loads]
        loads_axis.plot([at for at, _ in rows], [load for _, load in rows], marker="o", markersize=3, label=worker)
    for handover in evidence.handovers:
        loads_axis.axvline(handover.end - started_at, color="grey", alpha=0.35, linewidth=0.8)
    for at, event in changes_of(course):
        loads_axis.axvline(at - started_at, color="tab:purple", linestyle=":", linewidth=1)
        loads_axis.text(at - started_at, 0.02, f" {event}", transform=loads_axis.get_xaxis_transform(), fontsize=8)
    for number, (at, name) in enumerate(course.phases[1:]):
        loads_axis.axvline(at - started_at, color="black", linestyle="--", linewidth=1)
        height = 1.01 + 0.035 * (number % 3)  # keeps neighbouring labels readable
        side = "right" if at - started_at > 0.7 * course.seconds else "left"
        loads_axis.text(at - started_at, height, name, ha=side, transform=loads_axis.get_xaxis_transform(), fontsize=8)
    loads_axis.set_ylabel("load, % of the worker's capacity")
    loads_axis.set_ylim(bottom=0)
    loads_axis.legend(loc="upper left", ncols=5)
    distance_axis.step(
        [at for at, _, _ in known], [distance or 0.0 for _, _, distance in known], where="pre", color="tab:red"
    )
    distance_axis.set_ylabel("load distance, pp")
    distance_axis.set_ylim(bottom=0)
    distance_axis.set_xlabel("seconds; grey: a hand-over took place; points: end of a window")
    figure.savefig(path, dpi=110)
    plt.close(figure)
