"""What a replay comes to, and what was done in the recorded time, by the same measures."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab_controller.replay.placed import Evenness
from trimtab_protocol.messages.events import Event, EventKind
from trimtab_protocol.messages.names import AppId

HIGH = 95.0
"""The percentile of windows that stands for the worst ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An app over the recorded windows.

    Load distances in pp, `highest_p95` in percent of a worker's capacity.  `paused_s` = seconds that key groups were
    paused, summed over key groups; `restored_bytes` = state that targets had to read.  None = unknown.  `reasons` = how
    often it was decided to do nothing, by reason.  `workers_mean`, `workers_most` = workers that ran, `resized` = how
    often the controller changed their number.
    """

    windows: int
    load_distance_mean: float
    load_distance_p95: float
    highest_p95: float
    plans: int | None
    moved: int | None
    paused_s: float | None
    restored_bytes: int | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    workers_mean: float | None = None
    workers_most: int | None = None
    resized: int | None = None


class Tally:
    """Counts up an app's outcome."""

    def __init__(self) -> None:
        self._seen: list[Evenness] = []
        self.plans = 0
        self.moved = 0
        self.resized = 0
        self.paused_s = 0.0
        self.restored_bytes: int | None = None
        self.reasons: Counter[str] = Counter()

    def see(self, evenness: Evenness) -> None:
        """Add a window."""
        self._seen.append(evenness)

    def outcome(self) -> Outcome | None:
        """What it comes to; None if no window was seen."""
        if not self._seen:
            return None
        far = np.array([each.load_distance for each in self._seen])
        return Outcome(
            windows=len(far),
            load_distance_mean=float(far.mean()),
            load_distance_p95=float(np.percentile(far, HIGH)),
            highest_p95=float(np.percentile([each.highest for each in self._seen], HIGH)),
            plans=self.plans,
            moved=self.moved,
            paused_s=self.paused_s,
            restored_bytes=self.restored_bytes,
            reasons=dict(self.reasons.most_common()),
            workers_mean=float(np.mean([each.workers for each in self._seen])),
            workers_most=max(each.workers for each in self._seen),
            resized=self.resized,
        )


def count_events(tally: Tally, app: AppId, events: Iterable[Event]) -> None:
    """Add the plans and changes of size that events tell of."""
    for event in events:
        tally.resized += event.app == app and event.kind == EventKind.SIZE
        if event.app != app or event.kind != EventKind.PLAN or event.phase != "ended":
            continue
        tally.plans += 1
        done = [move for move in event.moves if move.outcome == "done"]
        tally.moved += len(done)
        tally.paused_s += sum(move.pause_s for move in done if move.pause_s is not None)


def measured_pauses(events: Sequence[Event]) -> dict[AppId, float]:
    """The median pause of a key group in the hand-overs of each app (seconds)."""
    pauses: dict[AppId, list[float]] = {}
    for event in events:
        if event.app is not None and event.kind == EventKind.PLAN and event.phase == "ended":
            known = [move.pause_s for move in event.moves if move.outcome == "done" and move.pause_s is not None]
            pauses.setdefault(event.app, []).extend(known)
    return {app: float(np.median(each)) for app, each in pauses.items() if each}
