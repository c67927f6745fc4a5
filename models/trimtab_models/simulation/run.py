"""Simulates rounds: change nodes, measure, plan, move, remove empty draining nodes, evaluate with the true loads.

The policy sees loads that may be noisy and smoothed; the results use the true loads.  Planning is timed by a clock that
is passed in.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from trimtab_models.albic.problem import CollocationProblem, load_index
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED, Floats, Ints
from trimtab_models.simulation.moments import ChangingNodes, Moment, NodeChange, renumbered
from trimtab_models.simulation.policies import Policy
from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import Never, StopRule


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
