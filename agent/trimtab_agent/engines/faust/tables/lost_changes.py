"""Says that a table lacks values, because records of its changelog are gone that its database has not seen.

A changelog that is only compacted begins at offset 0 for ever.  If it begins later, its records were deleted by
retention or by hand, and the values of keys that were not written since are lost.  Faust goes on with what is left.
The changelog of a windowed table deletes by design.
"""

import logging
import time
from collections.abc import Collection
from typing import Any

from faust.types import TP

from trimtab_agent.engines.faust.safety.troubles import Tell, Trouble, minute
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)

LIMIT_S = 3.0
"""How long the broker may take to say where the changelogs begin; nothing is told otherwise."""


def gap(tp: TP, table: Any, start: int | None) -> str | None:
    """What an open table lacks of its changelog, which begins at offset `start`; None if nothing, or unknown."""
    at = table.persisted_offset(tp)
    if start is None or start <= (0 if at is None else at + 1) or table.changelog_topic.deleting:
        return None
    return (
        f"{tp.topic}/{tp.partition} (begins at {start}, read {'from the beginning' if at is None else f'up to {at}'})"
    )


def report(gaps: Collection[str], tell: Tell) -> None:
    """Log what tables lack, and tell it."""
    if gaps:
        lacking, seen = first_few(sorted(gaps), most=1), minute(time.time())
        tell(Trouble.STATE_LOST, f"state is lost, seen {seen}: changes were deleted of {lacking}")
        log.warning(
            "state is lost: records of changelogs were deleted before this worker read them: %s. Keys that were not "
            "written since lack their values here, and deleted ones may be back. `trimtab doctor` looks at the "
            "settings of changelogs",
            first_few(sorted(gaps)),
        )


async def starts_of(consumer: Any, tps: Collection[TP]) -> dict[TP, int]:
    """Where these changelogs begin; nothing if the broker does not say it in time."""
    if not tps:
        return {}
    try:
        found: dict[TP, int] = await consumer.thread.beginnings(tps, LIMIT_S)
    except Exception as fault:  # whatever it is, it must not end the rebalance
        log.debug("it is not known where %d changelogs begin: %r", len(tps), fault)
        return {}
    return found
