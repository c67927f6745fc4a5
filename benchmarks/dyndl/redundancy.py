"""prototype"""

import argparse, itertools, time
import numpy as np
from benchmarks.standbys import instance
from dataclasses import replace
from trimtab_models.standbys.problem import UNPLACED, StandbyBudget, StandbyProblem, evaluate, is_new
from trimtab_models.standbys.solve import StandbyParams, solve, kept_standbys
from trimtab_models.dyndl.targets import TargetsProblem, choose_targets, targets_bound, pace_of, makespan_of
from trimtab_models.dyndl.sizes import SizedProblem, solve_sized, evaluate_sized
from trimtab_models.dyndl.problem import ScheduleProblem, RemoteTaskCosts
from trimtab_models.dyndl.given import GivenProblem, solve_given
from trimtab_models.instances.scheduling import AffineCost, TableCost
from trimtab_models.solving import Never
from trimtab_controller.execution.restore_costs import PRIOR, LearnedRestores
from trimtab_controller.decider.memory.standbys import ROUND
from trimtab_controller.decider.memory.standby_choice import SEARCH

HOSTS, EACH, SLOTS, SLOW = 6, 20, 4, 2.0
MB = 1e6
L = LearnedRestores()


def fluid(sizes, cost, at_once):
    waiting, running, now = list(sizes), [], 0.0
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(waiting.pop(0))
        rate = cost.at(len(running))
        least = min(running)
        now += least * rate
        running = [x - least for x in running if x - least > 1e-9]
    return now


