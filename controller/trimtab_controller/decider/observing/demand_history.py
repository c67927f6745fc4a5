"""What is remembered of key groups from window to window, so that their demand can be told."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.observing.owned import Floats, Integers
from trimtab_protocol.messages.names import AppId, OperatorId

ARRIVALS = 3
"""Number of windows of which the median of the arrivals counts, so that a backlog that jumps once is no demand."""

Bools = NDArray[np.bool_]
OperatorKey = tuple[AppId, OperatorId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window.  `next`: it follows the one before without a gap; `smoothing` = its weight in the cost."""

    window_s: float
    next: bool
    smoothing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHistory:
    """What is known of an operator's key groups, by partition; NaN = unknown.

    `use` (percent of a core) and `done` (inputs per second) are smoothed over the windows in which there was input, and
    their ratio is the cost.  `arrivals` has a row per window, the newest first.  `backlog` is the last one.  `stuck` =
    number of windows in a row in which the backlog grew at a calm worker, `stuck_from` = the backlog before.
    """

    use: Floats
    done: Floats
    backlog: Floats
    arrivals: Floats
    stuck: Integers
    stuck_from: Floats

    @classmethod
    def unknown(cls, size: int) -> "OperatorHistory":
        """An operator with so many key groups of which nothing is known."""
        nothing = np.full(size, np.nan)
        return cls(
            use=nothing,
            done=nothing,
            backlog=nothing,
            arrivals=np.full((ARRIVALS, size), np.nan),
            stuck=np.zeros(size, np.int64),
            stuck_from=nothing,
        )

    def resized(self, size: int) -> "OperatorHistory":
        """The same for more or fewer key groups."""
        if size == len(self.use):
            return self
        new, kept = OperatorHistory.unknown(size), min(size, len(self.use))
        columns = {}
        for name in ("use", "done", "backlog", "arrivals", "stuck", "stuck_from"):
            columns[name] = getattr(new, name).copy()
            columns[name][..., :kept] = getattr(self, name)[..., :kept]
        return OperatorHistory(**columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandHistory:
    """The operators of all apps up to a window."""

    end_ms: int = 0
    operators: Mapping[OperatorKey, OperatorHistory] = field(default_factory=dict)


NO_DEMAND_HISTORY = DemandHistory()


def remembered(
    before: OperatorHistory,
    partition: Integers,
    use: Floats,
    done: Floats,
    backlog: Floats,
    waited: Floats,
    calm: Bools,
    window: Window,
) -> OperatorHistory:
    """The history after this window; `waited` = the backlogs when it began."""
    arrived = np.maximum(0.0, done + (backlog - waited) / window.window_s)
    worked = (done > 0.0) & ~np.isnan(use)
    columns = {name: getattr(before, name).copy() for name in ("use", "done", "stuck_from")}
    for name, now in (("use", use), ("done", done)):
        old = columns[name][partition]
        smoothed = np.where(np.isnan(old), now, old + window.smoothing * (now - old))
        columns[name][partition] = np.where(worked, smoothed, old)
    arrivals = np.roll(before.arrivals, 1, axis=0)
    arrivals[0] = np.nan
    arrivals[0, partition] = arrived
    left = np.full(len(before.backlog), np.nan)
    left[partition] = backlog
    stuck = np.zeros(len(before.stuck), np.int64)
    stuck[partition] = np.where(calm & (backlog > waited), before.stuck[partition] + 1, 0)
    begun = stuck[partition] == 1
    columns["stuck_from"][partition] = np.where(begun, waited, columns["stuck_from"][partition])
    return OperatorHistory(backlog=left, arrivals=arrivals, stuck=stuck, **columns)


def cost_of(use: Floats, done: Floats, owner: Integers) -> Floats:
    """The cost of an input.  A key group that did nothing yet costs what the operator costs there, or elsewhere."""
    known = ~np.isnan(use) & (done > 0.0)
    if known.all() or not known.any():
        return use / np.where(known, done, np.nan)
    spent, did = (np.bincount(owner, weights=np.where(known, column, 0.0)) for column in (use, done))
    with np.errstate(invalid="ignore", divide="ignore"):
        here = np.where(did > 0.0, spent / did, spent.sum() / did.sum())
        return np.where(known, use / done, here[owner])


def median(rows: Floats) -> Floats:
    """The median of the known values in each column; NaN where none is."""
    ordered = np.sort(rows, axis=0)  # NaN last
    count = np.count_nonzero(~np.isnan(rows), axis=0)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    middle = [np.take_along_axis(ordered, at[None, :], axis=0)[0] for at in (low, high)]
    return np.where(count > 0, (middle[0] + middle[1]) / 2.0, np.nan)
