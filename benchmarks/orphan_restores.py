"""After the loss of a worker without standbys: when is all warm?  Four ways to restore, by the model of the costs.

    PYTHONPATH=. python benchmarks/orphan_restores.py [--seeds N] [--time]

One of six workers, each on a host of its own with four slots, is lost with 24 key groups.  Their states are unequal
(1 to 20 MB).  *Copies*: a third has a copy on the disk of some survivor, which lacks 5 to 60 % of it.  *Slow links*:
two of the five survivors restore half as fast.  The loads of the survivors differ by some percent, and the band is 5
pp.  Costs are those before anything is measured (`PRIOR`), with 10 MB/s per host.

- *list*: the targets of the Elastic Allocator; each restores all its key groups at once, as before.
- *two at a time*: the same targets, two at a time in the order of the list.
- *order*: the same targets, order and number at a time by DynDL.
- *own targets*: targets, order and number by DynDL.

Shown are seconds until all are warm, as the median over the seeds, with the 10th and the 90th percentile; a bound that
no targets beat, whatever the loads; and how far the farthest worker is from the mean use.  Restores of a host share
what it can do while they run.  `--time` shows the CPU time of choosing targets for up to 100,000 key groups.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.played import owned_table, workers_alone
from trimtab_controller.decider.memory.hosts import HostsSeen
from trimtab_controller.decider.memory.orphans import Orphaned
from trimtab_controller.decider.policies.orphan_placing import OPERATIONS, place_orphans
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.restores import TARGET_OPERATIONS as IN_THE_LOOP
from trimtab_controller.decider.window.restores import Restores
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.execution.restore_costs import PRIOR, LearnedRestores
from trimtab_models.dyndl.given import GivenProblem, solve_given
from trimtab_models.dyndl.targets import TargetsProblem, choose_targets, makespan_of, pace_of, targets_bound
from trimtab_models.instances.scheduling import TableCost
from trimtab_models.solving import Never
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

APP, OPERATOR = AppId("app"), OperatorId("sums")
WORKERS, ORPHANS, SLOTS, BAND = 6, 24, 4, 5.0
MB = 1_000_000
SLOW = 2.0
"""How many times longer a restore takes on a host with a slow link."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One loss: what the decider sees, and which hosts are slow."""

    view: PlannableView
    orphaned: Orphaned
    held: Held
    slow: frozenset[HostId]

    def cost(self, host: HostId) -> TableCost:
        """g of a host."""
        factor = SLOW if host in self.slow else 1.0
        return TableCost(values=tuple(factor * PRIOR.at(n) for n in range(1, ORPHANS + 1)))


