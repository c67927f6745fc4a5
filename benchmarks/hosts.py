"""Measures what the limits of hosts cost: load distance and time with hosts that have room, and with full ones.

    python -m benchmarks.hosts [--seconds 5]

Clusters of equal hosts with four workers each; loads differ by 20 %, and a fifth of the workers has twice as much.
"room" = hosts with all the CPU that their workers have; "full" = hosts with 2 % more than the mean load of their
workers, so that nearly every one is full after the plan.  "disks" = hosts whose disks have room for 5 % more state;
"copies" = the same, and every key group has a standby on another host.  `overfilled` counts hosts above their limit
after the plan.  Times are seconds of CPU, so that other programs do not change the plans; the limit is one, too.
It also measures what following hosts and costs adds to a window of the controller.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trimtab_controller.decider.memory.headroom import capacity_of
from trimtab_controller.decider.memory.hosts import HostTracker
from trimtab_controller.decider.window.demand import WindowDemands
from trimtab_controller.decider.window.owned import OwnedTable
from trimtab_controller.decider.window.view import MeasuredView, SmoothedView, Worker
from trimtab_controller.solver.answer import Answer, Copies, Hosts, Question
from trimtab_controller.solver.balance import answer, limits_of, problem_of
from trimtab_protocol.messages.key_group_table import KeyGroupTable
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, Snapshot

SIZES = ((60, 1_200, 150), (200, 4_000, 500), (1_000, 100_000, 20_000))
WORKERS_PER_HOST = 4
SEEDS = range(3)


def question(workers: int, key_groups: int, budget: int, seed: int, seconds: float) -> Question:
    """An unbalanced cluster without limits, of mean load 50 %."""
    random = np.random.default_rng(seed)
    owner = np.arange(key_groups) % workers
    load = random.uniform(0.8, 1.2, key_groups)
    load[np.isin(owner, random.permutation(workers)[: workers // 5])] *= 2.0
    return Question(
        load=load * 50.0 * workers / load.sum(),
        state_bytes=np.full(key_groups, 1_000),
        operator=np.zeros(key_groups, np.int32),
        owner=owner.astype(np.int32),
        capacity=np.ones(workers),
        draining=np.zeros(workers, np.bool_),
        flows=None,
        max_migrations=budget,
        max_load_distance=5.0,
        time_limit_s=seconds,
        seed=seed,
    )


def with_hosts(asked: Question, cpu: float) -> Question:
    """The question with hosts of this much CPU."""
    hosts = (np.arange(len(asked.capacity)) // WORKERS_PER_HOST).astype(np.int32)
    count = int(hosts.max()) + 1
    return replace(
        asked,
        hosts=Hosts(
            host=hosts,
            cpu=np.full(count, cpu),
            memory=np.full(count, np.inf),
            disk=np.full(count, np.inf),
            link=np.full((2, count), np.inf),
        ),
    )


def with_disks(asked: Question, seed: int, *, copies: bool) -> Question:
    """The question with disks that are nearly full; with `copies`, each key group has a standby on another host."""
    made = with_hosts(asked, np.inf)
    assert made.hosts is not None
    count, key_groups = len(made.hosts.cpu), len(asked.load)
    held = np.bincount(made.hosts.host[asked.owner], asked.state_bytes, count).astype(np.float64)
    hosts = replace(made.hosts, cpu=np.full(count, np.inf), disk=1.05 * held, memory_stays=True)
    if not copies:
        return replace(made, hosts=hosts)
    random = np.random.default_rng(seed)
    away = random.integers(WORKERS_PER_HOST, len(asked.capacity) - WORKERS_PER_HOST, key_groups)
    standbys = Copies(
        key_group=np.arange(key_groups, dtype=np.int32),
        worker=((asked.owner + away) % len(asked.capacity)).astype(np.int32),
        lacking=np.zeros(key_groups),
        in_memory=np.ones(key_groups, np.bool_),
    )
    return replace(made, hosts=hosts, copies=standbys)


def asked_of(kind: str, workers: int, key_groups: int, budget: int, seed: int, seconds: float) -> Question:
    """The question of a kind."""
    asked = question(workers, key_groups, budget, seed, seconds)
    if kind in ("disks", "copies"):
        return with_disks(asked, seed, copies=kind == "copies")
    cpu = {"room": 100.0, "full": 51.0}.get(kind)
    return asked if cpu is None else with_hosts(asked, cpu * WORKERS_PER_HOST)


def compare(seconds: float) -> Iterator[str]:
    """A line for each size and kind of host; medians over the seeds."""
    for workers, key_groups, budget in SIZES:
        for kind in ("no hosts", "room", "full", "disks", "copies"):
            distances, gaps, times, overfilled = [], [], [], 0
            for seed in SEEDS:
                asked = asked_of(kind, workers, key_groups, budget, seed, seconds)
                found = answer(asked, time.process_time)
                assert isinstance(found, Answer)
                distances.append(found.load_distance)
                gaps.append(found.load_distance - found.lower_bound)
                times.append(found.solve_s)
                if (limits := limits_of(asked)) is not None:
                    plan = problem_of(asked).home.copy()
                    for key_group, target in found.moves:
                        plan[key_group] = target
                    overfilled += int(limits.tolerating(problem_of(asked).home).overfull(plan).sum())
            figures = [statistics.median(each) for each in (distances, gaps, times)]
            yield (
                f"{workers:6d} {key_groups:8d} {kind:>9}  load distance {figures[0]:6.2f}  gap {figures[1]:5.2f} pp"
                f"  {figures[2]:5.2f} s  overfilled {overfilled}"
            )


def follow(workers: int, key_groups: int) -> str:
    """What a window costs."""
    app, operator = AppId("app"), OperatorId("sums")
    names = [WorkerId(f"w{number}") for number in range(workers)]
    host_of = {name: HostId(f"h{place // WORKERS_PER_HOST}") for place, name in enumerate(names)}
    table = KeyGroupTable.of(
        [
            KeyGroupWindow(
                key_group=KeyGroup(app, operator, partition), worker=names[partition % workers], covered_s=10.0,
                cpu=0.005, tuples_in_s=5.0, state_bytes=1_000, backlog=0,
            )
            for partition in range(key_groups)
        ]
    )  # fmt: skip
    snapshot = Snapshot(
        cluster="c", start_ms=0, end_ms=10_000, published_ms=10_000, hosts_seen=1, hosts_expected=1, watermark_ms=None,
        late_rows=0, key_groups=table,
        hosts=tuple(
            HostWindow(host=host, covered_s=10.0, cpu=2.5, cores=4.0, basis=Basis.HOST, type="t")
            for host in sorted(set(host_of.values()))
        ),
        nodes=tuple(
            NodeWindow(
                worker=name, host=host_of[name], app=app, state=WorkerState.RUNNING, capacity=1.0, covered_s=10.0,
                cpu=0.6, complete=True, steering=True,
            )
            for name in names
        ),
    )  # fmt: skip
    view = MeasuredView(
        app=app, start_s=0.0, end_s=10.0, key_groups=OwnedTable.of_blocks(app, table.blocks), flows={},
        workers=tuple(Worker(id=name, host=host_of[name], capacity=1.0, draining=False) for name in names),
    )  # fmt: skip
    tracker, times = HostTracker(smoothing=0.5), []
    for _ in range(5):
        begun = time.perf_counter()
        tracker.observe(snapshot, {})
        capacity_of({app: SmoothedView.of(tracker.of_view(view, WindowDemands(key_groups={}, workers={})))}, tracker)
        times.append(time.perf_counter() - begun)
    return f"hosts, costs and headroom of a window, {workers} workers, {key_groups} key groups: " + (
        f"{1000 * statistics.median(times):.0f} ms"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="time limit of a plan (default: 5)")
    options = parser.parse_args()
    for line in compare(options.seconds):
        print(line, flush=True)
    print(follow(1_000, 100_000))


if __name__ == "__main__":
    main()
