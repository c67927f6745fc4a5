"""Many pairs per round: beyond the paper, which brings together one.

Units are the parts that `keep` left together. The moves to choose from lead to a scored partner, from hot or marked
nodes to the coldest, or belong to the plan of the pure balance problem where that is called for; no two parts joined
by a scored edge both move, so that what is saved is linear and exact for scored flows. A greedy choice is improved by
an integer program (`model.py`). Whatever they answer is judged anew, all flows included, before it is believed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.albic.options import Choice, Options, part_pairs, worth_of_rate
from trimtab_models.albic.parts import Parts
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.scores import Pairs
from trimtab_models.albic.selection import Selection, Weights, climb
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints
from trimtab_models.solving.stop import Stop

MOST_MODELLED = 5_000  # options; CP-SAT's presolve of more takes longer than its work is limited to


class Judge:
    """What a plan is worth, in percentage points of load, compared with `start` (every key group placed)."""

    def __init__(self, problem: CollocationProblem, start: Ints, price: float) -> None:
        """`price` of an average migration in shares of the mean load of a key group."""
        self.problem, self.start = problem, start
        balance = problem.balance
        self.loads = problem.loads(start)
        self._worth = worth_of_rate(problem) * float(problem.rate.sum())
        self._collocation = problem.collocation(start)
        mean_load = float(np.abs(self.loads).mean()) if len(start) else 0.0
        mean_cost = float(balance.cost_bytes.mean()) if len(start) else 1.0
        self.price = price * mean_load
        # A migration is never cheaper than the average one: it has a price beside its bytes.
        charge = self.price * np.maximum(1.0, balance.cost_bytes / mean_cost)
        self.charges: Floats = np.where(balance.home == UNPLACED, 0.0, charge)
        self.waiting: Bools = balance.removing[start] & balance.movable  # to leave a marked node
        # Leaving a marked node comes before every pair.
        self.release: Floats = np.where(self.waiting, self.charges + mean_load + self._dearest_pair(), 0.0)

    def _dearest_pair(self) -> float:
        return worth_of_rate(self.problem) * float(self.problem.rate.max(initial=0.0))

    def pays(self, pairs: Pairs) -> Bools:
        """(P,) the pairs that alone are worth the move of the cheaper end."""
        cheaper = np.minimum(self.charges[pairs.first], self.charges[pairs.second])
        paying: Bools = worth_of_rate(self.problem) * pairs.rate > cheaper
        return paying

    def value(self, allocation: Ints, weights: Weights) -> float:
        """The objective of `selection.py`, from scratch and for all flows."""
        problem = self.problem
        moved = allocation != self.start
        saved = self._worth * (problem.collocation(allocation) - self._collocation)
        paid = float((self.charges - self.release)[moved].sum())
        return saved - paid - float(weights.of(self.load_distance(allocation)))

    def load_distance(self, allocation: Ints) -> float:
        """In pp, with the loads predicted for `allocation`."""
        return evaluate(self.problem.predicted(allocation), allocation).load_distance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joining:
    """One round's question: which of the `pairs` to bring together; `tied` are those that made the `parts`."""

    judge: Judge
    pairs: Pairs
    tied: Pairs
    parts: Parts
    max_partition_load: float
    levelled: Ints | None  # (P,) the plan of the pure balance problem on the parts

    def selection(self, weights: Weights) -> Selection:
        """The options and rules of the round."""
        judge, parts = self.judge, self.parts
        balance = judge.problem.balance
        at = self._at()
        deviations = _deviations(judge)
        worth = parts.summed(judge.release - judge.charges)
        options = self._options(at, worth, deviations)
        usages = balance.usages(judge.start)
        return Selection(
            options=options,
            gain=options.saved + worth[options.part],
            rivals=part_pairs(parts, self.tied),
            prices=np.array([parts.summed(row) for row in balance.prices]).reshape(-1, len(at)),
            allowances=balance.allowances,
            usage=np.array([parts.summed(row) for row in balance.usage]).reshape(-1, len(at)),
            room=balance.limit - usages,
            at=at,
            deviations=deviations,
            capacity=balance.capacity,
            kept=balance.kept,
            weights=weights,
        )

    def _at(self) -> Ints:
        at = np.empty(len(self.parts.size), np.int64)
        at[self.parts.of] = self.judge.start  # unplaced key groups are single, all others share their part's node
        return at

    def _options(self, at: Ints, worth: Floats, deviations: Floats) -> Options:
        choice = Choice(self.judge.problem, self.parts, at, self.judge.loads, worth)
        joins = choice.joins(*part_pairs(self.parts, self.pairs), self.max_partition_load)
        levelling = choice.levelling(deviations)
        moved = np.flatnonzero(self.levelled != at) if self.levelled is not None else np.zeros(0, np.int64)
        planned = self.levelled[moved] if self.levelled is not None else moved
        return choice.options(
            np.concatenate((joins[0], levelling[0], moved)),
            np.concatenate((joins[1], levelling[1], planned)),
            len(joins[0]),
        )

    def plans(self, selection: Selection, seed: int, work: float, stop: Stop) -> Iterator[Ints]:
        """Plans (K,), each at least as good as the one before by the linear objective."""
        if not len(selection.options):
            return
        chosen = climb(selection, stop)
        yield self._expanded(selection, chosen)
        if not stop() and work > 0 and len(selection.options) <= MOST_MODELLED:
            from trimtab_models.albic.model import optimise  # OR-Tools takes longer to load than most plans to make

            yield self._expanded(selection, optimise(selection, chosen, seed, work))

    def _expanded(self, selection: Selection, chosen: Bools) -> Ints:
        at = selection.at.copy()
        at[selection.options.part[chosen]] = selection.options.node[chosen]
        return self.parts.expand(at)


def _deviations(judge: Judge) -> Floats:
    balance = judge.problem.balance
    loads = np.bincount(judge.start, judge.loads, len(balance.capacity))
    mean = float(judge.loads.sum()) / float(balance.capacity[balance.kept].sum())
    deviations: Floats = loads / balance.capacity - mean
    return deviations
