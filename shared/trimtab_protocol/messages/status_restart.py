"""The part of the status about the rolling restart of an app."""

from dataclasses import dataclass

from trimtab_protocol.messages.columns import read_names
from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.messages.intents import MAX_WORKERS
from trimtab_protocol.messages.names import HostId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartStatus:
    """How far the restart of `workers` workers is: `done` have been restarted, those of `host` are restarted now.

    `skipped` = workers that are left out: their agents cannot start them, or they are to stay off.
    """

    workers: int
    done: int
    host: HostId | None = None
    skipped: tuple[WorkerId, ...] = ()


def read_restart(row: Fields) -> RestartStatus:
    """The `restart` of an app; raises BadMessage."""
    host = row.optional("host", row.name)
    return RestartStatus(
        workers=row.integer("workers", high=MAX_WORKERS),
        done=row.integer("done", high=MAX_WORKERS),
        host=HostId(host) if host else None,
        skipped=tuple(map(WorkerId, read_names(row, "skipped", limit=MAX_WORKERS))),
    )
