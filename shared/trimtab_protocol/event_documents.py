"""What the console's HTTP API tells of events: what happened, and why plans and key groups are as they are.

Loads in percent of the capacity, load distances in pp, times in epoch seconds; None = unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDocument:
    """Something that happened; kinds, phases and reasons are those of the topic of events.

    `by` = the operator or controller whose doing it is.  Of plans: the number of `moves`, load distances `before`, as
    `planned` and as `measured` (pp).
    """

    id: str
    at: float
    kind: str
    phase: str
    text: str
    reason: str | None
    app: str | None
    plan: str | None
    worker: str | None
    by: str | None
    moves: int | None
    before: float | None
    planned: float | None
    measured: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """A move of a plan: `why` in words, `reason` and `warm` as in the plan's event; `outcome` None: not known yet.

    `load_pct` in percent of a core, as planned, `measured_pct` after the plan; `pause_s` measured.  `paid` = whether
    its workers were nearer to the mean load then than without it; None: not known, or the plan was not for balance.
    """

    key_group: str
    source: str
    target: str
    why: str | None
    reason: str | None
    warm: str | None
    load_pct: float | None
    outcome: str | None
    pause_s: float | None
    measured_pct: float | None = None
    paid: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoad:
    """The load of a worker before a plan, as it predicted, and as measured after it, in percent of its capacity."""

    worker: str
    before: float | None
    planned: float | None
    measured: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExplanation:
    """Why a plan was made as it was, by its events.

    `moves` are the first of `moves_total`.  `next` = what one more move would do, in words; `next_load_distance` in pp,
    None: no single move that the hosts allow would help, or it is not known.  `proposed_at`: of a plan that began after
    its approval, when the load distance `planned` was predicted; all other loads are of the time when it began.
    """

    plan: str
    app: str | None
    text: str
    mean_load: float | None
    planned: float | None
    measured: float | None
    moves: Sequence[PlannedMove]
    moves_total: int
    loads: Sequence[PlannedLoad]
    next: str | None
    next_load_distance: float | None
    proposed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyTarget:
    """What moving a key group to a worker would do; None = unknown.

    `load_distance` after the move and its `change` (pp); `load_pct` = the worker's load then, in percent of its
    capacity.  `owner`: it has the key group now; `standby`: it follows it.  `forbidden` = the limit that forbids the
    move; `no_standby` = the rules that keep the worker from being a standby of it.
    """

    worker: str
    host: str
    load_distance: float | None
    change: float | None
    load_pct: float | None
    owner: bool
    standby: bool
    forbidden: str | None
    no_standby: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyMove:
    """A move of the key group that a plan made or tried; `at` = when the plan ended, or began (`outcome` None)."""

    at: float
    plan: str | None
    source: str
    target: str
    why: str | None
    outcome: str | None
    load_pct: float | None = None
    measured_pct: float | None = None
    paid: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupWhy:
    """Where a key group is and why, and what moving it would do; None = unknown.

    `owner` and `standbys` by the published placement, `reported` = its owner by the last window, whose end is
    `window_end`.  `since` = when it came there, by the plan `plan`; `story` = that in words.  `load_pct` in percent of
    a core.  `stays` = why it cannot be moved now.  `targets`, the best first, are some of `targets_total`; `moves`,
    newest first, as far back as events are kept.  `rules` = those about it, in words.
    """

    key_group: str
    owner: str | None
    standbys: Sequence[str]
    reported: str | None
    since: float | None
    plan: str | None
    story: str
    load_pct: float | None
    state_bytes: int | None
    window_end: float | None
    load_distance: float | None
    mean_load: float | None
    stays: str | None
    targets: Sequence[WhyTarget]
    targets_total: int
    moves: Sequence[WhyMove]
    rules: Sequence[str] = ()
