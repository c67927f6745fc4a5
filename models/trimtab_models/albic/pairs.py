"""Brings many pairs together per round; the paper brings one.

The units are the parts of `keep.py`.  A move leads to a scored partner, or from a hot or draining node to a cold one,
or is part of the plan of the pure balance problem.  No two parts with a scored edge between them both move, so the
savings are linear, and exact for scored flows.  An integer program (`model.py`) improves a greedy choice.  Every plan
is evaluated from scratch with all flows before it is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.albic.options import MoveOptions, OptionCollector, part_pairs, worth_of_flows, worth_of_pairs
from trimtab_models.albic.parts import KeyGroupParts
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.scores import Pairs
from trimtab_models.albic.selection import Selection, Weights, choose_greedily
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints
from trimtab_models.solving.stop import StopRule

MOST_MODELLED = 5_000  # options; the presolve of a larger model would use up all work


class PlanEvaluator:
    """Evaluates plans, in pp of load, against `start`, in which every key group is placed."""

    def __init__(self, problem: CollocationProblem, start: Ints, price: float) -> None:
        """`price` = price of an average migration, as a share of a key group's mean load."""
        self.problem, self.start = problem, start
        balance = problem.balance
        self.loads = problem.loads(start)
        self._worth = worth_of_flows(problem)
        self._local = self._local_worth(start)
        mean_load = float(np.abs(self.loads).mean()) if len(start) else 0.0
        mean_cost = float(balance.cost_bytes.mean()) if len(start) else 1.0
        self.price = price * mean_load
        # No migration is cheaper than the average: each has a price in addition to its bytes.
        charge = np.maximum(self.price * np.maximum(1.0, balance.cost_bytes / mean_cost), problem.charges)
        self.charges: Floats = np.where(balance.home == UNPLACED, 0.0, charge)
        self.waiting: Bools = balance.to_leave(start) & balance.movable  # on a draining node, and able to leave
        # Leaving a draining node is worth more than any pair.
        self.release: Floats = np.where(self.waiting, self.charges + mean_load + self._dearest_pair(), 0.0)

    def _dearest_pair(self) -> float:
        return float(self._worth.max(initial=0.0))

    def _local_worth(self, allocation: Ints) -> float:
        return float(self._worth[~self.problem.remote(allocation)].sum())

    def pays(self, pairs: Pairs) -> Bools:
        """(P,) whether each pair alone is worth moving its cheaper end."""
        cheaper = np.minimum(self.charges[pairs.first], self.charges[pairs.second])
        paying: Bools = worth_of_pairs(self.problem, pairs) > cheaper
        return paying

    def value(self, allocation: Ints, weights: Weights) -> float:
        """The objective of `selection.py`, computed from scratch with all flows."""
        moved = allocation != self.start
        saved = self._local_worth(allocation) - self._local
        paid = float((self.charges - self.release)[moved].sum())
        return saved - paid - float(weights.of(self.load_distance(allocation)))

    def load_distance(self, allocation: Ints) -> float:
        """Load distance in pp, with the loads predicted for `allocation`."""
        return evaluate(self.problem.predicted(allocation), allocation).load_distance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joining:
    """The problem of one round: which of `pairs` to bring together; `tied` = the pairs within `parts`."""

    evaluator: PlanEvaluator
    pairs: Pairs
    tied: Pairs
    parts: KeyGroupParts
    max_partition_load: float
    levelled: Ints | None  # (P,) the plan of the pure balance problem on the parts

    def selection(self, weights: Weights) -> Selection:
        """The options and rules of the round."""
        evaluator, parts = self.evaluator, self.parts
        balance = evaluator.problem.balance
        at = self._at()
        deviations = _deviations(evaluator)
        worth = parts.summed(evaluator.release - evaluator.charges)
        options = self._options(at, worth, deviations)
        usages = balance.usages(evaluator.start)
        return Selection(
            options=options,
            gain=options.saved + worth[options.part],
            rivals=part_pairs(parts, self.tied),
            prices=np.array([parts.summed(row) for row in balance.prices]).reshape(-1, len(at)),
            allowances=balance.allowances,
            arriving=parts.problem.usage_on(options.part, options.node),
            leaving=parts.problem.usage_on(options.part, at[options.part]),
            room=balance.limit - usages,
            at=at,
            deviations=deviations,
            capacity=balance.capacity,
            kept=balance.kept,
            weights=weights,
        )

    def _at(self) -> Ints:
        at = np.empty(len(self.parts.size), np.int64)
        at[self.parts.of] = self.evaluator.start  # an unplaced key group is single; all others are at their part
        return at

    def _options(self, at: Ints, worth: Floats, deviations: Floats) -> MoveOptions:
        choice = OptionCollector(self.evaluator.problem, self.parts, at, self.evaluator.loads, worth)
        joins = choice.joins(*part_pairs(self.parts, self.pairs), self.max_partition_load)
        levelling = choice.levelling(deviations)
        moved = np.flatnonzero(self.levelled != at) if self.levelled is not None else np.zeros(0, np.int64)
        planned = self.levelled[moved] if self.levelled is not None else moved
        return choice.options(
            np.concatenate((joins[0], levelling[0], moved)),
            np.concatenate((joins[1], levelling[1], planned)),
            len(joins[0]),
        )

    def plans(self, selection: Selection, seed: int, work: float, stop: StopRule) -> Iterator[Ints]:
        """Plans (K,), each at least as good as the one before by the linear objective."""
        if not len(selection.options):
            return
        chosen = choose_greedily(selection, stop)
        yield self._expanded(selection, chosen)
        if not stop() and work > 0 and len(selection.options) <= MOST_MODELLED:
            from trimtab_models.albic.model import optimise  # OR-Tools is slow to load

            yield self._expanded(selection, optimise(selection, chosen, seed, work))

    def _expanded(self, selection: Selection, chosen: Bools) -> Ints:
        at = selection.at.copy()
        at[selection.options.part[chosen]] = selection.options.node[chosen]
        return self.parts.expand(at)


def _deviations(evaluator: PlanEvaluator) -> Floats:
    balance = evaluator.problem.balance
    loads = np.bincount(evaluator.start, evaluator.loads, len(balance.capacity))
    mean = float(evaluator.loads.sum()) / float(balance.capacity[balance.kept].sum())
    deviations: Floats = loads / balance.capacity - mean
    return deviations
