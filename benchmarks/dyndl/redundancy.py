"""After the loss of one of six hosts: how long do key groups lack a standby?  By the model of what restores cost.

    PYTHONPATH=. python benchmarks/dyndl/redundancy.py [--layouts N]

Six hosts with a worker each own 20 key groups each, with log-normal loads and states (median 10 MB), and every key
group has one standby.  One host is lost: the standbys of its key groups own these now, and about 48 key groups need a
new standby.  Each host restores four at a time at most.  Up to two hosts are half as fast, and in half of the layouts a
third of the new standbys have a copy on the disk of some worker, which lacks 5 to 60 %.  Costs are those before
anything is measured.

- *largest first*: the standbys that lead to the least load after a further loss (N-1), as chosen by loads alone.
- *warm sooner*: the same, but no load after a loss may be higher by more than 1 % of a worker; what the loop does.
- *alone*: without regard to loads, by the same search.
- *sizes*: without regard to loads, by DynDLOff and single moves with the sizes of tasks (`sizes.py`).  It knows
  copies only as whole ones, so it counts all restores as remote.  What it puts beside an owner goes where it ends
  first.

The restores of a host begin in the order of their size, and share what it can do while they run.  Shown are seconds,
how far above the bound, in how many layouts by 10 % or more, and how much higher the worst load after a loss is.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from benchmarks.dyndl.sizes import SizedProblem, solve_sized
from benchmarks.standbys import instance
from trimtab_controller.decider.memory.standby_choice import SEARCH
from trimtab_controller.decider.window.restores import TARGET_OPERATIONS
from trimtab_controller.execution.restore_costs import PRIOR, LearnedRestores
from trimtab_models.dyndl.problem import RemoteTaskCosts, ScheduleProblem
from trimtab_models.dyndl.targets import pace_of
from trimtab_models.instances.scheduling import TableCost
from trimtab_models.solving import Infeasible, Never
from trimtab_models.standbys.problem import UNPLACED, Ints, StandbyProblem, evaluate
from trimtab_models.standbys.restoring import RestoreTimes, restored_sooner
from trimtab_models.standbys.solve import solve

HOSTS, EACH, SLOTS, SLOW = 6, 20, 4, 2.0
MB = 1e6
LEARNED = LearnedRestores()
METHODS = ("largest first", "warm sooner", "alone", "sizes")
ANY_LOAD = 1e6


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The survivors, what they lack, and what restores take there; `factor` = how many times longer on each host."""

    problem: StandbyProblem
    times: RestoreTimes
    factor: tuple[float, ...]

    @property
    def copies(self) -> Mapping[int, Mapping[int, float]]:
        """Sizes where a part of the state is there."""
        return self.times.less

    def cost(self, host: int) -> TableCost:
        """g of a host."""
        return TableCost(values=tuple(self.factor[host] * PRIOR.at(n) for n in range(1, SLOTS + 1)))


