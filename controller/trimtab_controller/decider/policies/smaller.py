"""Which workers may leave, so that the smaller cluster carries the load.

The rule: with the fewest workers that may stay,

1. the utilisation is at most the target,
2. the key groups can be spread so that no worker is above `max_utilisation`,
3. if the app has standbys: after the loss of any one host the survivors, evenly loaded, are at most at
   what they have (the N-1 bound), and there are enough hosts for owner and standbys;
4. the disks of the hosts that remain can take the state of those that leave, and what these follow (`disks_suffice`);
5. of the workers that rules allow for key groups enough remain for their load, their owner and their standbys.

Rule 2 is decided by a *potential plan* (Madsen et al. 2017, Algorithm 1, step b): the solver's plan for the smaller
cluster with free moves, which knows rules, hosts and what parting key groups costs (`solves`).  Until it has answered,
and where it gives no answer, a sufficient condition stands in, which is one pass over the key groups (`can_be_spread`).
What collocation is foreseen to save does not count for a smaller cluster, what parting costs does.

The potential plan of the present cluster says what collocation would save.  Where the solver gives none, a pass over
the pairs does (`potential_of`).  Pairs that stand out are put together, those first that are together now, then the
others by what they save, as long as their part stays small enough for a worker (step 2 and 3 of ALBIC, with whole parts
instead of cuts).  A plan counts only if its parts can be spread over the workers; else smaller parts are tried, as
ALBIC lowers maxPL.  Which worker a part goes to does not matter for the size of the app.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.policies.size_facts import Pool, SizedWorker, SizeFacts
from trimtab_controller.decider.values.scaling import ScalingSettings
from trimtab_controller.decider.window.collocation import MAX_FLOWS, SCORE_FACTOR, costs_of_flows, flows_of
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE, Floats, Integers
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_models.albic.scores import scored_among
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.wording import first_few

ROUNDING = 1e-9
LEAVE_AT_MOST = 0.6
"""Share of an app's workers that leave in one step at most, but one in any case: Flink's `scale-down.max-factor`."""
PARTS = (1.0, 0.5, 0.25, 0.125)
"""The largest part, as a share of what the smallest worker may carry; tried in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leavers:
    """The workers to drain, the cheapest to empty first; if there are none, why not.

    `remain` = the workers for which the last potential plan was needed; None: for none.
    """

    workers: tuple[SizedWorker, ...] = ()
    obstacle: str = ""
    remain: frozenset[WorkerId] | None = None


