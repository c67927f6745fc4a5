"""Plans and what they move, as documents of the API: by worker too, from the journal or from the events.  Pure."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab_controller.execution.state import Round
from trimtab_protocol.console_documents import (
    MovesByWorker,
    Moving,
    PlanExplanation,
    PlannedMove,
    PlanReport,
    WorkerMoves,
)
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.status import RoundStatus


def plan_document(row: RoundStatus) -> PlanReport:
    """A plan as the status reports it."""
    median, longest = (statistics.median(row.pauses_s), max(row.pauses_s)) if row.pauses_s else (None, None)
    counts = dict(row.handovers)
    return copied(PlanReport, row, handovers=counts, pause_median_s=median, pause_longest_s=longest)


def moves_of(row: Round) -> list[Moving]:
    """What a plan moves, as the journal has it."""
    return [
        copied(Moving, each, key_groups=[str(key_group) for key_group in each.key_groups], phase=str(each.phase))
        for each in row.handovers
    ]


PLANNED = "planned"
"""The phase of a move of which the events do not tell an outcome yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """A key group that moves."""

    source: str
    target: str
    phase: str
    load_pct: float | None


def by_worker(plan: str, row: Round | None, told: PlanExplanation | None, most: int) -> MovesByWorker | None:
    """The moves of a plan, summed by source and target; None if neither journal nor events name it.

    The `most` workers that give most and the `most` that take most are named, the others count together.  The journal
    has the phases of all moves; the events have the loads, of a large plan those of its first moves only.
    """
    loads = {each.key_group: each.load_pct for each in told.moves} if told else {}
    if row is not None:
        moves, total = _by_journal(row, loads), sum(len(each.key_groups) for each in row.handovers)
    elif told is not None:
        moves, total = [_by_event(each) for each in told.moves], told.moves_total
    else:
        return None
    sources = _named(moves, lambda move: move.source, most)
    targets = _named(moves, lambda move: move.target, most)
    groups: defaultdict[tuple[str | None, str | None], list[_Move]] = defaultdict(list)
    for move in moves:
        ends = (move.source if move.source in sources else None, move.target if move.target in targets else None)
        groups[ends].append(move)
    rows = [_sum(source, target, members) for (source, target), members in groups.items()]
    return MovesByWorker(
        plan=plan,
        key_groups=len(moves),
        key_groups_total=max(total, len(moves)),
        sources_total=len({move.source for move in moves}),
        targets_total=len({move.target for move in moves}),
        items=sorted(rows, key=lambda each: (-each.key_groups, each.source or "", each.target or "")),
    )


def _by_journal(row: Round, loads: Mapping[str, float | None]) -> list[_Move]:
    return [
        _Move(source=each.source, target=each.target, phase=str(each.phase), load_pct=loads.get(str(key_group)))
        for each in row.handovers
        for key_group in each.key_groups
    ]


def _by_event(row: PlannedMove) -> _Move:
    return _Move(source=row.source, target=row.target, phase=row.outcome or PLANNED, load_pct=row.load_pct)


def _named(moves: Iterable[_Move], of: Callable[[_Move], str], most: int) -> frozenset[str]:
    """The workers with the most key groups."""
    counts = Counter(map(of, moves))
    return frozenset(sorted(counts, key=lambda worker: (-counts[worker], worker))[:most])


def _sum(source: str | None, target: str | None, moves: Sequence[_Move]) -> WorkerMoves:
    known = [move.load_pct for move in moves if move.load_pct is not None]
    return WorkerMoves(
        source=source,
        target=target,
        key_groups=len(moves),
        load_pct=sum(known) if known else None,
        unknown_loads=len(moves) - len(known),
        phases=dict(sorted(Counter(move.phase for move in moves).items())),
    )
