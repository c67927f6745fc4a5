"""A plan that waits for approval, as the status shows it."""

from trimtab_controller.execution.state import Proposal
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.proposals import MAX_SHOWN, ProposalStatus, ProposedMove


def proposal_status(row: Proposal, placement: Placement | None) -> ProposalStatus:
    """The plan with its first moves and its costs; `placement` = the one that it changes."""
    plan = row.plan
    cold = [
        move
        for move in plan.moves
        if placement is None or move.target not in placement.of(move.key_group.operator, move.key_group.partition)
    ]
    sizes = [move.state_bytes if move.lacking_bytes is None else move.lacking_bytes for move in cold]
    return ProposalStatus(
        plan=row.id,
        app=row.app,
        reason=plan.detail[:4000],
        at=row.at,
        expires_at=row.expires_at,
        before=plan.before,
        planned=plan.planned,
        lower_bound=plan.lower_bound,
        moves=tuple(
            ProposedMove(
                key_group=str(move.key_group), source=move.source, target=move.target, state_bytes=move.state_bytes
            )
            for move in plan.moves[:MAX_SHOWN]
        ),
        moves_total=len(plan.moves),
        to_standbys=len(plan.moves) - len(cold),
        restore_bytes=sum(size for size in sizes if size is not None),
        unmeasured=sum(size is None for size in sizes),
        rejected=row.rejected,
    )