def leavers(facts: SizeFacts, settings: ScalingSettings) -> Leavers:
    """The most workers that may leave in one step."""
    staying = facts.staying
    most = min(max(1, int(len(staying) * LEAVE_AT_MOST)), len(staying) - settings.min_workers)
    candidates = cheapest(facts)
    if not candidates:
        return Leavers(obstacle=why_none(facts))
    chosen = _within_target(facts, settings, candidates, most)
    obstacle = "a smaller cluster would be above the target" if most > 0 else "min_workers is reached"
    remain = None
    while chosen:
        remain = facts.remaining({worker.id for worker in chosen})
        obstacle = _obstacle(facts, settings, chosen, remain)
        if not obstacle:
            return Leavers(workers=tuple(chosen), remain=remain)
        chosen = chosen[: len(chosen) // 2]
    return Leavers(obstacle=obstacle, remain=remain)


def to_ask(facts: SizeFacts, remain: frozenset[WorkerId]) -> bool:
    """Whether the solver can be asked for the potential plan on these workers, and was not."""
    return facts.asks and bool(remain) and remain not in facts.potentials


def solves(facts: SizeFacts, settings: ScalingSettings, remain: frozenset[WorkerId]) -> bool | None:
    """Whether the solver's potential plan keeps these workers at or below `max_utilisation`; None: it does not tell."""
    plan = facts.potentials.get(remain)
    if plan is None:
        return None
    most = {worker.id: settings.max_utilisation * worker.capacity - facts.fixed for worker in facts.workers}
    fits = plan.complete and all(load <= most[worker] + ROUNDING for worker, load in plan.loads.items())
    return fits if fits or plan.in_time else None


def rests_on(facts: SizeFacts, *, solver: bool) -> str:
    """Which potential plan the size rests on: the solver's, or that of the pass that stands in for it."""
    if solver:
        return "; potential plan: solver"
    return f"; potential plan: one pass{', as the solver gave no answer' if facts.potentials else ''}"


def allowed_distance(facts: SizeFacts, settings: ScalingSettings, remain: frozenset[WorkerId]) -> float:
    """The load distance (pp) up to which none of these workers is above `max_utilisation`."""
    workers = [worker for worker in facts.workers if worker.id in remain]
    highest = min(settings.max_utilisation - facts.fixed / worker.capacity for worker in workers)
    mean = float(facts.loads.sum()) / sum(worker.capacity for worker in workers)
    return PERCENT_PER_CORE * max(0.0, highest - mean)


def why_none(facts: SizeFacts) -> str:
    """Why none of the workers, or no other one, can leave."""
    tied = [worker.id for worker in facts.staying if worker.removable and worker.tied]
    return f"rules keep key groups on {first_few(tied)}" if tied else "no agent could start any of them again"


def cheapest(facts: SizeFacts) -> list[SizedWorker]:
    """The workers that can leave, those with the least state per core first."""
    able = [worker for worker in facts.staying if worker.removable and not worker.tied]
    return sorted(able, key=lambda worker: (worker.state_bytes / worker.capacity, worker.id))


def _within_target(
    facts: SizeFacts, settings: ScalingSettings, candidates: Sequence[SizedWorker], most: int
) -> list[SizedWorker]:
    """As many of the candidates as the target allows, `most` at most."""
    chosen: list[SizedWorker] = []
    capacity, count = facts.capacity, len(facts.staying)
    for worker in candidates:
        left = capacity - worker.capacity
        if len(chosen) >= most or count <= 1:
            break
        if facts.demand + facts.fixed * (count - 1) <= settings.target_utilisation * left + ROUNDING:
            chosen.append(worker)
            capacity, count = left, count - 1
    return chosen


def _obstacle(
    facts: SizeFacts, settings: ScalingSettings, gone: Sequence[SizedWorker], remain: frozenset[WorkerId]
) -> str:
    """Why these workers may not leave; empty if they may, unless the solver that is still to be asked says no."""
    names = {worker.id for worker in gone}
    left = [worker for worker in facts.staying if worker.id not in names]
    size = f"{len(left)} workers" if len(left) > 1 else "one worker"
    spread = to_ask(facts, remain) or solves(facts, settings, remain)
    if spread is None:
        room = [settings.max_utilisation * worker.capacity - facts.fixed for worker in left if worker.free]
        spread = can_be_spread(facts.loads, room)
    if not spread:
        return f"{size} could not be balanced below {settings.max_utilisation:.0%}"
    if pool := _pool_too_small(facts, settings, left):
        return f"{size} would be too few for what {' and '.join(pool.rules)} allow"
    if not disks_suffice(facts, left, gone):
        return f"the disks of {size} have no room for the state of those that would leave"
    if not facts.standbys:
        return ""
    hosts: Counter[str] = Counter()
    for worker in left:
        hosts[worker.host] += 1
    needed = min(facts.standbys + 1, len({worker.host for worker in facts.staying}))
    if len(hosts) < needed:
        found = f"{len(hosts)} hosts" if len(hosts) > 1 else "one host"
        return f"{size} would be on {found}, and owners and standbys need {needed}"
    plan = facts.potentials.get(remain)
    parted = 0.0 if plan is None else max(0.0, -plan.saving)
    bound = bound_after_loss(replace(facts, demand=facts.demand + parted), left)
    if bound > 1.0 + ROUNDING:
        return f"{size} would be at {bound:.0%} at least after the loss of a host, above 100%"
    return ""


def _pool_too_small(facts: SizeFacts, settings: ScalingSettings, left: Sequence[SizedWorker]) -> Pool | None:
    """The first pool whose workers that are left cannot carry what must be on them, or cannot be owner and standbys."""
    for pool in facts.pools:
        before = {worker.host for worker in facts.staying if worker.id in pool.workers}
        inside = [worker for worker in left if worker.free and worker.id in pool.workers]
        room = sum(settings.max_utilisation * worker.capacity - facts.fixed for worker in inside)
        hosts = len({worker.host for worker in inside})
        if hosts < min(facts.standbys + 1, len(before)) or pool.demand > room + ROUNDING:
            return pool
    return None


def disks_suffice(facts: SizeFacts, left: Sequence[SizedWorker], gone: Sequence[SizedWorker]) -> bool:
    """Whether the disks of the workers that are left can take what those that go own and follow.

    Sufficient, not necessary: a disk is counted without the largest key group, so that no piece is left over.  What the
    workers follow is not in the view; it counts as evenly spread.
    """
    hosts = {worker.host for worker in left if worker.free}
    if any(host not in facts.disks for host in hosts):
        return True  # a disk that nobody knows limits nothing
    owned = sum(worker.state_bytes for worker in gone)
    followed = facts.standbys * sum(worker.state_bytes for worker in facts.workers) * len(gone) / len(facts.workers)
    largest = max((worker.largest_bytes for worker in facts.workers), default=0)
    return owned + followed <= sum(max(0.0, facts.disks[host] - largest) for host in hosts)


def bound_after_loss(facts: SizeFacts, workers: Sequence[SizedWorker]) -> float:
    """The utilisation of the survivors, evenly loaded, after the worst loss of one host (N-1); 0 with one host."""
    of_host: dict[str, list[SizedWorker]] = {}
    for worker in workers:
        of_host.setdefault(worker.host, []).append(worker)
    if len(of_host) < 2:
        return 0.0
    capacity, count = sum(worker.capacity for worker in workers), len(workers)
    return max(
        (facts.demand + facts.fixed * (count - len(lost))) / (capacity - sum(worker.capacity for worker in lost))
        for lost in of_host.values()
    )


def can_be_spread(loads: Floats, room: Sequence[float]) -> bool:
    """Whether these loads fit on workers with so much room (both in cores).

    Sufficient, not necessary.  With the share m of all room taken, a load of at most (1 - m) * the smallest room always
    fits on the worker with the smallest share, which is at m or below.  So only larger loads need a place of their own,
    the heaviest first (LPT); there are at most m / (1 - m) of them per worker.
    """
    total = float(loads.sum())
    if not room or min(room) <= 0.0:
        return not total
    share = total / sum(room)
    if share > 1.0 + ROUNDING:
        return False
    small = (1.0 - share) * min(room)
    used = [(0.0, each) for each in room]
    heapq.heapify(used)
    for load in sorted(loads[loads > small + ROUNDING].tolist(), reverse=True):
        taken, each = heapq.heappop(used)
        taken += load / each
        if taken > 1.0 + ROUNDING:
            return False
        heapq.heappush(used, (taken, each))
    return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PotentialPlan:
    """A potential plan: `saving` = cores less than now, `loads` = of its parts, in cores.

    `most` = cores that collocation could save at all.
    """

    saving: float
    loads: Floats
    most: float


def potential_of(view: SmoothedView, room: Sequence[float]) -> PotentialPlan | None:
    """The potential plan of an app on workers that may each carry so many cores; None where nothing can be saved.

    It saves nothing where the parts cannot be spread.
    """
    if not view.remote_costs or not room or not 0 < len(view.flows) <= MAX_FLOWS:
        return None
    flows, table = flows_of(view), view.owned
    sending, receiving = (flows.rate * costs for costs in costs_of_flows(view, flows))
    pairs = scored_among(table.operator, flows.source, flows.target, flows.rate, SCORE_FACTOR)
    apart = table.owner[flows.source] != table.owner[flows.target]
    load = table.load / PERCENT_PER_CORE
    most = float((sending + receiving)[apart].sum())
    if not most > 0.0:
        return None
    here = table.owner[pairs.first] == table.owner[pairs.second]
    worth = _between(pairs.first, pairs.second, flows.source, flows.target, sending + receiving, len(table))
    order, saved = np.lexsort((-worth, ~here)), np.where(here, 0.0, worth)
    for share in PARTS:
        part = _merged(pairs.first[order], pairs.second[order], load, saved[order], share * min(room))
        local = part[flows.source] == part[flows.target]
        change = np.where(local, 0.0, 1.0) - apart  # +1 for a flow that is parted, -1 for one that becomes local
        change[~local & ~apart] = 0.0  # parts that are on one worker now may stay there
        after = load + np.bincount(flows.source, change * sending, len(load))
        after += np.bincount(flows.target, change * receiving, len(load))
        loads = np.bincount(part, np.maximum(0.0, after)).astype(np.float64)
        saving = -float((change * (sending + receiving)).sum())
        if saving > 0.0 and can_be_spread(loads, room):
            return PotentialPlan(saving=saving, loads=loads, most=most)
    return PotentialPlan(saving=0.0, loads=load, most=most)


def _between(
    first: Integers, second: Integers, source: Integers, target: Integers, worth: Floats, count: int
) -> Floats:
    """(P,) the sum of `worth` over the flows of each pair, in both directions."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys, at = np.unique(low * count + high, return_inverse=True)
    sums = np.bincount(at, worth, len(keys)).astype(np.float64)
    found: Floats = sums[np.searchsorted(keys, first * count + second)]
    return found


def _merged(first: Integers, second: Integers, load: Floats, saved: Floats, most: float) -> Integers:
    """(K,) the part of each key group, when pairs are merged in this order while no part is above `most` cores.

    `saved` (P,) = cores that go when the pair comes together.
    """
    parent = list(range(len(load)))
    size = load.tolist()

    def root(each: int) -> int:
        while parent[each] != each:
            parent[each] = parent[parent[each]]
            each = parent[each]
        return each

    for one, other, less in zip(first.tolist(), second.tolist(), saved.tolist(), strict=True):
        a, b = root(one), root(other)
        if a != b and size[a] + size[b] - less <= most:
            parent[b] = a
            size[a] += size[b] - less
    roots = np.array([root(each) for each in range(len(load))], np.int64)
    part: Integers = np.unique(roots, return_inverse=True)[1].astype(np.int64)
    return part
