"""The row of a key group in a placement after its move.

The execution publishes it, and the decider predicts with it what stays in memory.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import MAX_STANDBYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a worker runs; `zone` None: its agent names none."""

    host: HostId
    zone: str | None = None


Sites = Mapping[WorkerId, Site]
"""The sites of workers, as far as they are known."""


def row_after(row: Owners, source: WorkerId, target: WorkerId, sites: Sites) -> Owners:
    """The row after a move: (target, first standby, ...), with as many standbys as before, but at least one.

    Standbys in another zone than the target come first, then those on another host: a loss should not take all copies.
    Of standbys that are equally far the source comes first, since it lacks nothing, and then the order is as before.
    Where nobody knows yet where the target runs, as right after a takeover, no standby is dropped; the next round of
    standbys drops those that are too many.
    """
    standbys = [source, *(each for each in row[1:] if each not in (source, target))]
    if target not in sites:
        return (target, *standbys[:MAX_STANDBYS])
    standbys.sort(key=lambda each: _nearness(sites.get(each), sites[target]))
    return (target, *standbys[: max(1, len(row) - 1)])


def _nearness(standby: Site | None, target: Site) -> int:
    """0: in another zone; 1: on another host; 2: on the same host, or on an unknown one; without zones all are one."""
    if standby is None or standby.host == target.host:
        return 2
    return 1 if standby.zone == target.zone else 0
