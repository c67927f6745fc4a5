"""The plan for moves that no solver has chosen: those that operators ask for, trials, and what the guard moves back."""

from collections.abc import Mapping, Sequence

from trimtab_controller.decider.hosts.resources import Filled
from trimtab_controller.decider.observing.view import PlannableView
from trimtab_controller.decider.planning.explain import why_of
from trimtab_controller.decider.planning.single_moves import SingleMoves
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.names import WorkerId


def plan_for(
    view: PlannableView, moves: Mapping[int, WorkerId], filled: Sequence[Filled], reason: PlanReason, detail: str
) -> Plan:
    """The plan that makes these moves (row -> target); `filled` = what they fill of the hosts.

    Nobody has sought a better one, so its bound is 0.
    """
    table = view.owned
    return Plan(
        app=view.app,
        reason=reason,
        detail=detail,
        moves=tuple(
            Move(
                key_group=table[row].key_group,
                source=table[row].owner,
                target=target,
                state_bytes=table[row].state_bytes,
            )
            for row, target in moves.items()
        ),
        hosts=view.hosts,
        before=SingleMoves(view).load_distance or 0.0,
        planned=SingleMoves(view, moves, filled).load_distance or 0.0,
        lower_bound=0.0,
        status="feasible",
        why=why_of(view, moves, reason, filled),
    )