def case(seed: int, *, copied: bool, slow_links: bool) -> Case:
    """Six workers at 40 % on average; the last one is lost."""
    random = np.random.default_rng(seed)
    names = tuple(WorkerId(f"w{place}") for place in range(WORKERS))
    survivors = workers_alone(names[:-1])
    each = 40.0 / ORPHANS
    load = each * random.uniform(0.5, 1.5, ORPHANS)
    owner = np.repeat(np.arange(WORKERS - 1), ORPHANS)
    count = len(owner)
    partitions = np.arange(ORPHANS, ORPHANS + count)
    loads, sizes = each * random.uniform(0.9, 1.1, count), np.full(count, 10 * MB)
    kept = owned_table(APP, OPERATOR, names[:-1], partitions, owner, loads, sizes)
    size = random.integers(1, 21, ORPHANS) * MB
    nobody = np.zeros(ORPHANS, np.int64)
    orphans = owned_table(APP, OPERATOR, names[-1:], np.arange(ORPHANS), nobody, load, size)
    copies = {
        KeyGroup(APP, OPERATOR, int(at)): {names[random.integers(WORKERS - 1)]: float(random.uniform(0.05, 0.6))}
        for at in random.choice(ORPHANS, ORPHANS // 3, replace=False)
    }
    slow = frozenset(survivors[at].host for at in random.choice(WORKERS - 1, 2, replace=False))
    return Case(
        view=PlannableView(app=APP, start_s=0.0, end_s=10.0, workers=survivors, key_groups=kept, flows={}),
        orphaned=Orphaned(table=orphans, owners=names[-1:], inherited={}, state={}),
        held=Held(on_disk=copies if copied else {}),
        slow=slow if slow_links else frozenset(),
    )


def targets_of(made: Case, *, own: bool) -> tuple[dict[KeyGroup, WorkerId], float]:
    """The target of each orphan, and how far the farthest worker then is from the mean (pp)."""
    hosts = [worker.host for worker in made.view.workers]
    learned = LearnedRestores(of_host={host: made.cost(host) for host in hosts}, most_at_once=SLOTS)
    restores = Restores(
        learned=learned, held=made.held, cores=dict.fromkeys(hosts, float(SLOTS)), band=BAND if own else 0.0
    )
    found = place_orphans(
        made.view, made.orphaned, HostsSeen(), {}, operations=OPERATIONS, restores=restores if own else None
    )
    assert found is not None
    used = np.array(list(found.busy_pct.values()))
    return dict(found.targets), float(np.abs(used - used.mean()).max())


def problem(made: Case, targets: dict[KeyGroup, WorkerId], slots: int) -> GivenProblem:
    """The restores with these targets, in the order of the list."""
    learned = LearnedRestores()
    hosts = [worker.host for worker in made.view.workers]
    place = {worker.id: at for at, worker in enumerate(made.view.workers)}
    sizes = dict(zip(made.orphaned.table.owners, made.orphaned.table.state_bytes.tolist(), strict=True))
    return GivenProblem(
        server=np.array([place[targets[each]] for each in sizes], np.int64),
        size=np.array(
            [learned.size(made.held.lacking(each).get(targets[each], 1.0) * size) for each, size in sizes.items()]
        ),
        local=np.zeros(len(sizes), np.bool_),
        slots=np.full(len(hosts), slots),
        costs=[made.cost(host) for host in hosts],
        running=[[] for _ in hosts],
    )


def listed(asked: GivenProblem, at_once: int) -> float:
    """Seconds with so many at a time on each host, in the order of the list.

    All that run share what their host can do, also while fewer are left: then each is faster.
    """
    ends = []
    for server in range(len(asked.slots)):
        waiting = asked.size[asked.server == server].tolist()
        running: list[float] = []
        now = 0.0
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
            rate = asked.costs[server].at(len(running))
            least = min(running)
            now += least * rate
            running = [left - least for left in running if left - least > 1e-9]
        ends.append(now)
    return LearnedRestores().unit_s * max(ends)


def scheduled(made: Case, targets: dict[KeyGroup, WorkerId]) -> float:
    """Seconds with the number at a time, and in the order, that DynDL decides."""
    asked = problem(made, targets, SLOTS)
    found = solve_given(asked)
    ends = []
    for server in range(len(asked.slots)):
        mine = np.flatnonzero(asked.server == server)
        order = mine[np.argsort(found.start[mine], kind="stable")]
        one = GivenProblem(
            server=np.zeros(len(order), np.int64),
            size=asked.size[order],
            local=np.zeros(len(order), np.bool_),
            slots=asked.slots[:1],
            costs=[asked.costs[server]],
            running=[[]],
        )
        ends.append(listed(one, int(found.slots[server])))
    return max(ends)


def bound(made: Case) -> float:
    """Seconds that no targets can beat, by the model."""
    hosts = [worker.host for worker in made.view.workers]
    learned = LearnedRestores()
    place = {worker.id: at for at, worker in enumerate(made.view.workers)}
    rows = list(zip(made.orphaned.table.owners, made.orphaned.table.state_bytes.tolist(), strict=True))
    shape = (0, len(hosts))
    asked = TargetsProblem(
        server=np.arange(len(hosts)),
        size=np.array([learned.size(size) for _, size in rows]),
        less=[
            {place[name]: learned.size(share * size) for name, share in made.held.lacking(each).items()}
            for each, size in rows
        ],
        pace=np.array([pace_of(made.cost(host), SLOTS) for host in hosts]),
        alone=np.array([made.cost(host).at(1) for host in hosts]),
        running=np.zeros(len(hosts)),
        demand=np.zeros((0, len(rows))),
        per_unit=np.zeros(shape),
        used=np.zeros(shape),
        least=np.zeros(shape),
        most=np.zeros(shape),
        given=np.zeros(len(rows), np.int64),
    )
    return learned.unit_s * targets_bound(asked)


def compare(seeds: int, *, copied: bool, slow_links: bool) -> None:
    """Print one line per method."""
    cases = [case(seed, copied=copied, slow_links=slow_links) for seed in range(seeds)]
    given = [targets_of(made, own=False) for made in cases]
    own = [targets_of(made, own=True) for made in cases]
    rows: dict[str, Callable[[int], float]] = {
        "list": lambda at: listed(problem(cases[at], given[at][0], SLOTS), ORPHANS),
        "two at a time": lambda at: listed(problem(cases[at], given[at][0], SLOTS), 2),
        "order": lambda at: scheduled(cases[at], given[at][0]),
        "own targets": lambda at: scheduled(cases[at], own[at][0]),
        "bound": lambda at: bound(cases[at]),
    }
    parts = [*(["copies"] if copied else []), *(["slow links"] if slow_links else [])]
    print(f"{' and '.join(parts) or 'neither copies nor slow links'}, {seeds} seeds")
    for name, seconds in rows.items():
        found = np.array([seconds(at) for at in range(seeds)])
        away = {"own targets": own, "bound": None}.get(name, given)
        distance = "" if away is None else f"{np.median([each for _, each in away]):6.1f} pp"
        low, middle, high = np.percentile(found, [10, 50, 90])
        print(f"{name:24} {middle:10.2f} s   {low:6.2f} .. {high:6.2f} s   {distance}", flush=True)


def clock() -> None:
    """Print the CPU time of the search, with the operations of the loop and with many."""
    print("key groups  workers  operations      given   found   bound   CPU time")
    for key_groups, workers in ((24, 5), (1_000, 20), (1_000, 100), (100_000, 100)):
        for operations in (IN_THE_LOOP, 10 * IN_THE_LOOP):
            random = np.random.default_rng(key_groups)
            size = random.integers(1, 21, key_groups).astype(np.float64)
            load = random.uniform(0.5, 1.5, key_groups) * 40.0 * workers / key_groups
            least_used = np.argsort(-load)
            given = np.empty(key_groups, np.int64)
            given[least_used] = np.arange(key_groups) % workers
            used = np.bincount(given, load, workers)
            shape = (1, workers)
            pace = np.where(np.arange(workers) % 3 == 0, SLOW, 1.0)
            asked = TargetsProblem(
                server=np.arange(workers),
                size=size,
                less=[{} for _ in range(key_groups)],
                pace=pace,
                alone=pace,
                running=np.zeros(workers),
                demand=load[None],
                per_unit=np.ones(shape),
                used=np.zeros(shape),
                least=np.full(shape, used.mean() - BAND),
                most=np.full(shape, used.mean() + BAND),
                given=given,
            )
            began = time.process_time()
            found = choose_targets(asked, stop=Never(), operations=operations)
            seconds = time.process_time() - began
            assert found.makespan == makespan_of(asked, found.worker)
            print(
                f"{key_groups:10,} {workers:8} {operations:11,} {makespan_of(asked, given):10.0f} "
                f"{found.makespan:7.0f} {found.lower_bound:7.0f} {1000 * seconds:8.0f} ms",
                flush=True,
            )


def main() -> None:
    """Compare the ways to restore, or measure the search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--time", action="store_true", help="show the CPU time of choosing targets")
    chosen = parser.parse_args()
    if chosen.time:
        clock()
    else:
        for copied, slow_links in ((False, False), (True, False), (True, True)):
            compare(chosen.seeds, copied=copied, slow_links=slow_links)


if __name__ == "__main__":
    main()
