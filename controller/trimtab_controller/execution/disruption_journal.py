"""What has paused in each app, in the journal."""

from typing import Any

from trimtab_controller.execution.disruption import BUCKET_S, MAX_APPS, WINDOW_S, Cause, Disruption, Pauses
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_integer, check_number
from trimtab_protocol.messages.names import AppId

MAX_PAUSES = 10 * len(Cause) * round(WINDOW_S / BUCKET_S)
"""Rows of one app; a clock that was set back makes more of them than fit into the window."""


def disruption_document(found: Disruption) -> dict[str, Any]:
    """The fields as JSON types."""
    return {
        "since": found.since,
        "seen_to": found.seen_to,
        "apps": [
            {
                "app": app,
                "pauses": [
                    [row.began_at, row.ended_at, row.measured_s, row.key_groups, row.assumed_s, row.cause]
                    for row in rows[-MAX_PAUSES:]
                ],
            }
            for app, rows in found.apps.items()
        ],
    }


def read_disruption(fields: Fields) -> Disruption:
    """What these fields say; raises BadMessage."""
    return Disruption(
        since=fields.optional("since", fields.number),
        seen_to=fields.optional("seen_to", fields.number),
        apps={
            AppId(row.name("app")): tuple(_read(path, each) for path, each in row.items("pauses", limit=MAX_PAUSES))
            for row in fields.objects("apps", limit=MAX_APPS)
        },
    )


def _read(path: str, row: object) -> Pauses:
    if not isinstance(row, list) or len(row) != 6:
        raise BadMessage(Fault.TYPE, path, row, "[began at, ended at, measured, key groups, assumed, cause]")
    began_at, ended_at, measured_s, assumed_s = (
        check_number(row[at], f"{path}[{at}]", 0.0, 1e12) for at in (0, 1, 2, 4)
    )
    key_groups = check_integer(row[3], f"{path}[3]", 0, 2**53)
    if row[5] not in set(Cause):
        raise BadMessage(Fault.RANGE, f"{path}[5]", row[5], "one of " + ", ".join(Cause))
    return Pauses(
        began_at=began_at,
        ended_at=ended_at,
        measured_s=measured_s,
        key_groups=key_groups,
        assumed_s=assumed_s,
        cause=Cause(row[5]),
    )
