"""The moves that a round chooses from, with the effect of each on the loads.

A part moves as one unit.  In one round, no two parts with much traffic between them both move, so the partners of a
moving part stay in place.  The effect of a move is then exact and independent of the other moves.  The old node loses
the load of the part, and pays for tuples that used to be local.  The new node gains the load of the part without the
traffic that becomes local, and saves its own share of that traffic.

The choice of moves of a round: the objective for many pairs per round, and a greedy solution.

The objective, in pp of load, is the savings, minus the price of the migrations, minus `penalty` per pp of load distance
above `target`, and much more per pp above `ceiling`.  `levelling` decides ties.

Brings many pairs together per round; the paper brings one.

The units are the parts of `keep.py`.  A move leads to a scored partner, or from a hot or draining node to a cold one,
or is part of the plan of the pure balance problem.  No two parts with a scored edge between them both move, so the
savings are linear, and exact for scored flows.  An integer program (`model.py`) improves a greedy choice.  Every plan
is evaluated from scratch with all flows before it is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.albic.parts import KeyGroupParts, budget_shares
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.albic.scores import Pairs
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED, Bools, Floats, Ints
from trimtab_models.solving import StopRule

NOMINAL_SHARE = 0.5  # of all load: assumed share of communication if its cost is unknown (job 2 of the paper)
HOTTEST, COLDEST = 8, 3  # nodes that give and receive for balance
MOST_GIVEN = 600  # most parts offered to the coldest nodes
MOST_JOINS = 1_500  # most moves to a partner; a few hundred are usual
FITS = 1 + 1e-9
STEEPER = 50  # factor of the penalty above the ceiling, so that no saving outweighs it
LEAST_GAIN = 1e-9  # relative; smaller gains are rounding errors
MOST_MODELLED = 5_000  # options; the presolve of a larger model would use up all work


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveOptions:
    """M moves of parts; `freed` = load that leaves the old node, `added` = load that the new node gains."""

    part: Ints  # (M,)
    node: Ints  # (M,)
    freed: Floats
    added: Floats
    saved: Floats  # load that serialisation no longer takes, or its nominal value
    joins: Bools  # whether a scored partner is on the new node

    def __len__(self) -> int:
        return len(self.part)


class PartTraffic:
    """Traffic of each part with other parts, by the node of those."""

    def __init__(self, problem: CollocationProblem, parts: KeyGroupParts, at: Ints) -> None:
        source, target = parts.of[problem.source], parts.of[problem.target]
        apart = source != target
        source, target = source[apart], target[apart]
        self._nodes = len(problem.balance.capacity)
        keys = np.concatenate((source * self._nodes + at[target], target * self._nodes + at[source]))
        self._keys, where = np.unique(keys, return_inverse=True)
        sending, receiving = problem.sending[apart], problem.receiving[apart]
        self._own = self._summed(where, np.concatenate((sending, receiving)))
        self._theirs = self._summed(where, np.concatenate((receiving, sending)))
        worth = worth_of_flows(problem)[apart]
        self._worth = self._summed(where, np.concatenate((worth, worth)))

    def _summed(self, where: Ints, amounts: Floats) -> Floats:
        """Sums per pair of part and node; the last entry, 0, is for pairs without traffic."""
        return np.append(np.bincount(where, amounts, len(self._keys)), 0.0).astype(np.float64)

    def own(self, part: Ints, node: Ints) -> Floats:
        """Load that `part` spends on tuples to and from `node` while it is elsewhere."""
        return self._own[self._index(part, node)]

    def theirs(self, part: Ints, node: Ints) -> Floats:
        """Load that the parts on `node` spend on the same tuples."""
        return self._theirs[self._index(part, node)]

    def worth(self, part: Ints, node: Ints) -> Floats:
        """Value of having `part` on `node`, together with its partners there."""
        return self._worth[self._index(part, node)]

    def _index(self, part: Ints, node: Ints) -> Ints:
        keys = part * self._nodes + node
        found = np.minimum(np.searchsorted(self._keys, keys), max(0, len(self._keys) - 1))
        if not len(self._keys):
            return found
        return np.where(self._keys[found] == keys, found, len(self._keys))


def worth_of_flows(problem: CollocationProblem) -> Floats:
    """(F,) value in load of having each flow local: what it costs while remote, or a nominal value if none costs."""
    total = float(problem.rate.sum())
    if problem.costly or not total:
        return problem.sending + problem.receiving
    return problem.rate / total * (NOMINAL_SHARE * float(problem.balance.load.sum()))


def worth_of_pairs(problem: CollocationProblem, pairs: Pairs) -> Floats:
    """(P,) value in load of having each pair together."""
    count = len(problem.operator)
    low, high = np.minimum(problem.source, problem.target), np.maximum(problem.source, problem.target)
    keys, at = np.unique(low * count + high, return_inverse=True)
    worth = np.bincount(at, worth_of_flows(problem), len(keys)).astype(np.float64)
    found: Floats = worth[np.searchsorted(keys, pairs.first * count + pairs.second)]
    return found


def part_pairs(parts: KeyGroupParts, pairs: Pairs) -> tuple[Ints, Ints]:
    """The pairs of different parts with a scored edge between them, each once."""
    first, second = parts.of[pairs.first], parts.of[pairs.second]
    keys = np.minimum(first, second) * len(parts.size) + np.maximum(first, second)
    keys = np.unique(keys[first != second])
    low, high = np.divmod(keys, max(1, len(parts.size)))
    return low, high


class OptionCollector:
    """Collects the options of one round; `at` (P,) = node of each part."""

    def __init__(
        self, problem: CollocationProblem, parts: KeyGroupParts, at: Ints, loads: Floats, worth: Floats
    ) -> None:
        """`loads` (K,) = predicted for `at`; `worth` (P,) = value of moving a part, in addition to what it saves."""
        self._problem, self._at, self._worth = problem, at, worth
        self._loads = parts.summed(loads)
        self._shares = parts.summed(budget_shares(problem.balance))
        self._free, self._may = parts.mobile(problem.balance), parts.problem.may
        self._leaving = parts.problem.to_leave(at)
        self._traffic = PartTraffic(problem, parts, at)

    def joins(self, first: Ints, second: Ints, max_partition_load: float) -> tuple[Ints, Ints]:
        """Moves of one of two parts to the node of the other, unless their union is too large for a part."""
        apart = self._at[first] != self._at[second]
        light = self._loads[first] + self._loads[second] <= max_partition_load * FITS
        fits = apart & light & (self._shares[first] + self._shares[second] <= FITS)
        first, second = first[fits], second[fits]
        part, node = np.concatenate((first, second)), self._at[np.concatenate((second, first))]
        return part, node

    def levelling(self, deviations: Floats) -> tuple[Ints, Ints]:
        """Moves from the hottest nodes, and of all that are to leave theirs, to the coldest."""
        balance = self._problem.balance
        kept = np.flatnonzero(balance.kept)
        coldest = kept[np.argsort(deviations[kept], kind="stable")[:COLDEST]]
        hottest = np.zeros(len(deviations), np.bool_)
        hottest[np.argsort(-deviations, kind="stable")[:HOTTEST]] = True
        marked = self._leaving
        part = np.flatnonzero((hottest[self._at] | marked) & self._free)
        marked_first = np.lexsort((-self._loads[part], ~marked[part]))
        part = part[marked_first[:MOST_GIVEN]]
        return np.repeat(part, len(coldest)), np.tile(coldest, len(part))

    def options(self, part: Ints, node: Ints, joining: int) -> MoveOptions:
        """The allowed ones of these moves, each once; the first `joining` moves join a scored pair."""
        balance, at = self._problem.balance, self._at
        joins = np.arange(len(part)) < joining
        first = np.unique(part * len(balance.capacity) + node, return_index=True)[1]  # joins come first
        part, node, joins = part[first], node[first], joins[first]
        allowed = self._free[part] & (at[part] != node) & balance.kept[node] & self._may(part, node)
        part, node, joins = part[allowed], node[allowed], joins[allowed]
        here, ties = at[part], self._traffic
        saved = ties.worth(part, node) - ties.worth(part, here)
        pays = ~joins | (saved + self._worth[part] > 0)
        part, node, here, joins, saved = part[pays], node[pays], here[pays], joins[pays], saved[pays]
        load, own_here, own_there = self._loads[part], ties.own(part, here), ties.own(part, node)
        found = MoveOptions(
            part=part,
            node=node,
            freed=load - ties.theirs(part, here),
            added=load + own_here - own_there - ties.theirs(part, node),
            saved=saved,
            joins=joins,
        )
        return _best(found)


def _best(options: MoveOptions) -> MoveOptions:
    """All moves for balance, and the `MOST_JOINS` joins that save most."""
    if int(options.joins.sum()) <= MOST_JOINS:
        return options
    rank = np.argsort(-np.where(options.joins, options.saved, np.inf), kind="stable")
    chosen = np.sort(rank[: int((~options.joins).sum()) + MOST_JOINS])
    return MoveOptions(**{name: getattr(options, name)[chosen] for name in MoveOptions.__slots__})


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