def layout(seed: int) -> Layout:
    """The cluster after the loss of its last host."""
    random = np.random.default_rng(seed)
    before = instance(HOSTS, HOSTS * EACH, seed, balanced=True)
    state = np.clip(random.lognormal(np.log(10 * MB), 1, HOSTS * EACH), 0.1 * MB, 200 * MB)
    placed = solve(replace(before, state_bytes=state)).assignment
    lost = HOSTS - 1
    mine = before.owner == lost
    owner = np.where(mine, placed[:, 0], before.owner)
    present = np.where(mine[:, None] | (placed == lost), UNPLACED, placed)
    gaps = np.flatnonzero(present[:, 0] == UNPLACED)
    slow = random.choice(lost, int(random.integers(0, 3)), replace=False)
    factor = np.where(np.isin(np.arange(lost), slow), SLOW, 1.0)
    copies: dict[int, dict[int, float]] = {}
    if random.random() < 0.5:
        for gap in random.choice(gaps, len(gaps) // 3, replace=False).tolist():
            holder = int(random.choice([worker for worker in range(lost) if worker != owner[gap]]))
            copies[gap] = {holder: LEARNED.size(float(random.uniform(0.05, 0.6)) * state[gap])}
    problem = replace(
        before,
        owner=owner,
        state_bytes=state,
        capacity=before.capacity[:lost],
        removing=before.removing[:lost],
        levels=before.levels[:, :lost],
        present=present,
        limit=np.zeros((0, lost)),
    )
    made = Layout(
        problem=problem,
        times=RestoreTimes(
            server=np.arange(lost),
            size=np.array([LEARNED.size(each) for each in state.tolist()]),
            less=copies,
            pace=np.zeros(0),
            alone=np.zeros(0),
            running=np.zeros(lost),
        ),
        factor=tuple(factor.tolist()),
    )
    costs = [made.cost(host) for host in range(lost)]
    pace, alone = np.array([pace_of(each, SLOTS) for each in costs]), np.array([each.at(1) for each in costs])
    return replace(made, times=replace(made.times, pace=pace, alone=alone))


def seconds(made: Layout, assignment: Ints) -> float:
    """Until all are warm: each host begins with its largest restores, and those that run share what it can do."""
    ends = []
    for host in range(HOSTS - 1):
        new = np.flatnonzero((assignment[:, 0] == host) & (made.problem.present[:, 0] == UNPLACED)).tolist()
        waiting = sorted(made.copies.get(each, {}).get(host, float(made.times.size[each])) for each in new)
        running: list[float] = []
        now = 0.0
        while waiting or running:
            while waiting and len(running) < SLOTS:
                running.append(waiting.pop())
            least, rate = min(running), made.cost(host).at(len(running))
            now += least * rate
            running = [left - least for left in running if left - least > 1e-9]
        ends.append(now)
    return LEARNED.unit_s * max(ends)


def by_sizes(made: Layout, assignment: Ints) -> Ints:
    """The new standbys where `sizes.py` puts them; those beside their owner then go where they end first."""
    gaps = np.flatnonzero(made.problem.present[:, 0] == UNPLACED)
    hosts, size = HOSTS - 1, made.times.size[gaps]
    base = ScheduleProblem(
        core_load=np.zeros(hosts * SLOTS),
        server_of=np.repeat(np.arange(hosts), SLOTS),
        replicas=tuple(() for _ in gaps),
        costs=RemoteTaskCosts([made.cost(host) for host in range(hosts)]),
    )
    endless, nothing = np.full(hosts, np.inf), np.zeros(len(gaps))
    found = solve_sized(SizedProblem(base=base, size=size, egress=endless, memory=endless, need=nothing), stop=Never())
    assert not isinstance(found, Infeasible)
    result = assignment.copy()
    result[gaps, 0] = base.server_of[found.core]
    ends = made.times.pace * np.bincount(result[gaps, 0], size, hosts)
    beside = gaps[result[gaps, 0] == made.problem.owner[gaps]]
    for gap in beside[np.argsort(-made.times.size[beside])].tolist():
        takes, owner = made.times.size[gap] * made.times.pace, made.problem.owner[gap]
        ends[owner] -= takes[owner]
        result[gap, 0] = int(np.where(np.arange(hosts) == owner, np.inf, ends + takes).argmin())
        ends[result[gap, 0]] += takes[result[gap, 0]]
    return result


def measured(seed: int) -> tuple[Layout, dict[str, tuple[float, float]], float]:
    """Seconds and worst load of each method (percent of a worker, above the first), and the bound in seconds."""
    made = layout(seed)
    problem, given = made.problem, solve(made.problem, params=SEARCH).assignment
    sooner = restored_sooner(problem, given, made.times, stop=Never(), operations=TARGET_OPERATIONS)
    alone = restored_sooner(problem, given, made.times, stop=Never(), operations=TARGET_OPERATIONS, slack=ANY_LOAD)
    found = zip(METHODS, (given, sooner.assignment, alone.assignment, by_sizes(made, given)), strict=True)
    worst = evaluate(problem, given).worst
    results = {name: (seconds(made, each), evaluate(problem, each).worst - worst) for name, each in found}
    return made, results, sooner.lower_bound * LEARNED.unit_s


def main() -> None:
    """Print a table of all layouts, and of those with and without copies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", type=int, default=200)
    rows = [measured(seed) for seed in range(parser.parse_args().layouts)]
    for copies, which in ((None, "all"), (False, "without copies"), (True, "with copies")):
        chosen = [row for row in rows if copies is None or bool(row[0].copies) is copies]
        print(f"{which}: {len(chosen)} layouts")
        for name in METHODS:
            took = np.array([results[name][0] for _, results, _ in chosen])
            above = 100.0 * (took / np.array([bound for _, _, bound in chosen]) - 1.0)
            low, middle, high = np.percentile(above, [10, 50, 90])
            load = np.median([results[name][1] for _, results, _ in chosen])
            print(
                f"  {name:14} {np.median(took):6.1f} s, {middle:5.1f} % above the bound ({low:.1f} .. {high:.1f}), "
                f"10 % or more in {(above >= 10.0).sum()}; worst load {load:+.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
