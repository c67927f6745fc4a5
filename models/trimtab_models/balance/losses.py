"""What nodes can lose for what price: the knapsacks behind the bound and the first plans for budgets of bytes.

Theory.  At a trial distance d each node must lose its excess above the band, and may give more, down to the band's
lower end; together the nodes must cover the deficits below it.  Let g_i(s) be the least price of key groups of node i
that carry at least s.  Then every plan pays, for every price mu >= 0 of load, at least

    sum_i min over s >= excess_i of [g_i(s) - mu min(s, spare_i)]  +  mu deficit

This is concave in mu, and linear between the points where a node changes over from one set of key groups to another.
At its maximum the sets of all nodes just carry the deficits.

All g_i are solved for all s at once, on a grid.  Loads are rounded to grid steps: up for a bound, which then never
overestimates a price; to the nearest for plans, whose sets are listed with what they really carry.

Its inputs are those of all conditions of the bound: the movable key groups of each node, and how far nodes are outside
a trial band.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints

LARGEST = 60_000  # key groups; beyond, the tables take too long
CELLS, FINE_CELLS = 1024, 32_768  # steps of the grid of a node, at most
ENTRIES = 400_000  # nodes x cells of each kind of grid
LISTED = 4  # the finer grid has so many times fewer steps where loads are not rounded
SECTIONS = 40  # more than needed, unless rounding keeps the search from ending
EXACT = 1e-9
NOTHING = 1e-100  # a smaller load is taken as none
LEAST_ALLOWANCE = 1e-9  # of the largest price: a smaller budget is taken as so large


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The movable placed key groups (P), grouped by node, in a given order within each node."""

    key_groups: Ints  # (P,)
    load: Floats  # (P,)
    node: Ints  # (P,)
    first: Ints  # (N + 1,) index of each node's first piece
    before: Floats  # (P,) load of the earlier pieces of the same node
    running: Floats  # (P + 1,) running sum of load

    @classmethod
    def ordered(cls, problem: BalanceProblem, rank: Floats) -> "Pieces":
        """Pieces ordered by ascending `rank` (K,) within each node."""
        pieces = np.flatnonzero(problem.movable & (problem.home != UNPLACED))
        pieces = pieces[by_node(problem.home[pieces], rank[pieces])]
        node, load = problem.home[pieces], problem.load[pieces]
        first = np.concatenate(([0], np.cumsum(np.bincount(node, minlength=len(problem.capacity)))))
        running = np.concatenate(([0.0], np.cumsum(load)))
        return cls(
            key_groups=pieces, load=load, node=node, first=first,
            before=running[:-1] - running[first[node]], running=running,
        )  # fmt: skip


def by_node(node: Ints, rank: Floats) -> Ints:
    """The order of `np.lexsort((rank, node))`, in half the time: numpy sorts short integers by their digits."""
    order = np.argsort(rank, kind="stable")
    nodes = node[order]
    if len(nodes) and nodes.max() <= np.iinfo(np.uint16).max:
        nodes = nodes.astype(np.uint16)
    ordered: Ints = order[np.argsort(nodes, kind="stable")]
    return ordered


class Excesses:
    """Distance of every node from a trial band before any move, in percent of capacity 1."""

    def __init__(self, problem: BalanceProblem) -> None:
        self._problem = problem
        self._load = problem.node_loads(problem.home)
        self.unplaced = float(problem.load[problem.home == UNPLACED].sum())
        self.slack = 1e-11 * max(1.0, float(problem.load.sum()))  # for rounding: nothing is refuted wrongly

    def above(self, d: float) -> Floats:
        """(N,) load above the upper end of the band; negative below it."""
        return self._load - (self._problem.mean + d) * self._problem.capacity - self.slack

    def spare(self, d: float) -> Floats:
        """(N,) load that a node can give above the band's lower end; negative = deficit, infinite = draining."""
        spare = self._load - (self._problem.mean - d) * self._problem.capacity + self.slack
        return np.where(self._problem.removing, np.inf, spare)


