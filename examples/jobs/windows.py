"""What windows and the status say of a job, and the windows of a run as files."""

from collections.abc import Iterable
from pathlib import Path

from flights.demo.loads import cpu_of
from jobs.outcome import Step
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.snapshot import Snapshot, encode_snapshot
from trimtab_protocol.messages.status import Status

WINDOWS = "windows"
"""Folder, below that of a run, with a file per window."""


def keep(windows: Iterable[Snapshot], folder: Path) -> None:
    """Write each window to a file that is named after its end."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in windows:
        (folder / f"{each.end_ms}.json").write_bytes(encode_snapshot(each))


def kept(folder: Path) -> list[Snapshot]:
    """The windows that `keep` has written, oldest first."""
    return [decoded(path.read_bytes(), Snapshot) for path in sorted(folder.glob("*.json"))]


def step_of(status: Status, at_s: float, rounds: int) -> Step | None:
    """What a status says of the only app; None if it does not know one."""
    app = next(iter(status.apps), None)
    if app is None:
        return None
    known = app.remote_costs
    costs = "; ".join(
        f"{row.operator} {end} {each.unknown or f'{1e6 * (each.value or 0):.0f}±{1e6 * (each.error or 0):.0f} us'}"
        f"{'*' if each.significant else ''}"
        for row in (known.operators if known else ())
        for end, each in (("sends", row.sending), ("receives", row.receiving))
    )
    return Step(
        at_s=at_s,
        rounds=rounds,
        collocation=app.collocation,
        obtainable=known.obtainable if known else None,
        load_distance=app.load_distance,
        mean_load=app.mean_load,
        costs=costs,
        decision=status.decisions[-1].text if status.decisions else "",
    )


def share(value: float | None) -> str:
    """A share as text."""
    return "unknown" if value is None else f"{value:.0%}"


def deviations(window: Snapshot, capacity: float) -> dict[str, float] | None:
    """How far each worker is from the mean, percentage points of capacity; None if a load is unknown."""
    if not cpu_of(window):
        return None
    loads: dict[str, float] = {}
    for row in window.key_groups:
        loads[row.worker] = loads.get(row.worker, 0.0) + (row.cpu or 0.0)
    mean = sum(loads.values()) / len(loads)
    return {worker: 100.0 * (each - mean) / capacity for worker, each in loads.items()}


def load_distance(window: Snapshot, capacity: float) -> float | None:
    """Largest deviation of a worker from the mean, percentage points of capacity; None if a load is unknown."""
    found = deviations(window, capacity)
    return None if found is None else max(map(abs, found.values()))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if there are none."""
    found = [each for each in values if each is not None]
    return sum(found) / len(found) if found else None
