"""The part of the status about the rolling restart of an app."""

from dataclasses import dataclass

from trimtab_protocol.messages.columns import read_names
from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.messages.intents import MAX_WORKERS
from trimtab_protocol.messages.names import HostId, WorkerId

MAX_TEXT = 1000
"""Largest length of a text, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartStatus:
    """How far the restart of `workers` workers is: `done` have been restarted, those of `host` are restarted now.

    `skipped` = workers that are left out: their agents cannot start them, or they are to stay off.  `differ` = how the
    workers differ, so that they are restarted without a drain; None: they do not.  `waits` = what it waits for, and
    what to do if that does not come; None: nothing stands in its way, or the controller is too old to say.
    """

    workers: int
    done: int
    host: HostId | None = None
    skipped: tuple[WorkerId, ...] = ()
    differ: str | None = None
    waits: str | None = None


def read_restart(row: Fields) -> RestartStatus:
    """The `restart` of an app; raises BadMessage."""
    host = row.optional("host", row.name)
    return RestartStatus(
        workers=row.integer("workers", high=MAX_WORKERS),
        done=row.integer("done", high=MAX_WORKERS),
        host=HostId(host) if host else None,
        skipped=tuple(map(WorkerId, read_names(row, "skipped", limit=MAX_WORKERS))),
        differ=row.optional("differ", lambda name: row.text(name, limit=MAX_TEXT)),
        waits=row.optional("waits", lambda name: row.text(name, limit=MAX_TEXT)),
    )
