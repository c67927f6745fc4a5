"""What the events must tell in the end: every plan that was journalled, each part of it once, whoever led."""

from collections import Counter
from collections.abc import Iterable

from tests.sim.simulated.broker import Stored
from tests.sim.simulated.ledger import Violation
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.events import Event, EventKind
from trimtab_protocol.messages.names import KeyGroup


def check_told(records: Iterable[Stored], plans: Iterable[str], in_flight: Iterable[str]) -> None:
    """Raises Violation unless these `plans`, and no others, have been told to begin and, but for some, to end."""
    events = [decoded(record.value, Event) for record in records]
    twice = [name for name, count in Counter(event.id for event in events).items() if count > 1]
    if twice:
        raise Violation(f"events are told twice: {twice[:3]}")
    begun, ended = _plans(events, "begun"), _plans(events, "ended")
    if begun != Counter(plans):
        raise Violation(f"told to begin: {begun}, journalled: {Counter(plans)}")
    if ended != Counter(set(plans) - set(in_flight)):
        raise Violation(f"told to end: {ended}, in flight of {begun}: {list(in_flight)}")
    for event in events:
        if (event.kind, event.phase) == (EventKind.PLAN, "begun") and not all(move.why for move in event.moves):
            raise Violation(f"plan {event.plan} begins without a reason for each move: {event.moves}")
        if (event.kind, event.phase) == (EventKind.PLAN, "ended"):
            _check_outcomes(event)


def _plans(events: Iterable[Event], phase: str) -> Counter[str | None]:
    return Counter(event.plan for event in events if (event.kind, event.phase) == (EventKind.PLAN, phase))


def _check_outcomes(event: Event) -> None:
    moved: Counter[KeyGroup] = Counter(move.key_group for move in event.moves if move.outcome == "done")
    if any(count > 1 for count in moved.values()) or any(not move.outcome for move in event.moves):
        raise Violation(f"plan {event.plan} has ended without the outcome of each move: {event.moves}")
