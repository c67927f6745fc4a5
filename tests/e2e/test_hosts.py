"""Real workers on hosts of two types, of which one needs twice the CPU for the same work.

How fast the types are is learnt from what the operator costs on each; then a plan promises the loads that are measured.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from flights.steered_run import READY_LIMIT_S
from flights.watch import read_snapshots
from tests.e2e.paced_run import Run, key_groups_of, paced_run
from tests.shown import Show
from trimtab_models.balance.hosts import limits_in
from trimtab_models.balance.problem import problem_of
from trimtab_models.instances.reading import parsed_instance
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.solving import Never, PlanDocument, method_named
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

pytestmark = pytest.mark.scenario

PARTITIONS = 24
CAPACITY = 0.25
BURN_S = 0.01
RATE = 1.25
"""Jobs per second of a key group: a worker with a third of them uses 40 % of its capacity, the slow one 80 %."""
ERROR = 0.1
"""Of a worker's load: promised against measured."""
WINDOWS = 4
"""Windows over which loads are averaged: a key group has 6 jobs in one."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with paced_run(
        tmp_path_factory.mktemp("hosts"),
        "hosts",
        rate=RATE,
        partitions=PARTITIONS,
        capacity_cores=CAPACITY,
        host_cores=1.0,
        host_types=("fast", "fast", "slow"),
        interval_s=2.5,
        environment={"BURN_S": str(BURN_S), "SLOW": "w2"},
        controller={"balance": {"min_interval_s": 10.0, "load_distance": 8.0}},
    ) as made:
        made.until(
            lambda status: key_groups_of(status) == [8, 8, 8],
            "all workers running, with eight key groups each",
            limit_s=READY_LIMIT_S,
        )
        made.trimtab("pause", "--reason", "learn the costs first")
        yield made


def cores(snapshots: Sequence[Snapshot]) -> dict[int, float]:
    """What each key group asks for: its CPU per job, times the jobs that are sent to it.

    What it uses is another thing where its worker catches up, or other programs keep the worker from the cores.
    """
    cpu, done = defaultdict[int, float](float), defaultdict[int, float](float)
    for row in (row for snapshot in snapshots for row in snapshot.key_groups):
        if row.cpu is not None and row.tuples_in_s is not None:
            cpu[row.key_group.partition] += row.cpu
            done[row.key_group.partition] += row.tuples_in_s
    return {partition: RATE * used / done[partition] for partition, used in cpu.items()}


def jobs_s(snapshots: Sequence[Snapshot]) -> float:
    """Jobs per second, for the record: how far the workers were from what is sent to them."""
    return sum(row.tuples_in_s or 0.0 for each in snapshots for row in each.key_groups) / len(snapshots)


def owners(snapshot: Snapshot) -> dict[int, WorkerId]:
    return {row.key_group.partition: row.worker for row in snapshot.key_groups}


def check_snapshot(run: Run) -> None:
    """What `trimtab snapshot` writes knows the hosts, and a plan for it keeps their limits."""
    instance = parsed_instance(run.trimtab("snapshot"), BalanceInstance)
    limits = limits_in(instance)
    assert limits is not None
    assert len(limits.room[0]) == 1 + len(instance.nodes), "each worker has a host here, and none is without"
    assert np.isfinite(limits.room[0, :-1]).all(), "cores"
    names = {name.rpartition(":")[2] for node in instance.nodes for name in node.limits}
    print(f"limits in the snapshot: {sorted(names)}")
    assert {"load", "kept_disk_bytes"} <= names
    plan = method_named("milp").solve(instance, Never(), 0)
    assert isinstance(plan, PlanDocument)
    nodes = {node.id: place for place, node in enumerate(instance.nodes)}
    moved = {each["key_group"]: nodes[each["to"]] for each in plan.document["moves"]}
    home = problem_of(instance).home
    after = np.array([moved.get(each.id, at) for each, at in zip(instance.key_groups, home, strict=True)])
    assert limits.tolerating(home).keep(after)


def test_the_load_on_a_host_of_another_speed_is_what_the_plan_promised(run: Run, show: Show) -> None:
    status = run.until(
        lambda status: any(row.type == "slow" and row.speed and row.speed < 0.65 for row in status.hosts),
        "that the slow host is half as fast",
    )
    speed = {row.host: row.speed or 1.0 for row in status.hosts}
    run.windows(WINDOWS)
    before = read_snapshots(run.cluster.broker.address, run.cluster.topics)[-WINDOWS:]
    run.trimtab("resume")
    after = run.until(lambda status: status.rounds and status.rounds[-1].after is not None, "a measured plan")
    run.windows(WINDOWS)
    now = read_snapshots(run.cluster.broker.address, run.cluster.topics)[-WINDOWS:]

    host_of = {node.worker: node.host for node in now[-1].nodes}
    cost, was, its = cores(before), owners(before[-1]), owners(now[-1])
    promised, measured = dict.fromkeys(host_of, 0.0), dict.fromkeys(host_of, 0.0)
    for partition, used in cores(now).items():
        promised[its[partition]] += cost[partition] * speed[host_of[was[partition]]] / speed[host_of[its[partition]]]
        measured[its[partition]] += used
    moved = sum(was[partition] != its[partition] for partition in was)
    print(f"speeds {speed}, {moved} key groups moved")
    print(f"{RATE * PARTITIONS:.1f} jobs/s sent, {jobs_s(before):.1f} done before, {jobs_s(now):.1f} after")
    print("waiting for a core:", [[f"{row.waiting or 0.0:.2f}" for row in each[-1].nodes] for each in (before, now)])
    for worker in sorted(host_of):
        percent = [100.0 * each[worker] / CAPACITY for each in (promised, measured)]
        show(
            f"load of {worker}, {host_of[worker]} of speed {speed[host_of[worker]]:.2f}",
            *(f"{each:.1f} %" for each in percent),
        )
        print(f"{worker}: {percent[0]:.1f} % promised, {percent[1]:.1f} % measured, {list(its.values()).count(worker)}")
    for row in after.rounds:
        print(f"load distance {row.before:.1f} -> {row.planned:.1f} planned, {row.after} measured")
    assert moved >= 2
    assert all(row.waiting is not None for row in now[-1].nodes), "the kernel tells it"
    assert list(its.values()).count(WorkerId("w2")) in (4, 5, 6)
    for worker in host_of:
        assert measured[worker] == pytest.approx(promised[worker], rel=ERROR)

    print(run.trimtab("status"))
    print(run.trimtab("size", "--rate", "2.0"))
    sized = json.loads(run.trimtab("size", "--rate", "2.0", "--json"))
    fast, slow = sized["needs"]
    assert fast["type"]["host_type"] == "fast"
    assert fast["workers"] < slow["workers"]
    for need in (fast, slow):
        each = {row["resource"]: row for row in need["resources"]}
        assert set(each) == {"CPU", "memory", "disk", "link"}
        assert all((row["workers"] is None) <= bool(row["missing"] or row["why"]) for row in each.values())
        assert each["CPU"]["workers"] <= need["workers"]
        assert each["memory"]["workers"] == each["disk"]["workers"] == 1, "little state"
    check_snapshot(run)
    (app,) = run.until(lambda status: [row.app for row in status.apps if not row.not_ready], "a window shows it").apps
    assert app.capacity is not None
    assert app.capacity.headroom is not None
    assert app.capacity.headroom <= (app.capacity.potential or 0.0) <= (app.capacity.bound or 0.0)
