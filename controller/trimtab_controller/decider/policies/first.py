"""First placement: where the key groups of an app that has just been started for the first time go.

Faust has assigned them by its own rule when the controller first sees them, and the placement adopts that.  If the app
had no state when its first worker started, another placement may follow, as a plan of hand-overs: nothing is lost, no
rebalance takes place, and there is hardly any state to restore yet.  An app that had state, or of which this is not
known, stays as it is.

Candidates are what Faust did; the even scheduler; L/F (locality and fairness, `trimtab_models.placement`), which puts
partitions of the same number of operators that exchange tuples into one worker; and the greedy matching of the Elastic
Allocator (`trimtab_models.elastic.matching`), which evens out CPU and traffic.  Loads, and who sends to whom, are
measured in the first windows.  They are all judged by the load of the fullest worker, in percent of what the rest of
its host leaves it, with what remote tuples cost; while that is unknown, no more tuples become remote.  One of them
takes the place of what Faust did only if it lowers that load by more than noise explains.  Rules hold in all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trimtab_controller.decider.policies.explain import plan_for
from trimtab_controller.decider.values.decision import Adopted, Planned
from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.values.settings import First
from trimtab_controller.decider.window.collocation import loads_foreseen
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE
from trimtab_controller.decider.window.resources import FULL_PCT, filled_by
from trimtab_controller.decider.window.view import UNLIMITED, AppView, PlannableView, SmoothedView, Worker
from trimtab_controller.execution.state import Execution
from trimtab_controller.plan import PlanReason
from trimtab_models.elastic.matching import HEAVY_FROM, NOWHERE, ResourceDemands, match
from trimtab_models.instances.topology import Edge, ParallelOperator, Slot, Topology, topological_order
from trimtab_models.placement import PlacementParams, PlacementResult, Scheduler, job_of, solve
from trimtab_models.solving import Never
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import MAX_MOVING, Placement
from trimtab_protocol.wording import first_few

WINDOWS_FOR_FLOWS = 3
"""How many windows to wait for tuples between key groups; without any, who sends to whom counts as unknown."""
WINDOWS = 20
"""After the time of this many windows the app has state, and what Faust did stays."""
MAX_TRIALS = 5_000_000
"""Trials of a key group on a worker, a second or so; what is left then stays as it was started."""
SAME = 0.01
"""Shares that differ by less count as equal."""
AS_STARTED, ELASTIC = "as started", "elastic"
"""Names of the candidates that are no choice of `[placement] first`."""

Owners = Mapping[KeyGroup, WorkerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementCandidate:
    """A placement of all key groups."""

    name: str
    owners: Owners
    remote: float | None
    """Share of the tuples that go to another worker; None if none were measured."""
    uneven: float
    """Key groups of the fullest worker / its fair share - 1."""
    fullest: float
    """Load of the fullest worker, with what remote tuples cost (percent of its capacity)."""
    moves: int
    """Key groups that have another owner than now."""

    def __str__(self) -> str:
        remote = "unknown" if self.remote is None else f"{self.remote:.0%}"
        return f"{self.name} {self.fullest:.0f} % on the fullest worker, {remote} remote, {self.uneven:.0%} uneven"

    def is_as_good_as(self, other: "PlacementCandidate", first: First, significant_pp: float) -> bool:
        """Whether nothing is gained by the other one, which an operator has named unless `first` is AUTO."""
        if first is First.AUTO:
            return self.fullest <= other.fullest + significant_pp
        remote = (self.remote or 0.0) - (other.remote or 0.0) if first is First.LF else 0.0
        return self.uneven + remote <= other.uneven + SAME


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An app whose first placement has yet to be made, since `began_s`; `due`: by its last window it can be."""

    workers: tuple[WorkerId, ...]
    began_s: float
    windows: int = 0
    seen_s: float = 0.0
    due: bool = False


