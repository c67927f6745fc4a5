"""Simulates rounds: change nodes, measure, plan, move, remove empty draining nodes, evaluate with the true loads.

The policy sees loads that may be noisy and smoothed; the results use the true loads.  Planning is timed by a clock that
is passed in.

The true state of one round: its nodes and key groups, their loads at any placement, and how its nodes change.

Nodes join, drain or are lost independently of the workload.  The changes depend only on the seed, so that all policies
see the same ones.

The policies of simulations by name: all methods for balance documents, the paper's ALBIC, and moving nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Self

import numpy as np

from trimtab_models.albic.cola import solve_cola
from trimtab_models.albic.problem import CollocationProblem, load_index
from trimtab_models.albic.solve import AlbicParams, Strategy
from trimtab_models.albic.solve import solve as solve_albic
from trimtab_models.balance.construct import place_unplaced
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints, infeasible
from trimtab_models.balance.solve import DEFAULT_PARAMS as THOROUGH
from trimtab_models.balance.solve import BalanceParams, solve, solve_flux
from trimtab_models.elastic.solve import solve as solve_elastic
from trimtab_models.solving import Infeasible, Never, StopRule

Policy = Callable[[CollocationProblem, StopRule, int], Ints | Infeasible]
"""(problem, stop, seed) -> (K,) new node of every key group; the same seed gives the same plan."""

QUICK = BalanceParams(tolerance=0.05, effort=Effort(steps=200, steps_per_node=1), polish=Effort(steps=100))
"""For many rounds: far fewer steps than `trimtab solve`, for about the same load distances."""

__all__ = ["POLICIES", "QUICK", "THOROUGH", "Policy", "policy_named"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moment:
    """The true state of one round.

    `problem` = the problem at its own placement; ids of its nodes and key groups, in order.  `at` gives the problem at
    the placement of a simulation.  `alike` (F,) = whether both ends of a flow have the same key, so that it can be
    collocated; None if unknown.
    """

    nodes: tuple[str, ...]
    key_groups: tuple[str, ...]
    problem: CollocationProblem
    alike: Bools | None = None

    def __post_init__(self) -> None:
        balance = self.problem.balance
        if len(self.nodes) != len(balance.capacity) or len(self.key_groups) != len(balance.load):
            raise ValueError("every node and every key group needs an id")
        if self.alike is not None and self.alike.shape != self.problem.rate.shape:
            raise ValueError("alike must have one entry per flow")

    @property
    def home(self) -> Ints:
        """(K,) the placement at which the problem was measured."""
        return self.problem.balance.home

    def at(self, placement: Ints) -> CollocationProblem:
        """The problem, measured at `placement`."""
        return self.problem.moved_to(placement)

    def obtained(self, placement: Ints) -> float:
        """Local share of the flows that can be collocated, by rate; 0 if that is unknown or there are none."""
        if self.alike is None:
            return 0.0
        rate = self.problem.rate
        obtainable = float(rate[self.alike].sum())
        return float(rate[self.alike & ~self.problem.remote(placement)].sum()) / obtainable if obtainable else 0.0


def renumbered(placement: Ints, old: tuple[str, ...], new: tuple[str, ...]) -> Ints:
    """`placement` with positions in `new` instead of `old`; UNPLACED for nodes that are not in `new`."""
    if old is new or old == new:
        return placement
    position = {id_: at for at, id_ in enumerate(new)}
    moved = np.array([*(position.get(id_, UNPLACED) for id_ in old), UNPLACED], np.int64)
    return moved[placement]  # UNPLACED (-1) indexes the last entry


def with_nodes(moment: Moment, nodes: tuple[str, ...], *, pattern: Ints, removing: frozenset[str]) -> Moment:
    """`moment` on other `nodes`; `pattern` = own node that each of them is like, `removing` = draining nodes."""
    balance = moment.problem.balance
    marks = balance.removing[pattern] | np.array([id_ in removing for id_ in nodes], np.bool_)
    changed = replace(
        balance,
        capacity=balance.capacity[pattern],
        limit=balance.limit[:, pattern],
        removing=marks,
        allowed=None if balance.allowed is None else balance.allowed.part(np.arange(len(balance.load)), pattern),
        home=renumbered(balance.home, moment.nodes, nodes),
    )
    problem = moment.problem
    remote = problem.loads(changed.home) if (changed.home == UNPLACED).any() else balance.load
    return replace(moment, nodes=nodes, problem=replace(problem, balance=replace(changed, load=remote)))


class ChangeKind(Enum):
    """What happens to a node."""

    JOIN = "join"
    MARK = "mark"  # draining: it leaves once it is empty
    LOSE = "lose"  # its key groups become unplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A change of `count` nodes at the start of round `round` (the first is 1)."""

    round: int
    kind: ChangeKind
    count: int

    def __post_init__(self) -> None:
        if self.round < 1 or self.count < 1:
            raise ValueError("a change needs a round and a count of 1 or more")


