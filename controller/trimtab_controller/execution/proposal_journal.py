"""Plans that wait for approval, and key groups that operators moved, in the journal."""

from collections.abc import Mapping
from typing import Any

from trimtab_controller.execution.proposal import HandMoved, Proposal
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_name, check_number, check_text
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId, parse_key_group
from trimtab_protocol.messages.placement import MAX_MOVING


def proposal_document(row: Proposal) -> dict[str, Any]:
    """The fields as JSON types.  Why each move is made is told by an event, and not repeated here."""
    plan = row.plan
    return {
        "id": row.id,
        "at": row.at,
        "expires_at": row.expires_at,
        "rejected": row.rejected,
        "app": plan.app,
        "reason": str(plan.reason),
        "detail": plan.detail,
        "before": plan.before,
        "planned": plan.planned,
        "lower_bound": plan.lower_bound,
        "status": plan.status,
        "fallback": plan.fallback,
        "note": plan.note or None,
        "hosts": dict(plan.hosts),
        "moves": [[str(move.key_group), move.source, move.target, move.state_bytes] for move in plan.moves],
    }


def read_proposal(row: Fields) -> Proposal:
    """The proposal in these fields; raises BadMessage."""
    hosts = {
        WorkerId(worker): HostId(check_name(host, path))
        for worker, path, host in row.members("hosts", limit=2 * MAX_MOVING)
    }
    moves = tuple(_read_move(path, value) for path, value in row.items("moves", limit=MAX_MOVING))
    try:
        plan = Plan(
            app=AppId(row.name("app")),
            reason=row.choice("reason", PlanReason),
            detail=row.text("detail", limit=4000),
            moves=moves,
            hosts=hosts,
            status=row.name("status"),
            fallback=row.flag("fallback"),
            note=row.optional("note", lambda name: row.text(name, limit=4000)) or "",
            before=row.number("before"),
            planned=row.number("planned"),
            lower_bound=row.number("lower_bound"),
        )
    except ValueError as error:
        raise BadMessage(Fault.RANGE, row.path, "a plan that cannot be", str(error)) from error
    return Proposal(
        id=row.name("id"),
        plan=plan,
        at=row.number("at"),
        expires_at=row.number("expires_at"),
        rejected=row.optional("rejected", lambda name: row.text(name, limit=4000)),
    )


def _read_move(path: str, row: object) -> Move:
    if not isinstance(row, list) or len(row) != 4 or not isinstance(row[3], int | None):
        raise BadMessage(Fault.TYPE, path, row, "[key group, source, target, bytes]")
    return Move(
        key_group=parse_key_group(check_text(row[0], f"{path}[0]", 500), f"{path}[0]"),
        source=WorkerId(check_name(row[1], f"{path}[1]")),
        target=WorkerId(check_name(row[2], f"{path}[2]")),
        state_bytes=row[3],
    )


def hand_moved_document(moved: Mapping[KeyGroup, HandMoved]) -> list[list[Any]]:
    """One row per key group."""
    return [[str(key_group), row.worker, row.until] for key_group, row in moved.items()]


def read_hand_moved(fields: Fields, name: str, *, limit: int) -> dict[KeyGroup, HandMoved]:
    """The rows of this field; raises BadMessage."""
    found = {}
    for path, row in fields.items(name, limit=limit):
        if not isinstance(row, list) or len(row) != 3:
            raise BadMessage(Fault.TYPE, path, row, "[key group, worker, until]")
        key_group = parse_key_group(check_text(row[0], f"{path}[0]", 500), f"{path}[0]")
        worker = WorkerId(check_name(row[1], f"{path}[1]"))
        found[key_group] = HandMoved(worker=worker, until=check_number(row[2], f"{path}[2]", 0.0, 1e12))
    return found
