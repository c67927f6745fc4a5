"""The events: what the leading controller decided and did, in order.  Controller -> operators, console.

An event is published together with the journal entry or the status that it follows from, in one transaction.  So a
successor continues where its predecessor ended, and no event is lost or doubled.  Readers still drop a second event
with the same `id`: the order of an operator is told again where the last status does not say which ones were told.

Loads are in percent of the worker's capacity, load distances in percentage points (pp), times in epoch seconds.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from trimtab_protocol.messages.codec import Most, Name, Text, Wire, WrittenAs, converted, document, encoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import AppId, KeyGroupName, WorkerId
from trimtab_protocol.messages.rules import Rule

VERSION = 1
INTENT_ENDED = "/ended"
"""How the id of the event ends that tells of the end of an intent."""
MAX_EVENT_BYTES = 1_000_000
"""Size of one event."""
MAX_MOVES = 1_000
"""Moves that one event lists; of a larger plan it has the first ones and their number."""
MAX_LOADS = 1_000
"""Workers whose loads one event lists: those that differ most."""
MAX_TEXT = 4_000
"""Characters of an event's text."""


class EventKind(StrEnum):
    """The kinds of events, with their phases.  A later version may add some, so readers take any name."""

    DECISION = "decision"
    """What was decided about an app, or why nothing is done; the phase is the kind of the decision."""
    PLAN = "plan"
    """A plan has `begun`, was `extended` or `stopped`, has `ended`, was `measured`; before that, where plans wait for
    approval, it was `proposed`, then perhaps `rejected`, `withdrawn` or `expired`."""
    MOVE = "move"
    """A hand-over has `failed`; those that go well come with the end of their plan."""
    SCALING = "scaling"
    """The stop or start of a worker has `begun`, is `done`, has `failed`."""
    SIZE = "size"
    """The number of workers of an app has `changed`."""
    CONCERN = "concern"
    """A problem of an app has `begun` or `ended`; the reason is the name of its alert."""
    WORKER = "worker"
    """A worker that runs and is steered has `told` what is not as it should be, such as that its offsets were reset."""
    INTENT = "intent"
    """What an operator wants was `given`, has `ended` (taken back, or done)."""
    HOLD = "hold"
    """A hold has `begun` or `ended`."""
    LEADER = "leader"
    """A controller has `begun` to lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMove:
    """The move of a key group.

    `why` = why it leaves its worker: drain, loss, rule, first_placement, host_full, over_mean, under_mean (of the
    target), collocation, makes_room.  `warm` = what the target has of the state: `standby` or `copy`; None: nothing, or
    unknown.  `load_pct` in percent of a core.  `outcome` = done, failed, unresolved once the plan has ended; `pause_s`
    measured.  `measured_pct` = the load in the first whole window after the plan, `paid` = whether its workers were
    nearer to the mean load then than without it; None: not known, or not asked (of a drain, for example).
    """

    key_group: KeyGroupName
    source: WorkerId
    target: WorkerId
    why: Name | None = None
    warm: Name | None = None
    load_pct: float | None = None
    outcome: Name | None = None
    pause_s: float | None = None
    measured_pct: float | None = None
    paid: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoad:
    """A worker's load `before` a plan, as `planned`, and `measured` after it; None = not known, or not yet."""

    worker: WorkerId
    before: float | None = None
    planned: float | None = None
    measured: float | None = None


def _known_rule(found: Any) -> Rule | None:
    """The rule; None if it is one of a later version."""
    try:
        return converted(found, Rule)
    except BadMessage:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at the time `at`.

    `kind` and `phase` as in `EventKind`; `reason` = a name, of a decision, plan or alert; `by` = the operator or
    controller whose doing it is; `text` = one line.

    Of plans: load distances `before`, as `planned`, `lower_bound`, `measured`; `mean_load` of the workers; `moves`
    (`moves_total` of them); `loads` of the workers that it changes or that differ most.

    Of an operator's rule that is added: the `rule`, as in controller.toml; `until` in epoch seconds.
    """

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_EVENT_BYTES)

    id: Annotated[str, Text(300)]
    cluster: Name
    at: float
    kind: Name
    phase: Name
    text: Annotated[str, Text(MAX_TEXT)]
    reason: Name | None = None
    app: AppId | None = None
    plan: Name | None = None
    worker: WorkerId | None = None
    by: Annotated[str | None, Text(200)] = None
    before: float | None = None
    planned: float | None = None
    lower_bound: float | None = None
    measured: float | None = None
    mean_load: float | None = None
    moves: Annotated[tuple[EventMove, ...], Most(MAX_MOVES)] = ()
    moves_total: int | None = None
    loads: Annotated[tuple[EventLoad, ...], Most(MAX_LOADS)] = ()
    rule: Annotated[Rule | None, WrittenAs(Any, document, _known_rule)] = None


def event_of(now: float, cluster: str, kind: str, phase: str, text: str, **known: Any) -> Event:
    """An event without an id, unless that is `known` too."""
    return Event(**{"id": "", **known}, cluster=cluster, at=now, kind=kind, phase=phase, text=text[:MAX_TEXT] or kind)


def intent_event_id(key: str, at: float) -> str:
    """The id of the event that tells of an intent, by its key and time (epoch seconds).  Its end adds INTENT_ENDED."""
    return f"intent/{key}/{at:.3f}"


def encode_event(event: Event) -> bytes:
    """The message as bytes; one that is too large goes without its moves and loads."""
    value = encoded(event)
    return value if len(value) <= MAX_EVENT_BYTES else encoded(replace(event, moves=(), loads=()))