class FirstPlacements:
    """Adopts what the reports show, and decides on the first placements."""

    def __init__(self, first: First) -> None:
        self._first = first
        self._waiting: dict[AppId, _Waiting] = {}

    def observe(self, view: SmoothedView) -> None:
        """Count a window in which the app has its turn."""
        waiting = self._waiting.get(view.app)
        if waiting is None or view.end_s <= waiting.seen_s:
            return
        if view.end_s - waiting.began_s > WINDOWS * (view.end_s - view.start_s):
            del self._waiting[view.app]
            return
        # All workers are there if none has come or gone since the last window, and none is away.
        workers, windows = _workers(view), waiting.windows + 1
        settled = workers == waiting.workers and not view.fixed and not view.draining
        due = settled and (bool(view.flows) or windows >= WINDOWS_FOR_FLOWS)
        self._waiting[view.app] = _Waiting(workers, waiting.began_s, windows, view.end_s, due)

    def decide(
        self, view: SmoothedView, placement: Placement | None, significant_pp: float
    ) -> Adopted | Planned | None:
        """The adoption or first placement that the app needs; None if neither.

        `significant_pp` = by how much the load of the fullest worker has to fall for a placement of our own choice.
        """
        adopted = drift(view, placement)
        if adopted is None:
            waiting = self._waiting.get(view.app)
            due = waiting is not None and waiting.due
            return _placed(view, candidates(view), self._first, significant_pp) if due else None
        if placement is None and self._waits(view):
            return replace(adopted, detail=f"{adopted.detail}, until its first placement ({self._first}) is made")
        return adopted

    def accepted(self, view: SmoothedView, placement: Placement | None) -> None:
        """Remember that an adoption or a first placement of `decide` is carried out."""
        if placement is not None and drift(view, placement) is not None:
            return
        self._waiting.pop(view.app, None)  # it is made; or what waits under this name is an older app
        if placement is None and self._waits(view):
            self._waiting[view.app] = _Waiting(_workers(view), began_s=view.end_s)

    def _waits(self, view: SmoothedView) -> bool:
        """Whether an app that is adopted gets a first placement of our own later."""
        return view.fresh and self._first is not First.ADOPT


def _workers(view: SmoothedView) -> tuple[WorkerId, ...]:
    return tuple(worker.id for worker in view.workers)


def candidates(view: SmoothedView) -> list[PlacementCandidate]:
    """What runs, by loads, even, and L/F if it is known who sends to whom."""
    owners = view.owners
    named: list[tuple[str, Owners]] = [(AS_STARTED, owners), (ELASTIC, _renamed(view, _matched(view), owners))]
    schedulers = [Scheduler.EVEN, *([Scheduler.LF] if view.flows else [])]
    topology = topology_of(view)
    job = job_of(topology, rates=[_rate(view, edge) for edge in topology.edges] if topology.edges else None)
    workers = dict(zip(topology.slots, _sorted(view), strict=True))
    for scheduler in schedulers:
        found = solve(job, stop=Never(), seed=0, params=PlacementParams(schedulers=(scheduler,)))
        if isinstance(found, PlacementResult):
            slots = [workers[job.slots[slot]] for slot in found.placement]
            instances = [job.name(number).rpartition("#") for number in range(len(slots))]
            placed = {
                KeyGroup(view.app, OperatorId(operator), int(partition)): worker.id
                for (operator, _, partition), worker in zip(instances, slots, strict=True)
            }
            named.append((scheduler.value, _renamed(view, placed, owners)))
    return [_rated(view, name, within_rules(view, placed)) for name, placed in named]


def _matched(view: SmoothedView) -> Owners:
    """Each key group where it leaves CPU, incoming and outgoing traffic most even (Elastic Allocator, algorithm 1)."""
    table, workers = view.owned, view.workers
    on_host = Counter(worker.host for worker in workers)
    room = [view.rooms.get(worker.host, UNLIMITED) for worker in workers]
    limits = np.array(
        [
            [PERCENT_PER_CORE * worker.capacity for worker in workers],
            [each.received / on_host[worker.host] for each, worker in zip(room, workers, strict=True)],
            [each.sent / on_host[worker.host] for each, worker in zip(room, workers, strict=True)],
        ]
    )
    demand = np.vstack((table.load, table.assumed_traffic))
    with np.errstate(divide="ignore"):
        per_unit = FULL_PCT / limits
    busy = float(demand[0].sum() / sum(worker.capacity for worker in workers))
    ceiling = np.full_like(limits, FULL_PCT)
    ceiling[0] = np.inf  # more load than fits has to be somewhere
    demands = ResourceDemands(used=np.zeros_like(limits), demand=demand, per_unit=per_unit, ceiling=ceiling)
    found = match(demands, threshold=max(HEAVY_FROM, 2.0 * busy), operations=MAX_TRIALS, stop=Never()).node
    placed = np.where(found == NOWHERE, view.owner_numbers, found).tolist()
    return {each: workers[place].id for each, place in zip(table.owners, placed, strict=True)}