def churn(rounds: int, probability: float, seed: int) -> tuple[NodeChange, ...]:
    """Random changes: in each round a node joins with `probability`; with the same one a node drains or is lost."""
    if not 0 <= probability <= 1:
        raise ValueError("a probability is between 0 and 1")
    random = np.random.default_rng((seed, 1))
    changes = []
    for number in range(1, rounds + 1):
        joins, leaves, lost = random.random(3) < (probability, probability, 0.5)
        if joins:
            changes.append(NodeChange(round=number, kind=ChangeKind.JOIN, count=1))
        if leaves:
            changes.append(NodeChange(round=number, kind=ChangeKind.LOSE if lost else ChangeKind.MARK, count=1))
    return tuple(changes)


class ChangingNodes:
    """The nodes of a workload with all changes so far."""

    def __init__(self, changes: Iterable[NodeChange], seed: int) -> None:
        self._changes = sorted(changes, key=lambda change: change.round)
        self._random = np.random.default_rng((seed, 2))
        self._joined: list[str] = []
        self._marked: set[str] = set()
        self._gone: set[str] = set()

    def enter(self, number: int, moment: Moment) -> Moment:
        """`moment` of round `number`, on the nodes that exist then."""
        for change in self._changes:
            if change.round == number:
                self._apply(change, moment)
        if not moment.nodes or not (self._joined or self._marked or self._gone):
            return moment
        present = np.array([id_ not in self._gone for id_ in moment.nodes], np.bool_)
        own = np.flatnonzero(present)
        joined = [id_ for id_ in self._joined if id_ not in self._gone]
        like = np.zeros(len(joined), np.int64)  # a new node is like the first node of the workload
        nodes = (*(moment.nodes[at] for at in own.tolist()), *joined)
        return with_nodes(
            moment, nodes, pattern=np.concatenate((own, like)), removing=frozenset(self._marked - self._gone)
        )

    def release(self, moment: Moment, placement: Ints) -> int:
        """Remove all draining nodes that are empty in `placement`; returns how many."""
        held: Bools = np.bincount(placement, minlength=len(moment.nodes)) > 0
        empty = np.flatnonzero(moment.problem.balance.removing & ~held).tolist()
        released = {moment.nodes[at] for at in empty} & self._marked
        self._gone |= released
        return len(released)

    def _apply(self, change: NodeChange, moment: Moment) -> None:
        if change.kind is ChangeKind.JOIN:
            first = len(self._joined) + 1
            self._joined += [f"joined-{number}" for number in range(first, first + change.count)]
            return
        removing = moment.problem.balance.removing.tolist()
        own = [id_ for id_, marked in zip(moment.nodes, removing, strict=True) if not marked]
        staying = [id_ for id_ in (*own, *self._joined) if id_ not in self._marked and id_ not in self._gone]
        count = min(change.count, len(staying) - 1)  # the last node stays
        chosen = {staying[at] for at in self._random.choice(len(staying), max(0, count), replace=False).tolist()}
        if change.kind is ChangeKind.MARK:
            self._marked |= chosen
        else:
            self._gone |= chosen


def policy_named(name: str, params: BalanceParams = QUICK) -> Policy:
    """The policy `name` of `POLICIES`, balancing with `params`. Raises KeyError on another name."""
    return partial(POLICIES[name], params)


