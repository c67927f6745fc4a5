"""The choice of moves of a round: the objective for many pairs per round, and a greedy solution.

The objective, in pp of load, is the savings, minus the price of the migrations, minus `penalty` per pp of load distance
above `target`, and much more per pp above `ceiling`.  `levelling` decides ties.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.albic.options import MoveOptions
from trimtab_models.balance.problem import Bools, Floats, Ints
from trimtab_models.solving.stop import StopRule

STEEPER = 50  # factor of the penalty above the ceiling, so that no saving outweighs it
LEAST_GAIN = 1e-9  # relative; smaller gains are rounding errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """`target` and `ceiling` in pp; `penalty` and `levelling` per pp of load distance."""

    target: float
    ceiling: float
    penalty: float
    levelling: float

    def of(self, load_distance: Floats | float) -> Floats | float:
        """The penalty for a load distance."""
        above = np.maximum(0.0, load_distance - self.target) + STEEPER * np.maximum(0.0, load_distance - self.ceiling)
        cost: Floats | float = self.penalty * above + self.levelling * load_distance
        return cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """M options for P parts on N nodes.

    A choice has at most one option per part, none for both of two rivals, and keeps budgets and limits.  Rivals are
    parts with much traffic between them (`options.py`).  `gain` = value of an option without its effect on the load
    distance; `deviations` (pp) and `room` (what limits leave) are those before the round.  `arriving`, `leaving` = what
    the part of an option uses on the node of the option, and on its own node.
    """

    options: MoveOptions
    gain: Floats  # (M,)
    rivals: tuple[Ints, Ints]
    prices: Floats  # (B, P)
    allowances: Floats  # (B,)
    arriving: Floats  # (R, M)
    leaving: Floats  # (R, M)
    room: Floats  # (R, N)
    at: Ints  # (P,)
    deviations: Floats  # (N,)
    capacity: Floats  # (N,)
    kept: Bools  # (N,)
    weights: Weights


def choose_greedily(selection: Selection, stop: StopRule) -> Bools:
    """(M,) the greedy choice: always the option that gains most, while any gains."""
    return _GreedyChoice(selection).run(stop)


class _GreedyChoice:
    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        options = selection.options
        self._source = selection.at[options.part]
        self._deviations = selection.deviations.copy()
        self._room = np.maximum(selection.room, 0.0)
        self._left = selection.allowances.copy()
        self._open = np.ones(len(options), np.bool_)
        self._kept_capacity = float(selection.capacity[selection.kept].sum())
        self._floor = np.where(selection.kept, 0.0, np.inf)  # draining nodes have no lower side

    def run(self, stop: StopRule) -> Bools:
        selection = self._selection
        chosen = np.zeros(len(selection.options), np.bool_)
        least = LEAST_GAIN * (1.0 + float(np.abs(selection.gain).max(initial=0.0)))
        while not stop():
            now = float(selection.weights.of(self._distance()))
            candidates = np.flatnonzero(self._open & self._affordable())
            if not len(candidates):
                break
            gain = selection.gain[candidates] + now - selection.weights.of(self._distances(candidates))
            best = int(gain.argmax())
            if gain[best] <= least:
                break
            chosen[candidates[best]] = True
            self._take(int(candidates[best]))
        return chosen

    def _distance(self) -> float:
        return max(0.0, float(self._deviations.max()), float((-self._deviations - self._floor).max()))

    def _affordable(self) -> Bools:
        selection, options = self._selection, self._selection.options
        fits: Bools = np.logical_and.reduce(selection.prices[:, options.part] <= self._left[:, None])
        if len(self._room):
            fits &= np.logical_and.reduce(selection.arriving <= self._room[:, options.node])
        return fits

    def _distances(self, candidates: Ints) -> Floats:
        """(C,) the load distance after each candidate alone."""
        selection, options = self._selection, self._selection.options
        source, node = self._source[candidates], options.node[candidates]
        freed, added = options.freed[candidates], options.added[candidates]
        shift = (freed - added) / self._kept_capacity
        after_source = self._deviations[source] - freed / selection.capacity[source]
        after_node = self._deviations[node] + added / selection.capacity[node]
        over = np.maximum(_others(self._deviations, source, node), np.maximum(after_source, after_node)) + shift
        below = np.maximum(-after_source - self._floor[source], -after_node - self._floor[node])
        under = np.maximum(_others(-self._deviations - self._floor, source, node), below) - shift
        return np.maximum(0.0, np.maximum(over, under))

    def _take(self, option: int) -> None:
        selection, options = self._selection, self._selection.options
        part, source, node = int(options.part[option]), int(self._source[option]), int(options.node[option])
        self._deviations += (options.freed[option] - options.added[option]) / self._kept_capacity
        self._deviations[source] -= options.freed[option] / selection.capacity[source]
        self._deviations[node] += options.added[option] / selection.capacity[node]
        self._left -= selection.prices[:, part]
        self._room[:, node] -= selection.arriving[:, option]
        first, second = selection.rivals
        resting = np.concatenate(([part], second[first == part], first[second == part]))
        self._open &= ~np.isin(options.part, resting)


def _others(values: Floats, one: Ints, other: Ints) -> Floats:
    """(C,) the largest of `values`, except those at `one` and `other`."""
    largest = np.argsort(-values, kind="stable")[:3]
    found = np.full(len(one), -np.inf)
    for position in largest[::-1].tolist():
        found = np.where((one != position) & (other != position), values[position], found)
    return found