def within_rules(view: SmoothedView, placed: Owners) -> Owners:
    """The same placement with other workers for the key groups that rules keep off theirs, the least filled ones."""
    if not view.rules:
        return placed
    table, where = view.owned, view.places
    workers = view.numbers
    capacity = np.array([worker.capacity for worker in view.workers])
    rows = dict(zip(table.owners, range(len(table)), strict=True))
    found = {each: table[rows[each]].owner if where.frozen[rows[each]] else owner for each, owner in placed.items()}
    counts = np.bincount([workers[owner] for owner in found.values()], minlength=len(workers)).astype(np.float64)
    for each, owner in found.items():
        row = rows[each]
        if where.frozen[row] or where.may(row, workers[owner]):
            continue
        allowed = where.may(row, np.arange(len(workers)))
        if not allowed.any():
            continue
        target = int(np.where(allowed, counts / capacity, np.inf).argmin())
        counts[workers[owner]] -= 1
        counts[target] += 1
        found[each] = view.workers[target].id
    return found


def topology_of(view: SmoothedView) -> Topology:
    """The operators of an app, its workers as slots, and who sends to whom; an edge that closes a cycle is left out."""
    rates: defaultdict[tuple[str, str], float] = defaultdict(float)
    sizes = {str(name): count for name, count in view.sizes.items()}
    for (source, target), rate in view.flows.items():
        if source.operator != target.operator:
            rates[source.operator, target.operator] += rate
    edges: list[Edge] = []
    for (source_name, target_name), _ in sorted(rates.items(), key=lambda item: (-item[1], item[0])):
        more = [*edges, Edge(source=source_name, target=target_name, keyed=True)]
        if len(topological_order(sizes, more)) == len(sizes):
            edges = more
    ordered = topological_order(sizes, edges)
    return Topology(
        operators=tuple(ParallelOperator(id=name, instances=sizes[name]) for name in ordered),
        edges=tuple(edges),
        slots=tuple(Slot(node=worker.host, port=number) for number, worker in enumerate(_sorted(view))),
    )


def _sorted(view: SmoothedView) -> list[Worker]:
    return sorted(view.workers, key=lambda worker: (worker.host, worker.id))


def _rate(view: SmoothedView, edge: Edge) -> float:
    return sum(
        rate
        for (source, target), rate in view.flows.items()
        if (source.operator, target.operator) == (edge.source, edge.target)
    )


def _renamed(view: SmoothedView, placed: Owners, now: Owners) -> Owners:
    """The same placement with workers of equal capacity exchanged, so that more key groups stay where they are."""
    capacity = {worker.id: worker.capacity for worker in view.workers}
    common = Counter((target, now[each]) for each, target in placed.items())
    names: dict[WorkerId, WorkerId] = {}
    for (target, other), _ in sorted(common.items(), key=lambda item: (-item[1], item[0])):
        if target not in names and other not in names.values() and capacity[target] == capacity[other]:
            names[target] = other
    free = [worker for worker in sorted(capacity) if worker not in names.values()]
    for worker in sorted(capacity.keys() - names.keys()):
        names[worker] = next(each for each in free if capacity[each] == capacity[worker])
        free.remove(names[worker])
    return {each: names[target] for each, target in placed.items()}