def is_affordable(problem: BalanceProblem, chosen: Ints) -> bool:
    """Whether all `chosen` key groups can move within the budgets."""
    return bool((problem.prices[:, chosen].sum(axis=1) <= problem.allowances).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """The relaxed minimum at a trial: no plan costs less than `price`; infinite if no plan carries the deficits.

    `few`, `many` (N,): the sets of each node just below and above the price of load at which the deficits are covered;
    `short` = what `few` lacks.
    """

    price: float
    few: Ints
    many: Ints
    short: float


class LeavingSets:
    """X sets of movable key groups, grouped by node: of equally dear ones the one that carries most."""

    def __init__(self, problem: BalanceProblem, price: Floats, *, fine: Bools, listed: bool) -> None:
        """`price` (K,) of a move.  `fine` (N,) = the nodes with the finer grid.

        With `listed` the key groups of a set can be asked for, and loads are not rounded up.
        """
        self._listed = listed
        self.excesses, self._pieces = Excesses(problem), Pieces.ordered(problem, -problem.load)
        self._price_of = price[self._pieces.key_groups]
        cells = min(CELLS, ENTRIES // len(fine))
        finest = min(FINE_CELLS, ENTRIES // max(1, int(fine.sum())))
        finest = max(cells, finest // LISTED if listed else finest)
        empty = np.diff(self._pieces.first) == 0
        nothing = self._table(int(empty.argmax()), cells)
        self._tables = tables = [
            nothing if empty[node] else self._table(node, finest if fine[node] else cells) for node in range(len(fine))
        ]
        self.first: Ints = np.concatenate(([0], np.cumsum([len(table.load) for table in tables])))[:-1]
        self.node = np.repeat(np.arange(len(fine)), [len(table.load) for table in tables])
        self.load = np.concatenate([table.load for table in tables])
        self.price = np.concatenate([table.price for table in tables])
        self._most = np.maximum.reduceat(self.load, self.first)
        carrying = self._pieces.load > max(NOTHING, EXACT * float(self._pieces.load.sum()))
        self._dearest = float((self._price_of[carrying] / self._pieces.load[carrying]).max(initial=0.0))

    def key_groups(self, sets: Ints) -> Ints:
        """The key groups of one set per node."""
        first = self._pieces.first
        chosen = [
            place + first[node]
            for node in np.flatnonzero(sets > self.first).tolist()
            for place in self._members(self._tables[node], int(sets[node] - self.first[node]))
        ]
        return self._pieces.key_groups[np.array(chosen, np.int64)]

    @staticmethod
    def _members(table: "_Table", one: int) -> list[int]:
        return table.sets.members(int(table.cells[one]))

    def carried(self, d: float) -> Floats:
        """(X,) what each set brings to deficits in a band of `d`."""
        carried: Floats = np.minimum(self.load, np.maximum(0.0, self.excesses.spare(d))[self.node])
        return carried

    def cover(self, d: float) -> Cover:
        """The relaxed minimum for a load distance of `d`."""
        above = np.minimum(np.maximum(0.0, self.excesses.above(d)), self._most)
        carried = self.carried(d)
        price = np.where(self.load >= (above * (1 - EXACT))[self.node], self.price, np.inf)
        deficit = float(np.maximum(0.0, -self.excesses.spare(d)).sum()) - self.excesses.unplaced

        def line(mu: float) -> tuple[Ints, float, float]:
            """The best sets if load costs `mu`, their price, and what they lack."""
            sets = self._best(price - mu * carried)
            return sets, float(price[sets].sum()), deficit - float(carried[sets].sum())

        few, paid, short = line(0.0)
        if short <= self.excesses.slack:
            return Cover(price=paid, few=few, many=few, short=0.0)
        if deficit - float(np.maximum.reduceat(carried, self.first).sum()) > self.excesses.slack:
            return Cover(price=np.inf, few=few, many=few, short=short)
        high = self._dearest
        many, most_paid, spare = line(high)
        while spare > self.excesses.slack and high < 1e3 * self._dearest:
            few, paid, short, high = many, most_paid, spare, 4 * high
            many, most_paid, spare = line(high)
        best = max(paid, most_paid + high * min(0.0, spare))
        for _ in range(SECTIONS if spare < short else 0):
            mu = (most_paid - paid) / (short - spare)  # where the lines of both sides meet
            sets, trial_paid, trial = line(mu)
            reached = trial_paid + mu * trial
            best = max(best, reached)
            if reached >= (paid + mu * short) * (1 - EXACT):
                break
            if trial > 0:
                few, paid, short = sets, trial_paid, trial
            else:
                many, most_paid, spare = sets, trial_paid, trial
        return Cover(price=best, few=few, many=many, short=short)

    def _best(self, value: Floats) -> Ints:
        """(N,) the set of the least `value` (X,) of each node, the first of equals."""
        least = np.minimum.reduceat(value, self.first)
        found = np.flatnonzero(value <= least[self.node])
        sets: Ints = found[np.searchsorted(found, self.first)]
        return sets

    def _table(self, node: int, cells: int) -> "_Table":
        """The sets of one node that are cheaper than all that carry more."""
        own = slice(self._pieces.first[node], self._pieces.first[node + 1])
        load, price = self._pieces.load[own], self._price_of[own]
        step = max(float(load.sum()), 1e-300) / cells
        rounded: Floats = np.rint(load / step) if self._listed else np.ceil(load / step)
        sets = Sets(rounded.astype(np.int64), price, load if self._listed else None)
        from_here = np.minimum.accumulate(sets.least[::-1])[::-1]
        found = np.flatnonzero(np.append(from_here[:-1] < from_here[1:], True))
        carried: Floats = sets.carried[found] if self._listed else np.multiply(found, step, dtype=np.float64)
        return _Table(load=carried, price=sets.least[found], cells=found, sets=sets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Sets of a node: `load`, `price` (x,), and the `cells` (x,) of the grid that they fill."""

    load: Floats
    price: Floats
    cells: Ints
    sets: "Sets"


class Sets:
    """The cheapest set of n key groups for each number of grid steps; `least` is infinite where there is none."""

    def __init__(self, steps: Ints, price: Floats, load: Floats | None = None, *, most: int | None = None) -> None:
        """`steps`, `price` (n,) of the key groups; with `load` (n,), `carried` is what the sets really carry.

        Sets of more than `most` steps are left out.
        """
        self._steps: list[int] = steps.tolist()
        self._taken: list[Bools] = []
        most = sum(self._steps) if most is None else min(most, sum(self._steps))
        self.least: Floats = np.full(most + 1, np.inf)
        self.least[0] = 0.0
        self.carried: Floats = np.zeros(len(self.least) if load is not None else 0)
        reach = 0
        for place, (width, cost) in enumerate(zip(self._steps, price.tolist(), strict=True)):
            reach = min(reach + width, most)
            before, after = slice(0, max(0, reach + 1 - width)), slice(width, reach + 1)
            with_it = self.least[before] + cost
            cheaper = with_it < self.least[after]
            if load is not None:
                np.copyto(self.carried[after], self.carried[before] + load[place], where=cheaper)
            np.minimum(self.least[after], with_it, out=self.least[after])
            self._taken.append(cheaper)

    def members(self, cell: int) -> list[int]:
        """The key groups of the set that fills `cell`, by their place."""
        found = []
        for place in range(len(self._steps) - 1, -1, -1):
            rest = cell - self._steps[place]
            if rest >= 0 and self._taken[place][rest]:
                found.append(place)
                cell = rest
        return found
