"""ALBIC: autonomic load balancing with integrated collocation.

Source: Madsen, Zhou, Cao, "Integrative Dynamic Reconfiguration in a Parallel Stream Processing Engine", ICDE 2017,
section 4.3.2.  An attempt scores the pairs, keeps collocated ones together, brings one more pair together and balances.
Attempts use smaller and smaller parts (maxPL minus stepPL) until the predicted load distance is within maxLD.  At
maxPL = 0 it is the pure balance problem.  If no attempt is within maxLD, the result is the one with the least load
distance, and says so.

We differ in this: predicted loads include the savings of collocation.  A round brings together as many pairs as pay for
their moves (`joining.py`), with the load distance inside `band`; the paper's one pair per round is kept as a strategy.
Without a scored pair that pays for a move it is the pure balance problem.

Within limits of hosts: ALBIC knows those of nodes only, so a host's room is divided among its nodes.

Step 3 of the paper: the one pair that a round brings together is the scored pair with the largest rate that is not
collocated yet; the seed decides ties.  If one of the two is in a set of collocated key groups, the pair goes to that
one's node; otherwise to the less loaded of the two nodes.  Pinned key groups stay, and draining nodes receive nothing.
A pair whose union exceeds maxPL, the budget or a limit is skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trimtab_models.albic.joining import FITS, Joining, PlanEvaluator, Weights
from trimtab_models.albic.parts import KeyGroupParts, budget_shares, parts_of, parts_to_keep
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.scores import Pairs, scored_pairs
from trimtab_models.balance.bound import lower_bound
from trimtab_models.balance.construct import place_unplaced
from trimtab_models.balance.drain import Alert, alerts
from trimtab_models.balance.evaluate import BalanceScore, evaluate, slack
from trimtab_models.balance.hosts import HostLimits, within
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Floats, Ints, infeasible
from trimtab_models.balance.result import BalanceResult
from trimtab_models.balance.solve import BalanceParams
from trimtab_models.balance.solve import solve as solve_balance
from trimtab_models.solving import Infeasible, StopRule
from trimtab_models.spared import usage_on

BAND_SHARE = 0.45  # of maxLD
LEVELLING_SHARE = 2.0
MOST_LEVELLING = 1000.0
"""It only decides ties, and is a whole number in the program."""
ROUNDING = 1e-12  # of the mean load: tolerance for sums of floats in different order
BALANCE = BalanceParams()
LEVELLED = BalanceParams(effort=Effort(steps=800), polish=Effort(steps=0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlbicResult:
    """`balance` = the plan, evaluated with the given loads; predicted figures include what collocation saves.

    `within` = whether the predicted load distance is within maxLD; if not, no attempt was, and this is the closest.
    `partition_load` = the maxPL of the plan; 0 if it is the plan of the pure balance problem.
    """

    balance: BalanceResult
    predicted_load_distance: float
    collocation: float
    partition_load: float
    within: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Part `mover` goes to `node`, where part `anchor` is."""

    mover: int
    anchor: int
    node: int


