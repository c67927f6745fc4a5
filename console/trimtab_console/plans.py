"""Plans and what they move, as documents of the API.  Pure."""

import statistics

from trimtab_controller.execution.state import Round
from trimtab_protocol.console_documents import Moving, PlanReport
from trimtab_protocol.messages.status import RoundStatus


def plan_document(row: RoundStatus) -> PlanReport:
    """A plan as the status reports it."""
    median, longest = (statistics.median(row.pauses_s), max(row.pauses_s)) if row.pauses_s else (None, None)
    told = {name: getattr(row, name) for name in RoundStatus.__slots__ if name in PlanReport.__dataclass_fields__}
    told["handovers"] = dict(row.handovers)
    return PlanReport(**told, pause_median_s=median, pause_longest_s=longest)


def moves_of(row: Round) -> list[Moving]:
    """What a plan moves, as the journal has it."""
    return [
        Moving(
            id=each.id,
            key_groups=[str(key_group) for key_group in each.key_groups],
            source=each.source,
            target=each.target,
            phase=str(each.phase),
            state_bytes=each.state_bytes,
            pause_s=each.pause_s,
            detail=each.detail,
        )
        for each in row.handovers
    ]
