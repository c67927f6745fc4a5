"""Translates a view into a problem: arrays for the solver, or the instance file that `trimtab snapshot` writes."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.collocation import (
    by_broker,
    costs_of_flows,
    flows_of,
    planned_with,
    with_stated_costs,
)
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats
from trimtab_controller.decider.window.view import UNLIMITED, PlannableView, Room
from trimtab_controller.solver.answer import Flows, Hosts, Method, Placing, Question
from trimtab_models.albic.problem import repaid_charge
from trimtab_models.instances.snapshot import (
    KEPT,
    LOAD,
    BalanceInstance,
    MigrationBudget,
    Node,
    SnapshotOptions,
    TupleFlow,
    of_host,
    of_node,
)
from trimtab_models.instances.snapshot import SnapshotKeyGroup as InstanceKeyGroup
from trimtab_protocol.messages.names import HostId

MEMORY, DISK = "memory_bytes", KEPT + "disk_bytes"
RECEIVED, SENT = "received_bytes_s", "sent_bytes_s"


def question_of(view: PlannableView, settings: Settings, time_limit_s: float) -> Question:
    """The question to the solver; key groups and workers are numbered as in the view."""
    view = with_stated_costs(settings, view)
    table, albic, potential = view.owned, planned_with(settings, view) is Method.ALBIC, view.potential is not None
    return Question(
        load=table.load,
        state_bytes=table.assumed_state_bytes,
        traffic=_traffic(view),
        operator=table.operator.astype(np.int32),
        owner=view.owner_numbers.astype(np.int32),
        capacity=np.array([worker.capacity for worker in view.workers], np.float64),
        draining=np.array([worker.draining for worker in view.workers], np.bool_),
        flows=_flows(view) if albic else None,
        max_migrations=len(table) if potential else settings.moves_for(view.max_moves),
        max_load_distance=_max_load_distance(view, settings),
        time_limit_s=time_limit_s,
        method=planned_with(settings, view),
        hosts=_hosts(view),
        copies=view.copies,
        pinned=_pinned(view),
        placing=_placing(view),
        charge=_charge(view) if albic else None,
        potential=potential,
    )


def _pinned(view: PlannableView) -> NDArray[np.bool_] | None:
    """Which key groups stay where they are; None: they may all move."""
    if not view.pinned:
        return None
    found = np.zeros(len(view.owned), np.bool_)
    found[view.pinned_rows] = True
    return found


def _placing(view: PlannableView) -> Placing | None:
    """Where key groups may be by the rules; those that wait for others stay where they are."""
    if not view.rules:
        return None
    if not view.later:
        return view.places.of_question
    where = view.places
    frozen = where.frozen.copy()
    frozen[list(view.later)] = True
    return Placing(class_of=where.class_of.astype(np.int32), allowed=where.allowed, frozen=frozen)


def _hosts(view: PlannableView) -> Hosts | None:
    """The rooms of the hosts; None if none is known."""
    if not view.rooms:
        return None
    names = sorted(set(view.hosts.values()))
    places = {name: place for place, name in enumerate(names)}
    rooms = [view.rooms.get(name, UNLIMITED) for name in names]
    return Hosts(
        host=np.array([places[worker.host] for worker in view.workers], np.int32),
        cpu=np.array([room.cpu for room in rooms], np.float64),
        memory=np.array([room.memory for room in rooms], np.float64),
        disk=np.array([room.disk for room in rooms], np.float64),
        link=np.array([[room.received, room.sent] for room in rooms], np.float64).T,
        memory_stays=view.memory_stays,
    )


def _traffic(view: PlannableView) -> Floats | None:
    """The traffic of the key groups; None if all of them together would fill no host's link."""
    traffic = view.owned.assumed_traffic
    received, sent = traffic.sum(axis=1)
    narrow = any(room.received < received or room.sent < sent for room in view.rooms.values())
    return traffic if narrow else None


def _flows(view: PlannableView) -> Flows:
    """The flows between key groups of the view, with what each costs while it is remote."""
    flows = flows_of(view)
    sending, receiving = costs_of_flows(view, flows)
    return Flows(
        source=flows.source.astype(np.int32),
        target=flows.target.astype(np.int32),
        rate=flows.rate,
        send_cost=PERCENT_PER_CORE * sending,
        receive_cost=PERCENT_PER_CORE * receiving,
        by_broker=by_broker(view, flows),
    )


def _charge(view: PlannableView) -> Floats:
    """The load that the move of each key group must save at least, to pay back its restore."""
    restore = view.restore
    return repaid_charge(
        np.maximum(1.0, view.owned.assumed_state_bytes), bytes_s=restore.bytes_s, unit_s=restore.unit_s
    )


def _mean_costs(view: PlannableView) -> tuple[float, float]:
    """Percent of a core per remote tuple/s at both ends, on average: the file has one number for all operators."""
    flows = flows_of(view)
    total = float(flows.rate.sum())
    if not total or not view.remote_costs:
        return 0.0, 0.0
    sending, receiving = costs_of_flows(view, flows)
    return (
        PERCENT_PER_CORE * float((flows.rate * sending).sum()) / total,
        PERCENT_PER_CORE * float((flows.rate * receiving).sum()) / total,
    )


def _max_load_distance(view: PlannableView, settings: Settings) -> float:
    """The largest load distance that a plan may leave: the band, or the larger limit while key groups must move.

    The ceiling of the size is the limit of a potential plan.
    """
    if view.potential is not None:
        return view.potential
    if view.leaving.any() or view.misplaced.any():
        return settings.drain_load_distance
    return settings.load_distance


def instance_of(view: PlannableView, settings: Settings) -> BalanceInstance:
    """The same problem as an instance of the file contract."""
    view = with_stated_costs(settings, view)
    known, (sending, receiving) = view.owners, _mean_costs(view)
    limits_of, usages = limits_of_hosts(view, _traffic(view))
    limits = [limits_of.get(worker.host, {}) for worker in view.workers]
    if view.rules:
        limits = add_rules(view, limits, usages)
    return BalanceInstance(
        nodes=tuple(
            Node(id=worker.id, capacity=worker.capacity, removing=worker.draining, limits=of_worker)
            for worker, of_worker in zip(view.workers, limits, strict=True)
        ),
        key_groups=tuple(
            InstanceKeyGroup(
                id=str(row.key_group),
                operator=row.key_group.operator,
                node=row.owner,
                load=row.load,
                state_bytes=state_bytes,
                usage=usage,
                pinned=frozen or row.key_group in view.pinned,
            )
            for row, state_bytes, usage, frozen in zip(
                view.key_groups,
                view.owned.assumed_state_bytes.tolist(),
                usages,
                view.places.frozen.tolist(),
                strict=True,
            )
        ),
        flows=tuple(
            TupleFlow(source=str(source), target=str(target), rate=rate)
            for (source, target), rate in sorted(view.flows.items())
            if source in known and target in known
        ),
        budget=MigrationBudget(max_migrations=settings.max_migrations),
        options=SnapshotOptions(
            max_load_distance=_max_load_distance(view, settings),
            serialise_cost=sending,
            deserialise_cost=receiving,
        ),
    )


def limits_of_hosts(
    view: PlannableView, traffic: Floats | None
) -> tuple[dict[HostId, dict[str, float]], list[dict[str, float]]]:
    """The limits of the workers of each host, and what each key group uses of what is limited.

    Both are named as `trimtab_models.instances.snapshot` explains.
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

    A class of key groups that rules keep off some workers is a resource, of which these workers have none.  As with any
    limit, what is there already may stay; that it is to leave is not part of the file.
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
