"""The plans that the guard has ended, in the journal."""

from typing import Any

from trimtab_controller.execution.guarding import GuardStop, Moved
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_name, check_number, check_text
from trimtab_protocol.messages.names import AppId, WorkerId, parse_key_group
from trimtab_protocol.messages.placement import MAX_MOVING

LONGEST_S = 1e12


def guard_document(row: GuardStop) -> dict[str, Any]:
    """The fields as JSON types."""
    return {
        "app": row.app,
        "plan": row.plan,
        "at": row.at,
        "until": row.until,
        "detail": row.detail,
        "times": row.times,
        "lags_s": dict(row.lags_s),
        "moves": [[str(each.key_group), each.source, each.target] for each in row.moves],
        "back_by": row.back_by,
    }


def read_guard_stop(row: Fields) -> GuardStop:
    """The stop in these fields; raises BadMessage."""
    return GuardStop(
        app=AppId(row.name("app")),
        plan=row.name("plan"),
        at=row.number("at"),
        until=row.number("until"),
        detail=row.text("detail", limit=4000),
        times=row.integer("times", low=1),
        lags_s={
            WorkerId(check_name(worker, path)): check_number(value, path, 0.0, LONGEST_S)
            for worker, path, value in row.members("lags_s", limit=2 * MAX_MOVING)
        },
        moves=tuple(_read_moved(path, value) for path, value in row.items("moves", limit=MAX_MOVING)),
        back_by=row.optional("back_by", row.number),
    )


def _read_moved(path: str, row: object) -> Moved:
    if not isinstance(row, list) or len(row) != 3:
        raise BadMessage(Fault.TYPE, path, row, "[key group, source, target]")
    return Moved(
        key_group=parse_key_group(check_text(row[0], f"{path}[0]", 500), f"{path}[0]"),
        source=WorkerId(check_name(row[1], f"{path}[1]")),
        target=WorkerId(check_name(row[2], f"{path}[2]")),
    )