class CollocationImprover:
    """Looks for the pair.  `at` (P,) = node of each part, `balance` = the problem with the loads there."""

    def __init__(self, balance: BalanceProblem, parts: KeyGroupParts, at: Ints, max_partition_load: float) -> None:
        self._balance, self._parts, self._at = balance, parts, at
        self._load = parts.summed(balance.load)
        self._share = parts.summed(budget_shares(balance))
        self._movable = parts.mobile(balance)
        self._leaving = parts.problem.to_leave(at)
        self._max_partition_load = max_partition_load
        self._node_load: Floats = np.bincount(at, self._load, len(balance.capacity)) / balance.capacity
        usage = [parts.summed(row) for row in balance.usage]
        self._usage = np.array(usage).reshape(-1, len(at))
        self._spared = None if balance.spared is None else balance.spared.merged(parts.of, len(at))
        self._room = balance.limit + slack(balance) - balance.usages(parts.expand(at))

    def best(self, pairs: Pairs, random: np.random.Generator) -> Join | None:
        """The pair to bring together, or None."""
        order = np.lexsort((random.random(len(pairs)), -pairs.rate))
        for first, second in zip(
            self._parts.of[pairs.first[order]].tolist(), self._parts.of[pairs.second[order]].tolist(), strict=True
        ):
            if self._at[first] == self._at[second] or not self._fits_one_part(first, second):
                continue
            for mover, anchor in self._directions(first, second):
                if self._may_join(mover, anchor):
                    return Join(mover=mover, anchor=anchor, node=int(self._at[anchor]))
        return None

    def _fits_one_part(self, first: int, second: int) -> bool:
        load, share = self._load[first] + self._load[second], self._share[first] + self._share[second]
        return bool(load <= self._max_partition_load * FITS and share <= FITS)

    def _directions(self, first: int, second: int) -> Iterator[tuple[int, int]]:
        """(mover, anchor), first as in the paper's cases, then the other way round."""
        in_set = self._parts.size > 1
        if in_set[first] != in_set[second]:
            anchor = first if in_set[first] else second
        else:
            anchor = min(first, second, key=lambda part: self._node_load[self._at[part]])
        mover = second if anchor == first else first
        yield mover, anchor
        yield anchor, mover

    def _may_join(self, mover: int, anchor: int) -> bool:
        node = self._at[anchor]
        if not self._movable[mover] or self._leaving[anchor] or self._balance.removing[node]:
            return False
        if not self._parts.problem.may(mover, node):
            return False
        usage = usage_on(self._usage, self._spared, mover, node)
        return bool((usage <= np.maximum(0.0, self._room[:, node])).all())