def _rated(view: SmoothedView, name: str, owners: Owners) -> PlacementCandidate:
    known = {pair: rate for pair, rate in view.flows.items() if pair[0] in owners and pair[1] in owners}
    total = sum(known.values())
    far = sum(rate for (source, target), rate in known.items() if owners[source] != owners[target])
    table, numbers = view.owned, view.numbers
    placed = np.array([numbers[owners[each]] for each in table.owners], np.int64)
    capacity = np.array([worker.capacity for worker in view.workers])
    counts = np.bincount(placed, minlength=len(capacity))
    loads = loads_foreseen(view, replace(table, workers=tuple(numbers), owner=placed))
    return PlacementCandidate(
        name=name,
        owners=owners,
        remote=far / total if total else None,
        uneven=max(0.0, float((counts / capacity).max() * capacity.sum() / len(owners)) - 1.0),
        fullest=float((np.bincount(placed, loads, len(capacity)) / capacity).max()),
        moves=int((placed != view.owner_numbers).sum()),
    )


def _placed(
    view: SmoothedView, found: list[PlacementCandidate], first: First, significant_pp: float
) -> Adopted | Planned | None:
    """The plan that makes the best candidate, or the one that is configured; an adoption if nothing moves."""
    wanted = [each for each in found if each.name == first.value]
    if first is First.AUTO:  # while it is unknown what a remote tuple costs, no more of them become remote
        most = 1.0 if view.remote_costs else (found[0].remote or 0.0) + SAME
        wanted = [each for each in found if (each.remote or 0.0) <= most]
    best = min(wanted, key=lambda each: (each.fullest, each.moves), default=found[0])
    if found[0].is_as_good_as(best, first, significant_pp):  # as started, but for rules
        best = found[0]
    known = "" if view.flows else "who sends to whom is not known; "
    others = "; ".join(str(each) for each in found if each is not best)
    detail = f"first placement: {known}{best}" + (f" ({others})" if others else "")
    if best.moves > MAX_MOVING:
        detail = f"{detail}, but {best.moves} moves are more than the {MAX_MOVING} of a plan, so it stays as started"
    if not 0 < best.moves <= MAX_MOVING:
        return Adopted(app=view.app, owners=view.placed, detail=detail)
    table, plannable = view.owned, PlannableView.of(view)
    targets = enumerate(best.owners[table[place].key_group] for place in range(len(table)))
    moves = {place: target for place, target in targets if table[place].owner != target}
    filled = filled_by(plannable, moves)
    return Planned(plan=plan_for(plannable, moves, filled, PlanReason.FIRST, detail))


def drift(view: AppView, placement: Placement | None) -> Adopted | None:
    """Adopt the reported owners if they, or the key groups, differ from the placement, or if there is no placement."""
    if placement is None:
        detail = f"first placement: {sum(view.sizes.values())} key groups with their present owners"
        return Adopted(app=view.app, owners=view.placed, detail=detail)
    if (changed := _changed_operators(view, placement)) is not None:
        detail = f"{changed}: the placement follows the reports"
        return Adopted(app=view.app, owners=view.placed, detail=detail)
    owners = view.placed
    other = [
        str(key_group)
        for key_group, owner in owners.items()
        if placement.of(key_group.operator, key_group.partition)[:1] != (owner,)
    ]
    if not other:
        return None
    detail = (
        f"{len(other)} key groups have other owners than placed, such as {other[0]}: the placement follows the reports"
    )
    return Adopted(app=view.app, owners=owners, detail=detail)


def any_drift(views: Mapping[AppId, AppView | NotReady], execution: Execution) -> bool:
    """Whether the placement of any app that is not busy differs from the reports."""
    return any(
        isinstance(view, AppView) and drift(view, execution.placements.get(app)) is not None
        for app, view in views.items()
        if not execution.busy(app)
    )


def _changed_operators(view: AppView, placement: Placement) -> str | None:
    """Which operators of the placement are gone, which are new, and which have another number of key groups."""
    now, before = view.sizes, {operator: len(rows) for operator, rows in placement.owners.items()}
    if now == before:
        return None
    other = [
        f"{operator} ({before[operator]} key groups before, now {now[operator]})"
        for operator in sorted(now.keys() & before.keys())
        if now[operator] != before[operator]
    ]
    parts: dict[str, list[str]] = {
        "gone": sorted(before.keys() - now.keys()),
        "new": sorted(now.keys() - before.keys()),
        "of another size": other,
    }
    return "operators " + "; ".join(f"{what}: {first_few(names)}" for what, names in parts.items() if names)