def layout(seed):
    r = np.random.default_rng(seed)
    before = instance(HOSTS, HOSTS * EACH, seed, balanced=True)
    size = np.clip(r.lognormal(np.log(10 * MB), 1, HOSTS * EACH), 0.1 * MB, 200 * MB)
    before = replace(before, state_bytes=size)
    placed = solve(before).assignment
    # lose the last worker
    lost = HOSTS - 1
    owner = before.owner.copy()
    mine = owner == lost
    owner[mine] = placed[mine, 0]
    present = placed.copy()
    present[mine] = UNPLACED
    present[present == lost] = UNPLACED
    after = replace(
        before,
        owner=owner,
        capacity=before.capacity[:-1],
        removing=before.removing[:-1],
        levels=before.levels[:, :-1],
        present=present,
        limit=np.zeros((0, HOSTS - 1)),
        budget=StandbyBudget(),
    )
    slow = r.choice(HOSTS - 1, int(r.integers(0, 3)), replace=False)
    factor = np.where(np.isin(np.arange(HOSTS - 1), slow), SLOW, 1.0)
    gaps = np.flatnonzero(present[:, 0] == UNPLACED)
    copies = {}
    if r.random() < 0.5:
        for k in r.choice(gaps, len(gaps) // 3, replace=False):
            others = [w for w in range(HOSTS - 1) if w != owner[k]]
            copies[int(k)] = {int(r.choice(others)): float(r.uniform(0.05, 0.6))}
    return after, gaps, factor, copies


def costs(factor):
    return [TableCost(values=tuple(f * PRIOR.at(n) for n in range(1, 200))) for f in factor]


def targets(after, assignment, gaps, factor, copies, slack):
    W = len(after.capacity)
    gc = costs(factor)
    heir = assignment[gaps, 0]
    rest = assignment.copy()
    rest[gaps, 0] = UNPLACED
    R = after.domains
    inh = after.load - after.follow
    dom = after.domain[after.owner]
    demand = np.tile(after.follow[gaps], (R, 1))
    demand[dom[gaps], np.arange(len(gaps))] += inh[gaps]
    used = np.tile(after.loads(rest), (R, 1))
    pl = np.flatnonzero(rest[:, 0] != UNPLACED)
    np.add.at(used, (dom[pl], rest[pl, 0]), inh[pl])
    worst = evaluate(after, assignment).worst
    for d in range(R):
        used[d, after.domain == d] = -np.inf  # own loss does not count
    used = np.where(np.isfinite(used), used, -1e12)
    most = np.full((R, W), worst + slack)
    allowed = np.array([~after.beside(int(k)) & ~after.removing for k in gaps])
    return TargetsProblem(
        server=np.arange(W),
        size=np.array([L.size(after.state_bytes[k]) for k in gaps]),
        less=[{w: L.size(s * after.state_bytes[k]) for w, s in copies.get(int(k), {}).items()} for k in gaps],
        pace=np.array([pace_of(c, SLOTS) for c in gc]),
        alone=np.array([c.at(1) for c in gc]),
        running=np.zeros(W),
        demand=demand,
        per_unit=np.tile(1 / after.capacity, (R, 1)),
        used=used / after.capacity,
        least=np.full((R, W), -np.inf),
        most=most,
        given=heir,
        allowed=allowed,
    )


def sim(p, worker, factor, order="largest", batch=1):
    gc = costs(factor)
    ends = []
    for s in range(len(p.pace)):
        mine = [t for t in range(len(worker)) if worker[t] == s]
        size = sorted((p.one(t, s) for t in mine), reverse=True)
        if batch > 1:
            size = [sum(x - 1 for x in size[i : i + batch]) + 1 for i in range(0, len(size), batch)]
        ends.append(fluid(size, gc[s], SLOTS))
    return max(ends) * L.unit_s


def sized(p, factor):
    W = len(p.pace)
    # remote task w*g(R_s): by concurrency: cap at slots
    gc = [TableCost(values=tuple(f * PRIOR.at(n) for n in range(1, SLOTS + 1))) for f in factor]
    base = ScheduleProblem(
        core_load=np.zeros(W * SLOTS),
        server_of=np.repeat(np.arange(W), SLOTS),
        replicas=tuple(() for _ in p.size),
        costs=RemoteTaskCosts(gc),
    )
    sp = SizedProblem(
        base=base,
        size=p.size,
        egress=np.full(W, np.inf),
        memory=np.full(W, np.inf),
        need=np.zeros(len(p.size)),
        allowed=p.allowed,
    )
    return solve_sized(sp, stop=Never())


rows = []
t_t = t_s = 0
for seed in range(200):
    after, gaps, factor, copies = layout(seed)
    found = solve(after, params=SEARCH)
    a = found.assignment
    if not (a[gaps, 0] != UNPLACED).all():
        print(seed, len(gaps), (a[gaps, 0] == UNPLACED).sum(), np.bincount(a[gaps, 0] + 1), found.score)
        raise SystemExit
    p = targets(after, a, gaps, factor, copies, 1.0)
    base_worst = evaluate(after, a).worst
    out = {"batched": sim(p, p.given, factor, batch=4), "largest": sim(p, p.given, factor)}
    c = time.process_time()
    tg = choose_targets(p, stop=Never())
    t_t += time.process_time() - c
    assert all(p.allowed[t, w] for t, w in enumerate(tg.worker))
    b = a.copy()
    b[gaps, 0] = tg.worker
    assert evaluate(after, b).worst <= base_worst + 1 + 1e-6
    out["targets 1 %"] = sim(p, tg.worker, factor)
    free = choose_targets(replace(p, most=np.full_like(p.most, np.inf)), stop=Never())
    out["targets free"] = sim(p, free.worker, factor)
    b[gaps, 0] = free.worker
    out["free worst"] = evaluate(after, b).worst - base_worst
    c = time.process_time()
    sz = sized(p, factor)
    t_s += time.process_time() - c
    w = sz.core // SLOTS
    out["sized free"] = sim(p, w, factor)
    b[gaps, 0] = w
    out["sized worst"] = evaluate(after, b).worst - base_worst
    out["bound"] = targets_bound(p) * L.unit_s
    out["copies"] = bool(copies)
    out["slow"] = int((factor > 1).sum())
    out["gaps"] = len(gaps)
    rows.append(out)
print("cpu", t_t / 200, t_s / 200)
for name, sel in {
    "all": lambda r: True,
    "no copies, alike": lambda r: not r["copies"] and not r["slow"],
    "copies": lambda r: r["copies"],
    "slow": lambda r: r["slow"],
}.items():
    rs = [r for r in rows if sel(r)]
    print(name, len(rs), "gaps", np.median([r["gaps"] for r in rs]))
    bd = np.array([r["bound"] for r in rs])
    for m in ("batched", "largest", "targets 1 %", "targets free", "sized free"):
        x = np.array([r[m] for r in rs]) / bd
        print(
            f"  {m:14} {np.median([r[m] for r in rs]):6.1f} s  above bound {100 * (np.median(x) - 1):5.1f} % (p10 {100 * (np.percentile(x, 10) - 1):.1f} p90 {100 * (np.percentile(x, 90) - 1):.1f}); >=10 %: {(x >= 1.1).sum()}"
        )
    print("  worst + ", np.median([r["free worst"] for r in rs]), np.median([r["sized worst"] for r in rs]))