class Strategy(Enum):
    """The number of pairs that a round brings together."""

    ONE_PAIR = "one pair"
    """ALBIC as published: it brings one pair of key groups a round together."""
    MANY_PAIRS = "many pairs"
    """It brings as many pairs of key groups together as the budget allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlbicParams:
    """Parameters of ALBIC.

    `band` = load distance (pp) up to which nothing moves for balance alone; None = a share of maxLD if there are scored
    pairs, else 0.  `price` = price of an average migration, as a share of a key group's mean load.  `penalty` = pp of
    load per pp of load distance above the band.  `work` = limit of the integer program in CP-SAT's deterministic
    seconds.
    """

    strategy: Strategy = Strategy.MANY_PAIRS
    band: float | None = None
    price: float = 0.05
    penalty: float = 20.0
    work: float = 0.1
    balance: BalanceParams = BALANCE

    def __post_init__(self) -> None:
        if (self.band is not None and self.band < 0) or self.price < 0 or self.penalty < 0 or self.work < 0:
            raise ValueError("band, price, penalty and work must not be negative")


DEFAULT_PARAMS = AlbicParams()


def solve(
    problem: CollocationProblem, *, stop: StopRule, seed: int, params: AlbicParams = DEFAULT_PARAMS
) -> AlbicResult | Infeasible:
    """The plan of one round.  The same seed gives the same plan unless `stop` ends the search early."""
    if reason := infeasible(problem.balance):
        return Infeasible(reason=reason)
    return _AlbicSolver(problem, stop, seed, params).run()


class _AlbicSolver:
    def __init__(self, problem: CollocationProblem, stop: StopRule, seed: int, params: AlbicParams) -> None:
        self._stop, self._seed, self._params = stop, seed, params
        self._start = place_unplaced(problem.balance)
        self._problem = replace(problem, balance=problem.balance.tolerating(self._start))
        self._balance = self._problem.balance
        self._evaluator = PlanEvaluator(self._problem, self._start, params.price)
        self._pairs = self._tied = scored_pairs(problem)
        if params.strategy is Strategy.MANY_PAIRS:
            self._tied = self._pairs.subset(self._evaluator.pays(self._pairs))
        # Rounding may turn a load distance of 0 into one slightly above 0.
        self._max_load_distance = self._balance.max_load_distance * (1 + 1e-9) + ROUNDING * self._balance.mean
        now = evaluate(self._balance, self._start).load_distance
        self._proven = lower_bound(self._balance, now, stop)  # with the given loads

    def run(self) -> AlbicResult:
        """The best of attempts with smaller and smaller parts."""
        partition_load = self._problem.max_partition_load if len(self._tied) else 0.0
        best: tuple[float, float, Ints] | None = None
        while True:
            allocation, largest = self._attempt(partition_load)
            distance = self._evaluator.load_distance(allocation)
            if best is None or distance < best[0]:
                best = (distance, partition_load, allocation)
            accepted = distance <= self._max_load_distance and (partition_load <= 0 or not self._idle(allocation))
            if accepted:
                best = (distance, partition_load, allocation)
            if accepted or partition_load <= 0 or self._stop():
                return self._result(best[2], best[1])
            partition_load = self._smaller(partition_load, largest)

    def _smaller(self, partition_load: float, largest: float) -> float:
        """The next maxPL.  Skips steps that would not change any part, and all if none can help."""
        if self._proven > self._max_load_distance:
            return 0.0
        step = self._problem.partition_step
        steps = max(1, int(np.floor((partition_load - largest) / step)) + 1)
        return max(0.0, partition_load - steps * step)

    def _idle(self, allocation: Ints) -> bool:
        """Whether key groups wait on draining nodes and none of them leaves."""
        waiting = self._evaluator.waiting
        return bool(waiting.any()) and bool((allocation == self._start)[waiting].all())

    def _attempt(self, partition_load: float) -> tuple[Ints, float]:
        """A plan with parts of at most `partition_load`, and the load of its largest part with several members."""
        if partition_load <= 0:
            return self._purely_balanced(), 0.0
        parts = parts_of(self._balance, parts_to_keep(self._balance, self._tied, partition_load, self._seed))
        one_pair = self._params.strategy is Strategy.ONE_PAIR
        plan = self._one_pair(parts, partition_load) if one_pair else self._many_pairs(parts, partition_load)
        return plan, float(parts.problem.load[parts.size > 1].max(initial=0.0))

    def _purely_balanced(self) -> Ints:
        band = self._params.band or 0.0
        if self._evaluator.load_distance(self._start) <= band and not self._evaluator.waiting.any():
            return self._start
        result = self._balanced(self._balance, self._params.balance)
        self._proven = max(self._proven, result.lower_bound)
        return result.allocation

    def _balanced(self, balance: BalanceProblem, params: BalanceParams) -> BalanceResult:
        result = solve_balance(balance, stop=self._stop, seed=self._seed, params=params)
        assert isinstance(result, BalanceResult), "some node is kept"
        return result

    def _one_pair(self, parts: KeyGroupParts, partition_load: float) -> Ints:
        """Steps 3 and 4 of the paper."""
        at = np.empty(len(parts.size), np.int64)
        at[parts.of] = self._start
        balance = self._problem.predicted(self._start)
        join = CollocationImprover(balance, parts, at, partition_load).best(
            self._pairs, np.random.default_rng(self._seed)
        )
        problem = replace(parts.problem, load=np.maximum(0.0, parts.summed(balance.load)))
        if join is not None:
            joined = np.where(parts.of == join.mover, join.node, self._start)
            loads = np.maximum(0.0, parts.summed(self._problem.loads(joined)))
            problem = _with_join(problem, join, loads)
        return self._if_allowed(parts.expand(self._balanced(problem, self._params.balance).allocation))

    def _many_pairs(self, parts: KeyGroupParts, partition_load: float) -> Ints:
        """The best plan inside the band; up to maxLD if the band lets no pair join and no key group leave."""
        balance, evaluator = self._balance, self._evaluator
        band = self._band()
        levelled = None
        if evaluator.load_distance(self._start) > band or evaluator.waiting.any():
            loads = np.maximum(0.0, parts.summed(evaluator.loads))
            levelled = self._balanced(replace(parts.problem, load=loads), LEVELLED).allocation
        joining = Joining(
            evaluator=evaluator,
            pairs=self._pairs,
            tied=self._tied,
            parts=parts,
            max_partition_load=partition_load,
            levelled=levelled,
        )
        best = self._start
        for target in dict.fromkeys((band, max(band, balance.max_load_distance))):
            levelling = min(LEVELLING_SHARE * evaluator.price / target, MOST_LEVELLING) if target > 0 else 0.0
            ceiling = max(target, balance.max_load_distance)
            weights = Weights(target=target, ceiling=ceiling, penalty=self._params.penalty, levelling=levelling)
            selection = joining.selection(weights)
            plans = [self._start, *joining.plans(selection, self._seed, self._params.work, self._stop)]
            if levelled is not None:
                plans.append(parts.expand(levelled))
            best = max(map(self._if_allowed, plans), key=lambda plan: evaluator.value(plan, weights))
            gained = self._problem.collocation(best) - self._problem.collocation(self._start)
            stuck = gained <= 0 and selection.options.joins.any()
            if self._stop() or not (stuck or self._idle(best)):
                break
        return best

    def _band(self) -> float:
        band = self._params.band
        return BAND_SHARE * self._balance.max_load_distance if band is None else band

    def _if_allowed(self, allocation: Ints) -> Ints:
        """`allocation` if it keeps all rules of the problem of single key groups, else the present one."""
        return allocation if evaluate(self._balance, allocation).allowed else self._start

    def _result(self, allocation: Ints, partition_load: float) -> AlbicResult:
        balance = self._balance
        score = evaluate(balance, allocation)
        predicted = self._evaluator.load_distance(allocation)
        return AlbicResult(
            balance=BalanceResult.of(
                balance,
                allocation,
                score,
                self._proven,
                alerts=self._alerts(allocation, score),
            ),
            predicted_load_distance=predicted,
            collocation=self._problem.collocation(allocation),
            partition_load=partition_load,
            within=predicted <= self._max_load_distance,
        )

    def _alerts(self, allocation: Ints, score: BalanceScore) -> tuple[Alert, ...]:
        balance = self._balance
        if not balance.to_leave(self._start).any():
            return ()
        return alerts(balance, allocation, max(score.load_distance, balance.max_load_distance))


def _with_join(problem: BalanceProblem, join: Join, loads: Floats) -> BalanceProblem:
    """The problem of the parts after the join is made and paid for; the joined parts stay where they are."""
    home, pinned = problem.home.copy(), problem.pinned.copy()
    evicted = None if problem.evicted is None else problem.evicted.copy()
    paid = float(problem.home[join.mover] != UNPLACED)
    home[[join.mover, join.anchor]] = join.node
    pinned[[join.mover, join.anchor]] = True
    if evicted is not None:
        evicted[[join.mover, join.anchor]] = False
    count, cost = problem.max_migrations, problem.max_cost_bytes
    return replace(
        problem,
        load=loads,
        home=home,
        pinned=pinned,
        evicted=evicted,
        max_migrations=None if count is None else max(0, count - int(paid)),
        max_cost_bytes=None if cost is None else max(0.0, cost - paid * float(problem.cost_bytes[join.mover])),
    )


def solve_on_hosts(
    problem: CollocationProblem, limits: HostLimits, *, stop: StopRule, seed: int
) -> AlbicResult | Infeasible:
    """The plan of one round, without arrivals that would fill a host beyond its limits."""
    divided = replace(problem, balance=limits.divided(problem.balance))
    result = solve(divided, stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    kept = within(problem.balance, limits, result.balance)
    if kept is result.balance:
        return result
    return replace(
        result,
        balance=kept,
        predicted_load_distance=evaluate(problem.predicted(kept.allocation), kept.allocation).load_distance,
        collocation=problem.collocation(kept.allocation),
    )
