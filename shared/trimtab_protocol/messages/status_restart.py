"""The part of the status about the rolling restart of an app."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Range, Text
from trimtab_protocol.messages.intents import MAX_WORKERS
from trimtab_protocol.messages.names import HostId, WorkerId

MAX_TEXT = 1000
"""Largest length of a text, in characters."""
Workers = Annotated[int, Range(0, MAX_WORKERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartStatus:
    """How far the restart of `workers` workers is: `done` have been restarted, those of `host` are restarted now.

    `skipped` = workers that are left out: their agents cannot start them, or they are to stay off.  `differ` = how the
    workers differ, so that they are restarted without a drain; None: they do not.  `waits` = what it waits for, and
    what to do if that does not come; None: nothing stands in its way.
    """

    workers: Workers
    done: Workers
    host: HostId | None = None
    skipped: Annotated[tuple[WorkerId, ...], Most(MAX_WORKERS)] = ()
    differ: Annotated[str | None, Text(MAX_TEXT)] = None
    waits: Annotated[str | None, Text(MAX_TEXT)] = None
