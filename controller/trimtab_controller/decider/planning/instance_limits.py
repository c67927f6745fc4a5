"""Limits of hosts, and rules, in an instance file, by the names that `trimtab_models.instances.host_limits` explains.

A class of key groups that rules keep off some workers is a resource, of which these workers have none.
"""

import math
from collections.abc import Mapping

import numpy as np

from trimtab_controller.decider.observing.owned import Floats
from trimtab_controller.decider.observing.view import PlannableView, Room
from trimtab_models.instances.host_limits import KEPT, LOAD, of_host, of_node
from trimtab_protocol.messages.names import HostId

MEMORY, DISK = "memory_bytes", KEPT + "disk_bytes"
RECEIVED, SENT = "received_bytes_s", "sent_bytes_s"


def limits_of_hosts(
    view: PlannableView, traffic: Floats | None
) -> tuple[dict[HostId, dict[str, float]], list[dict[str, float]]]:
    """The limits of the workers of each host, and what each key group uses of what is limited.

    `traffic` (2, K) = None where no link is narrow.
    """
    table, memory = view.owned, (KEPT if view.memory_stays else "") + MEMORY
    of_room = {host: _limits(room, memory, narrow=traffic is not None) for host, room in view.rooms.items()}
    limited = {name for limits in of_room.values() for name in limits}
    limits = {host: {of_host(host, name): room for name, room in its.items()} for host, its in of_room.items()}
    usages: list[dict[str, float]] = [{} for _ in range(len(table))]
    state = table.assumed_state_bytes.tolist()
    for name in sorted(limited & {memory, DISK}):
        for usage, size in zip(usages, state, strict=True):
            usage[name] = size
    for name, rates in zip((RECEIVED, SENT), () if traffic is None else traffic.tolist(), strict=False):
        for usage, rate in zip(usages, rates if name in limited else (), strict=False):
            usage[name] = rate
    _add_copies(view, usages, state, limited, memory)
    return limits, usages


def add_rules(
    view: PlannableView, limits: list[dict[str, float]], usages: list[dict[str, float]]
) -> list[dict[str, float]]:
    """The limits of the workers with the rules besides, which are added to `usages` too.

    As with any limit, what is there already may stay; that it is to leave is not part of the file.
    """
    found, where = [dict(each) for each in limits], view.places
    for which, allowed in enumerate(where.allowed):
        name = f"rules:{'+'.join(rule.name for rule in where.rules[which])}"
        for place in np.flatnonzero(~allowed).tolist():
            found[place][name] = 0.0
        for row in np.flatnonzero(where.class_of == which).tolist():
            usages[row][name] = 1.0
    return found


def _limits(room: Room, memory: str, *, narrow: bool) -> dict[str, float]:
    """What a host limits."""
    known: Mapping[str, float] = {LOAD: room.cpu, memory: room.memory, DISK: room.disk}
    if narrow:
        known = {**known, RECEIVED: room.received, SENT: room.sent}
    return {name: amount for name, amount in known.items() if math.isfinite(amount)}


def _add_copies(
    view: PlannableView, usages: list[dict[str, float]], state: list[int], limited: set[str], memory: str
) -> None:
    """On workers with a copy of the state, what it lacks; some take no more memory."""
    copies = view.copies
    if copies is None:
        return
    columns = (copies.key_group.tolist(), copies.worker.tolist(), copies.lacking.tolist(), copies.in_memory.tolist())
    for row, place, lacking, in_memory in zip(*columns, strict=True):
        worker = view.workers[place].id
        if DISK in limited:
            usages[row][of_node(worker, DISK)] = lacking * state[row]
        if memory in limited and in_memory:
            usages[row][of_node(worker, memory)] = 0.0
