"""The events: what the leading controller decided and did, in order.  Controller -> operators, console.

An event is published together with the journal entry or the status that it follows from, in one transaction.  So a
successor continues where its predecessor ended, and no event is lost or doubled.  Readers still drop a second event
with the same `id`: the order of an operator is told again where the last status does not say which ones were told.

Loads are in percent of the worker's capacity, load distances in percentage points (pp), times in epoch seconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from trimtab_protocol.messages.decode import BadMessage, Fields, check_text, encode, parse
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId, parse_key_group
from trimtab_protocol.messages.rules import Rule, read_rule, rule_document

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
T = TypeVar("T")


class EventKind(StrEnum):
    """The kinds of events, with their phases.  A later version may add some, so readers take any name."""

    DECISION = "decision"
    """What was decided about an app, or why nothing is done; the phase is the kind of the decision."""
    PLAN = "plan"
    """A plan has `begun`, was `extended` or `stopped`, has `ended`, was `measured`; before that, where plans wait for
    approval, it was `proposed`, then perhaps `rejected`, `withdrawn` or `expired`."""
    MOVE = "move"
    """A hand-over has `failed`; those that go well are told with the end of their plan."""
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

    key_group: KeyGroup
    source: WorkerId
    target: WorkerId
    why: str | None = None
    warm: str | None = None
    load_pct: float | None = None
    outcome: str | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNext:
    """The best single move after a plan, and the `load_distance` that it would lead to; no hosts' limits forbid it."""

    key_group: KeyGroup
    source: WorkerId
    target: WorkerId
    load_distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at the time `at`.

    `kind` and `phase` as in `EventKind`; `reason` = a name, of a decision, plan or alert; `by` = the operator or
    controller whose doing it is; `text` = one line.

    Of plans: load distances `before`, as `planned`, `lower_bound`, `measured`; `mean_load` of the workers; `moves`
    (`moves_total` of them); `loads` of the workers that it changes or that differ most; `next` None: no single move
    would help, or it is not known.

    Of an operator's rule that is added: the `rule`, as in controller.toml; `until` in epoch seconds.
    """

    id: str
    cluster: str
    at: float
    kind: str
    phase: str
    text: str
    reason: str | None = None
    app: AppId | None = None
    plan: str | None = None
    worker: WorkerId | None = None
    by: str | None = None
    before: float | None = None
    planned: float | None = None
    lower_bound: float | None = None
    measured: float | None = None
    mean_load: float | None = None
    moves: tuple[EventMove, ...] = ()
    moves_total: int | None = None
    loads: tuple[EventLoad, ...] = ()
    next: EventNext | None = None
    rule: Rule | None = None


def intent_event_id(key: str, at: float) -> str:
    """The id of the event that tells of an intent, by its key and time (epoch seconds).  Its end adds INTENT_ENDED."""
    return f"intent/{key}/{at:.3f}"


def event_document(event: Event) -> dict[str, Any]:
    """The fields as JSON types, without those that are empty."""
    known = {each.name: getattr(event, each.name) for each in fields(event)}
    return {
        **{name: value for name, value in known.items() if value is not None and value != ()},
        **({"moves": [_row(row) for row in event.moves]} if event.moves else {}),
        **({"loads": [_row(row) for row in event.loads]} if event.loads else {}),
        **({"next": _row(event.next)} if event.next else {}),
        **({"rule": {**rule_document(event.rule), "reason": event.rule.reason}} if event.rule else {}),
    }


def _row(row: EventMove | EventLoad | EventNext) -> dict[str, Any]:
    """A nested row."""
    found = {name: value for name, value in asdict(row).items() if value is not None}
    named = getattr(row, "key_group", None)
    return found if named is None else {**found, "key_group": str(named)}


def encode_event(event: Event) -> bytes:
    """The message as bytes; one that is too large goes without its moves and loads."""
    value = encode({"v": VERSION, **event_document(event)})
    if len(value) <= MAX_EVENT_BYTES:
        return value
    short = {name: each for name, each in event_document(event).items() if name not in ("moves", "loads")}
    return encode({"v": VERSION, **short})


def decode_event(payload: bytes | None) -> Event:
    """An event from the wire; raises BadMessage."""
    row = parse(payload, version=VERSION, limit=MAX_EVENT_BYTES)
    app, worker = row.optional("app", row.name), row.optional("worker", row.name)
    return Event(
        id=row.text("id", limit=300),
        cluster=row.name("cluster"),
        at=row.number("at"),
        kind=row.name("kind"),
        phase=row.name("phase"),
        text=row.text("text", limit=MAX_TEXT),
        reason=row.optional("reason", row.name),
        app=AppId(app) if app else None,
        plan=row.optional("plan", row.name),
        worker=WorkerId(worker) if worker else None,
        by=row.optional("by", lambda name: row.text(name, limit=200)),
        before=row.optional("before", row.number),
        planned=row.optional("planned", row.number),
        lower_bound=row.optional("lower_bound", row.number),
        measured=row.optional("measured", row.number),
        mean_load=row.optional("mean_load", row.number),
        moves=_rows(row, "moves", MAX_MOVES, _read_move),
        moves_total=row.optional("moves_total", row.integer),
        loads=_rows(row, "loads", MAX_LOADS, _read_load),
        next=row.optional("next", lambda name: _read_next(row.fields(name))),
        rule=row.optional("rule", lambda name: _known_rule(row.fields(name))),
    )


def _known_rule(row: Fields) -> Rule | None:
    """The rule; None if it is one of a later version."""
    try:
        return read_rule(row)
    except BadMessage:
        return None


def _rows(row: Fields, name: str, limit: int, read: Callable[[Fields], T]) -> tuple[T, ...]:
    return row.optional(name, lambda each: tuple(read(found) for found in row.objects(each, limit=limit))) or ()


def _read_move(row: Fields) -> EventMove:
    return EventMove(
        **_ends(row),
        why=row.optional("why", row.name),
        warm=row.optional("warm", row.name),
        load_pct=row.optional("load_pct", row.number),
        outcome=row.optional("outcome", row.name),
        pause_s=row.optional("pause_s", row.number),
        measured_pct=row.optional("measured_pct", row.number),
        paid=row.optional("paid", row.flag),
    )


def _read_next(row: Fields) -> EventNext:
    return EventNext(**_ends(row), load_distance=row.number("load_distance"))


def _ends(row: Fields) -> Mapping[str, Any]:
    """Key group, source and target of a move."""
    text = check_text(row.take("key_group"), row.at("key_group"), 500)
    return {
        "key_group": parse_key_group(text, row.at("key_group")),
        "source": WorkerId(row.name("source")),
        "target": WorkerId(row.name("target")),
    }


def _read_load(row: Fields) -> EventLoad:
    return EventLoad(
        worker=WorkerId(row.name("worker")),
        before=row.optional("before", row.number),
        planned=row.optional("planned", row.number),
        measured=row.optional("measured", row.number),
    )