def _milp(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    result = solve(problem.balance, stop=stop, seed=seed, params=params)
    return result if isinstance(result, Infeasible) else result.allocation


def _flux(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    del params
    result = solve_flux(problem.balance, stop=stop, seed=seed)
    return result if isinstance(result, Infeasible) else result.allocation


def _albic(
    strategy: Strategy, params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int
) -> Ints | Infeasible:
    result = solve_albic(problem, stop=stop, seed=seed, params=AlbicParams(strategy=strategy, balance=params))
    return result if isinstance(result, Infeasible) else result.balance.allocation


def _cola(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    del params
    result = solve_cola(problem, stop=stop, seed=seed)
    return result if isinstance(result, Infeasible) else result.allocation


def _elastic(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    del params
    result = solve_elastic(problem.balance, stop=stop, seed=seed)
    return result if isinstance(result, Infeasible) else result.plan.allocation


def _stay(params: BalanceParams, problem: CollocationProblem, stop: StopRule, seed: int) -> Ints | Infeasible:
    """Moves nothing; only places unplaced key groups."""
    del params, stop, seed
    reason = infeasible(problem.balance)
    return Infeasible(reason=reason) if reason else place_unplaced(problem.balance)


POLICIES: Mapping[str, Callable[[BalanceParams, CollocationProblem, StopRule, int], Ints | Infeasible]] = {
    "milp": _milp,
    "flux": _flux,
    "albic": partial(_albic, Strategy.MANY_PAIRS),
    "albic-paper": partial(_albic, Strategy.ONE_PAIR),
    "cola": _cola,
    "elastic": _elastic,
    "stay": _stay,
}
"""As published, `albic-paper` brings one pair per round together, and `cola` ignores the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Perception:
    """How loads are measured: `noise` = relative standard deviation, `smoothing` = weight of the newest measurement."""

    noise: float = 0.0
    smoothing: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.noise < np.inf or not 0 < self.smoothing <= 1:
            raise ValueError("noise is at least 0, smoothing above 0 and at most 1")


EXACT = Perception()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRound:
    """One round (the first is 1); load distances in pp, with the true loads, before and after its moves.

    `nodes` = number of nodes, `marked` = those of them still draining after the moves; `placed` = key groups whose node
    was lost; `obtained` = collocation as a share of the possible one, 0 if unknown.  `load_index` = 100 * load / load
    if nothing had ever moved, at the same rates: it shows what collocation saves, not drift.
    """

    number: int
    nodes: int
    marked: int
    placed: int
    load_distance_before: float
    load_distance: float
    collocation: float
    obtained: float
    load_index: float
    migrations: int
    cost_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All rounds of a policy, and the planning time of each by the given clock."""

    rounds: tuple[SimulatedRound, ...]
    planning_s: tuple[float, ...]


def simulate(
    moments: Iterable[Moment],
    policy: Policy,
    *,
    seed: int,
    changes: Iterable[NodeChange] = (),
    perception: Perception = EXACT,
    stops: Callable[[], StopRule] = Never,
    clock: Callable[[], float] = lambda: 0.0,
) -> Run | Infeasible:
    """Simulate one round per moment; `stops` = creates a stop rule per plan.  The same seed gives the same rounds."""
    simulation = _Rounds(ChangingNodes(changes, seed), perception, seed)
    rounds, planning_s = [], []
    for number, moment in enumerate(moments, start=1):
        seen = simulation.observe(number, moment)
        started = clock()
        plan = policy(seen, stops(), seed + number)
        planning_s.append(clock() - started)
        if isinstance(plan, Infeasible):
            return Infeasible(reason=f"round {number}: {plan.reason}")
        rounds.append(simulation.move(number, plan))
    return Run(rounds=tuple(rounds), planning_s=tuple(planning_s))


class _Rounds:
    """The placement from round to round, as positions in the ids of the moment."""

    def __init__(self, cluster: ChangingNodes, perception: Perception, seed: int) -> None:
        self._cluster, self._perception = cluster, perception
        self._random = np.random.default_rng((seed, 3))
        self._moment: Moment | None = None
        self._at: Ints = np.zeros(0, np.int64)
        self._start: Ints = np.zeros(0, np.int64)  # the placement if nothing had ever moved
        self._smoothed: Floats = np.zeros(0)

    def observe(self, number: int, moment: Moment) -> CollocationProblem:
        """The problem that the policy sees in `moment`."""
        self._carry(self._cluster.enter(number, moment))
        problem = self._truth()
        noise = self._perception.noise
        measured = problem.balance.load
        if noise:
            measured = measured * np.maximum(0.0, 1 + noise * self._random.standard_normal(len(measured)))
        weight = self._perception.smoothing
        fresh = np.isnan(self._smoothed)
        self._smoothed = np.where(fresh, measured, weight * measured + (1 - weight) * self._smoothed)
        return replace(problem, balance=replace(problem.balance, load=self._smoothed))

    def move(self, number: int, plan: Ints) -> SimulatedRound:
        """Carry out `plan`; returns the round."""
        truth, moment = self._truth(), self._moment
        assert moment is not None, "a plan answers an observation"
        before, after = evaluate(truth.balance, self._at), evaluate(truth.predicted(plan), plan)
        released = self._cluster.release(moment, plan)
        # Moves that make flows local change the loads, so correct the smoothed measurements by the same amount.
        self._smoothed = np.maximum(0.0, self._smoothed + truth.loads(plan) - truth.balance.load)
        unplaced = int((self._at == UNPLACED).sum())
        self._at = plan
        return SimulatedRound(
            number=number,
            nodes=len(moment.nodes),
            marked=int(truth.balance.removing.sum()) - released,
            placed=unplaced,
            load_distance_before=before.load_distance,
            load_distance=after.load_distance,
            collocation=truth.collocation(plan),
            obtained=moment.obtained(plan),
            load_index=load_index(truth, plan, float(truth.loads(self._start).sum())),
            migrations=after.migrations,
            cost_bytes=after.cost_bytes,
        )

    def _truth(self) -> CollocationProblem:
        assert self._moment is not None, "there is a moment"
        return self._moment.at(self._at)

    def _carry(self, moment: Moment) -> None:
        """Adapt placement and measurements to the nodes and key groups of `moment`; new ones start where it says."""
        last, self._moment = self._moment, moment
        if last is None:
            self._at = self._start = moment.home
            self._smoothed = np.full(len(self._at), np.nan)
            return
        self._at = renumbered(self._at, last.nodes, moment.nodes)
        self._start = renumbered(self._start, last.nodes, moment.nodes)
        if last.key_groups is moment.key_groups or last.key_groups == moment.key_groups:
            return
        position = {id_: at for at, id_ in enumerate(last.key_groups)}
        old = np.array([position.get(id_, -1) for id_ in moment.key_groups], np.int64)
        known = old >= 0
        at, start, smoothed = moment.home.copy(), moment.home.copy(), np.full(len(old), np.nan)
        at[known], start[known] = self._at[old[known]], self._start[old[known]]
        smoothed[known] = self._smoothed[old[known]]
        self._at, self._start, self._smoothed = at, start, smoothed


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles over rounds."""

    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: list[float]) -> Self:
        """The percentiles of at least one value."""
        p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
        return cls(p50=p50, p95=p95, p99=p99, max=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Load distances (pp) before and after the moves, over all rounds; collocation and load index of the last one."""

    before: Spread
    after: Spread
    collocation: float
    load_index: float
    migrations: int
    most_migrations: int  # in one round
    cost_bytes: float


def summarise(rounds: tuple[SimulatedRound, ...]) -> Summary:
    """The summary of at least one round."""
    return Summary(
        before=Spread.of([each.load_distance_before for each in rounds]),
        after=Spread.of([each.load_distance for each in rounds]),
        collocation=rounds[-1].collocation,
        load_index=rounds[-1].load_index,
        migrations=sum(each.migrations for each in rounds),
        most_migrations=max(each.migrations for each in rounds),
        cost_bytes=sum(each.cost_bytes for each in rounds),
    )
