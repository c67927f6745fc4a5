"""Maintenance of hosts: their workers are drained and stay off until a time, and are started again then.  Pure.

It is a drain of each worker of the host, with an end.  So a controller that takes over knows it from the intents, and
what holds for drains holds here.  Besides, a host in maintenance may be silent without counting as lost.
"""

from collections import defaultdict
from collections.abc import Iterable

from trimtab_controller.decider.decision import MaintenanceEnded
from trimtab_protocol.messages.intents import Drain, Intent
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.wording import first_few


def in_maintenance(intents: Iterable[Intent]) -> dict[HostId, frozenset[WorkerId]]:
    """The workers of each host in maintenance."""
    found: defaultdict[HostId, set[WorkerId]] = defaultdict(set)
    for each in intents:
        if isinstance(each, Drain) and each.until is not None and each.host is not None:
            found[each.host].add(each.worker)
    return {host: frozenset(workers) for host, workers in found.items()}


def maintenance_over(now: float, intents: Iterable[Intent]) -> MaintenanceEnded | None:
    """The end of the drains whose time has passed: workers that the controller stopped are started again."""
    over = [each for each in intents if isinstance(each, Drain) and each.until is not None and each.until <= now]
    if not over:
        return None
    hosts = sorted({each.host for each in over if each.host is not None})
    where = f"of {first_few(hosts)} " if hosts else ""
    workers = first_few(sorted(each.worker for each in over))
    detail = f"the maintenance {where}is over: {workers} may run again"
    return MaintenanceEnded(detail=detail, answered=tuple(each.key for each in over))
