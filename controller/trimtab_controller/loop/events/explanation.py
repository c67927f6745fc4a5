"""What the events of a plan say together, in words: why each move was made, and what came of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from trimtab_controller.decider.values.decision import ProposalOutcome
from trimtab_controller.loop.events.of_execution import WAITS
from trimtab_protocol.console_documents import PlanExplanation, PlannedMove
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.events import Event, EventKind, EventLoad, EventMove
from trimtab_protocol.messages.names import KeyGroup, WorkerId

M = TypeVar("M", EventMove, PlannedMove)

PROPOSAL_ENDS = frozenset(str(each) for each in ProposalOutcome)
"""Phases of a plan that has waited for approval in vain."""
WARM = {"standby": "was a standby of it", "copy": "had a copy of its state"}


def explain_plan(plan: str, events: Iterable[Event]) -> PlanExplanation | None:
    """What is known of a plan; None if no event tells of it."""
    own = sorted((each for each in events if each.plan == plan and each.kind == EventKind.PLAN), key=lambda row: row.at)
    if not own:
        return None
    begun = next((each for phase in ("begun", "proposed") for each in own if each.phase == phase), own[0])
    proposed_at = None if begun.phase == "proposed" else _proposed_at(own)
    if begun.phase == "begun" and begun.loads:  # what was measured is compared with these, not with earlier ones
        own = [each for each in own if each.phase != "proposed"]
    last, moves, loads = begun, dict[KeyGroup, PlannedMove](), dict[WorkerId, EventLoad]()
    for event in own:
        moves |= {row.key_group: _merged(moves.get(row.key_group), row, event) for row in event.moves}
        loads |= {row.worker: _loads(loads.get(row.worker), row) for row in event.loads}
        last = event if event.moves and event.phase != "measured" else last
    text, state = _not_begun(begun, own)
    moves = {each: replace(move, outcome=move.outcome or state) for each, move in moves.items()}
    measured = next((each.measured for each in reversed(own) if each.phase == "measured"), None)
    return PlanExplanation(
        plan=plan,
        app=begun.app,
        text=text,
        mean_load=begun.mean_load,
        planned=begun.planned,
        measured=measured,
        moves=list(moves.values()),
        moves_total=max(len(moves), last.moves_total or 0),
        loads=list(loads.values()),
        proposed_at=proposed_at,
    )


def _proposed_at(own: Iterable[Event]) -> float | None:
    return next((each.at for each in own if each.phase == "proposed"), None)


def _not_begun(proposed: Event, own: Sequence[Event]) -> tuple[str, str | None]:
    """What is told of a plan, and of its moves if it waits for approval or did so in vain."""
    if proposed.phase != "proposed":
        return proposed.text, None
    end = next((each for each in own if each.phase in PROPOSAL_ENDS), None)
    if end is None:
        return proposed.text, "waits"
    return f"{end.phase}: {end.text}; it was: {proposed.text.removeprefix(WAITS)}", "not begun"


def _merged(known: PlannedMove | None, row: EventMove, event: Event) -> PlannedMove:
    """A move by what several events tell of it."""
    same = known is not None and (known.source, known.target) == (row.source, row.target)
    if event.phase == "measured" and known is not None and same:
        return _measured(known, row)
    if known is None or not same:
        return copied(PlannedMove, row, key_group=str(row.key_group), why=why_text(row, event), reason=row.why)
    pause_s = known.pause_s if row.pause_s is None else row.pause_s
    return replace(known, outcome=row.outcome or known.outcome, pause_s=pause_s)


def _measured(known: M, row: EventMove) -> M:
    """A move with the load that was measured after its plan."""
    return replace(known, measured_pct=row.measured_pct, paid=row.paid)


def _loads(known: EventLoad | None, row: EventLoad) -> EventLoad:
    if known is None:
        return row
    return replace(known, measured=known.measured if row.measured is None else row.measured)


def why_text(row: EventMove, event: Event) -> str | None:
    """Why a move is made, in words; None if the event does not say."""
    loads = {each.worker: each.before for each in event.loads}
    said = _reason(row, loads, event.mean_load)
    if said is None:
        return None
    return f"{said}; {row.target} {WARM[row.warm]}" if row.warm in WARM else said


def _reason(row: EventMove, loads: Mapping[WorkerId, float | None], mean: float | None) -> str | None:
    match row.why:
        case "drain":
            return f"{row.source} was being drained"
        case "loss":
            return f"{row.source} was lost"
        case "first_placement":
            return "the first placement"
        case "host_full":
            return f"the host of {row.source} was asked for more than it has"
        case "over_mean":
            return f"{row.source} {_beside(loads.get(row.source), mean, 'above')}"
        case "under_mean":
            return f"{row.target} {_beside(loads.get(row.target), mean, 'below')}"
        case "move":
            return "an operator moved it"
        case "undo":
            return "an operator took back an earlier move"
        case "roll_back":
            return f"{row.source} fell behind after an earlier move, and the guard took it back"
        case "collocation":
            return f"it exchanged tuples with key groups on {row.target}"
        case "rule":
            return f"a rule wanted it off {row.source}"
        case "makes_room":
            return "it made room for another key group"
        case _:
            return row.why  # of a later version


def _beside(load: float | None, mean: float | None, where: str) -> str:
    if load is None or mean is None:
        return f"was {where} the mean load"
    return f"had {load:.1f} %, {where} the mean of {mean:.1f} %"


def moves_of(key_group: KeyGroup, events: Iterable[Event]) -> list[tuple[Event, EventMove]]:
    """The moves of a key group that plans began or ended, the newest first; the end of a plan replaces its begin."""
    found: dict[str | None, tuple[Event, EventMove]] = {}
    for event in sorted(events, key=lambda row: row.at):
        if event.kind == EventKind.PLAN:
            for row in event.moves:
                if row.key_group == key_group:
                    known = found.pop(event.plan, None)
                    if event.phase == "measured" and known is not None:
                        found[event.plan] = (known[0], _measured(known[1], row))
                        continue
                    why = row.why or (known[1].why if known else None)
                    warm = row.warm or (known[1].warm if known else None)
                    shown = event if event.loads or known is None else replace(
                        event, loads=known[0].loads, mean_load=known[0].mean_load
                    )  # fmt: skip
                    load_pct = known[1].load_pct if row.load_pct is None and known else row.load_pct
                    found[event.plan] = (shown, replace(row, why=why, warm=warm, load_pct=load_pct))
    return list(found.values())[::-1]
