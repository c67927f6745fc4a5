"""Brings nodes into a target band by trades between the most and the least loaded nodes, in rounds of many pairs.

For each pair there is an ideal transfer of load, which puts both nodes where the band leaves them most room.  Key
groups are sorted by load, so binary search finds, for each key group of the giver, the best one of the taker in
exchange.  A round thus examines every shift and nearly every swap of thousands of pairs in a few array operations.

A trade is chosen by the violations that it removes, minus the price of its moves.  The price of a move is a share of
what an average move must achieve, all violations / budget left.  Without a price, a round would spend the budget on
trades that gain little.  If the price is too low for the budget, bisection raises it.

Rounds continue while they gain.  The search in `tabu.py` handles the rest; it is slower, but can pass through worse
states.
"""

from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import Bools, Floats, Ints
from trimtab_models.balance.tabu import EPSILON_PP, Band, SearchState
from trimtab_models.solving import StopRule

LOOKED_AT = 32  # random key groups of a giver that are tried in swaps; enough for dense differences
ROUNDS = 60
GAINED = 0.98  # a round that leaves a larger share of the violations is a blank
BLANKS = 2  # consecutive blanks before giving up; each has other random pairs
OUTSIDERS = 32  # nodes outside the band that are tried with several partners after a blank
PARTNERS_EACH = 16
NOISE = 0.02  # of the band: random variation of the pairs
BISECTIONS = 5
USED = 0.95  # of what is left: a round that spends more is not worth another trial price
DEAREST = 1e9
ROUND_STEPS = 5  # cost of a round with few trades, in steps of the tabu search


@dataclass(frozen=True, slots=True, kw_only=True)
class Partners:
    """Q pairs of nodes, and the ideal load to transfer from each `giver` to its `taker`."""

    giver: Ints  # (Q,)
    taker: Ints  # (Q,)
    transfer: Floats  # (Q,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trades:
    """X trades: `given` goes from the giver of `pair` to its taker, `taken` the other way (-1 = nothing)."""

    pair: Ints  # (X,)
    given: Ints  # (X,)
    taken: Ints  # (X,)
    gain: Floats  # (X,) pp of violations removed
    price: Floats  # (B, X)

    def part(self, chosen: Ints | Bools) -> "Trades":
        """The chosen trades."""
        return Trades(
            pair=self.pair[chosen], given=self.given[chosen], taken=self.taken[chosen],
            gain=self.gain[chosen], price=self.price[:, chosen],
        )  # fmt: skip


class SortedKeyGroups:
    """The movable key groups of nodes, sorted by load; each node has a list of those at home and one of those away."""

    def __init__(self, state: SearchState, nodes: Ints) -> None:
        put_up = np.zeros(len(state.capacity), np.bool_)
        put_up[nodes] = True
        key_groups = np.flatnonzero(put_up[state.at] & state.movable)
        shelf = 2 * state.at[key_groups] + (state.at[key_groups] != state.home[key_groups])
        self._heaviest = max(1e-300, float(state.load[key_groups].max(initial=0.0)))
        key = shelf + 0.5 * (state.load[key_groups] / self._heaviest)
        order = np.argsort(key, kind="stable")
        self._key, self._shelf, self._key_groups = key[order], shelf[order], key_groups[order]
        self._bounded = np.concatenate(([-1], self._shelf, [-1]))  # no list beyond the ends

    def nearest(self, node: Ints, kind: int, load: Floats) -> tuple[Ints, Ints]:
        """(Y,) the key groups next to `load` (X,) in the list `kind` of `node`, and which of X each is for."""
        shelf = 2 * node + kind
        share = np.maximum(0.0, np.minimum(load / self._heaviest, 1.5))
        above = np.searchsorted(self._key, shelf + 0.5 * share)
        before, after = (np.flatnonzero(self._bounded[place] == shelf) for place in (above, above + 1))
        found = np.concatenate((above[before] - 1, above[after]))
        return self._key_groups[found], np.concatenate((before, after))

    def sample(self, node: Ints, random: np.random.Generator) -> tuple[Ints, Ints]:
        """About `LOOKED_AT` key groups of each node in `node` (X,), and which of X each is for."""
        first = np.searchsorted(self._shelf, 2 * node)
        count = np.searchsorted(self._shelf, 2 * node + 2) - first
        wanted = np.minimum(count, LOOKED_AT)
        which = np.repeat(np.arange(len(node)), wanted)
        rank = np.arange(len(which)) - np.repeat(np.cumsum(wanted) - wanted, wanted)
        stride = count[which] / wanted[which]  # evenly spread over the list
        position = first[which] + ((rank + random.random(len(which))) * stride).astype(np.int64)
        return self._key_groups[position], which


class Trader:
    """Rounds of trades on `state`, which they change in place and never put over its budgets."""

    def __init__(
        self, state: SearchState, band: Band, random: np.random.Generator, stop: StopRule, *, thrift: float
    ) -> None:
        """`thrift` = price of a move, as a share of what an average move must achieve."""
        self._state, self._band, self._random, self._stop = state, band, random, stop
        self._thrift = thrift
        self._violations = band.violations(state.deviations, state.removing)
        self._floor = np.where(state.removing, np.inf, band.under)
        self.steps = 0

    def run(self, steps: int) -> bool:
        """Trade until rounds gain nothing, or for about `steps` trades; returns whether the band is reached."""
        blanks, before, few = 0, np.inf, False
        for _ in range(ROUNDS):
            if self._violations.max(initial=0.0) <= EPSILON_PP:
                return True
            if blanks > BLANKS or self.steps >= steps or self._stop():
                break
            total = float(self._violations.sum())
            blanks = 0 if total < GAINED * before else blanks + 1
            before = min(total, before)
            few |= blanks > 0 and int((self._violations > EPSILON_PP).sum()) <= OUTSIDERS
            partners = self._several(max(1, blanks)) if blanks or few else self._extremes()
            if len(partners.giver):
                self._apply(partners, self._chosen(partners))
        return False

    def _extremes(self) -> Partners:
        """The i-th most loaded node with the i-th least loaded one, if one of them is outside the band."""
        state, band = self._state, self._band
        scale = NOISE * (0.5 * (band.over + band.under) + float(self._violations.max()))
        order = np.flatnonzero(~state.removing | (self._violations > 0))
        order = order[np.argsort(-state.deviations[order] - self._random.normal(0.0, scale, len(order)), kind="stable")]
        half = len(order) // 2
        return self._partners(order[:half], order[::-1][:half])

    def _several(self, blanks: int) -> Partners:
        """Some nodes outside the band, each with several of the most complementary nodes, of more after each blank."""
        state = self._state
        outside = np.flatnonzero(self._violations > EPSILON_PP)
        chosen = self._random.permutation(outside)[:OUTSIDERS]
        high = chosen[state.deviations[chosen] > 0]
        low = chosen[state.deviations[chosen] <= 0]
        ascending = np.argsort(state.deviations, kind="stable")
        takers, givers = ascending[~state.removing[ascending]], ascending[::-1]
        pool = max(PARTNERS_EACH, blanks * len(ascending) // 4)
        near = [self._random.permutation(side[:pool])[:PARTNERS_EACH] for side in (takers, givers)]
        giver = np.concatenate((np.repeat(high, len(near[0])), np.tile(near[1], len(low))))
        taker = np.concatenate((np.tile(near[0], len(high)), np.repeat(low, len(near[1]))))
        return self._partners(giver, taker)

    def _partners(self, giver: Ints, taker: Ints) -> Partners:
        """The pairs that may exchange load and gain by it."""
        state, band = self._state, self._band
        outside = (self._violations[giver] > EPSILON_PP) | (self._violations[taker] > EPSILON_PP)
        chosen = outside & ~state.removing[taker] & (state.deviations[giver] > state.deviations[taker])
        giver, taker = giver[chosen], taker[chosen]
        high, low = state.deviations[giver], state.deviations[taker]
        here, there = state.capacity[giver], state.capacity[taker]
        least = np.maximum((high - band.over) * here, (-band.under - low) * there)
        most = np.minimum((high + self._floor[giver]) * here, (band.over - low) * there)
        return Partners(giver=giver, taker=taker, transfer=0.5 * (least + most))

    def _candidates(self, partners: Partners) -> tuple[Ints, Ints, Ints]:
        """(pair, given, taken) of the shifts and swaps closest to the ideal transfers."""
        state = self._state
        sorted_key_groups = SortedKeyGroups(state, np.concatenate((partners.giver, partners.taker)))
        swapping = np.flatnonzero(~state.removing[partners.giver])  # a draining node takes nothing
        tried, which = sorted_key_groups.sample(partners.giver[swapping], self._random)
        pair = swapping[which]
        found = []
        for kind in (0, 1):
            given, shift = sorted_key_groups.nearest(partners.giver, kind, partners.transfer)
            found.append((shift, given, np.full(len(given), -1)))
            taken, swap = sorted_key_groups.nearest(
                partners.taker[pair], kind, state.load[tried] - partners.transfer[pair]
            )
            found.append((pair[swap], tried[swap], taken))
        pair, given, taken = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return pair, given, taken

    def _trades(self, partners: Partners) -> Trades:
        """The candidates that gain and keep the limits, with their gains and prices."""
        state, band = self._state, self._band
        pair, given, taken = self._candidates(partners)
        giver, taker, swap = partners.giver[pair], partners.taker[pair], taken >= 0
        load = state.load[given] - np.where(swap, state.load[taken], 0.0)
        gain = self._violations[giver] + self._violations[taker]
        gain -= band.violations(state.deviations[giver] - load / state.capacity[giver], state.removing[giver])
        gain -= band.violations(state.deviations[taker] + load / state.capacity[taker], state.removing[taker])
        possible = gain > EPSILON_PP
        if len(state.limit):
            possible &= ~self._too_full(given, taken, giver, taker)
        if state.allowed is not None:
            possible &= state.allowed.may(given, taker) & (~swap | state.allowed.may(taken, giver))
        kept = np.flatnonzero(possible)
        kept = kept[np.argsort(pair[kept], kind="stable")]
        gain = gain - 1e-6 * np.abs(load - partners.transfer[pair])  # among equals prefer the one that leaves most room
        pair, given, taken, giver, taker = pair[kept], given[kept], taken[kept], giver[kept], taker[kept]
        price = state.prices[:, given] * _leaves(state.home[given], giver, taker)
        price += np.where(taken >= 0, state.prices[:, taken] * _leaves(state.home[taken], taker, giver), 0.0)
        return Trades(pair=pair, given=given, taken=taken, gain=gain[kept], price=price)

    def _too_full(self, given: Ints, taken: Ints, giver: Ints, taker: Ints) -> Bools:
        """(X,) the trades after which a limit is exceeded."""
        state, swap = self._state, taken >= 0
        added = state.usage_on(given, taker) - np.where(swap, state.usage_on(taken, taker), 0.0)
        full = state.used[:, taker] + added > state.limit[:, taker]
        added = np.where(swap, state.usage_on(taken, giver), 0.0) - state.usage_on(given, giver)
        back = state.used[:, giver] + added > state.limit[:, giver]
        too_full: Bools = np.logical_or.reduce(full | back, axis=0)
        return too_full

    def _chosen(self, partners: Partners) -> Trades:
        """The best exchange of each pair, at the lowest price of a move that keeps the round within the budget."""
        trades = self._trades(partners)
        if not len(trades.pair):
            return trades
        left = np.maximum(0.0, self._state.allowances - self._state.spent)
        price = self._thrift * float(self._violations.sum()) / max(1.0, float(left.sum())) if len(left) else 0.0
        market = _Market(partners, trades)
        choice, spent = market.best(price)
        fits = market.fits(spent, left)
        low = high = price
        while high < DEAREST and not fits:
            low, high = high, 4 * high
            choice, spent = market.best(high)
            fits = market.fits(spent, left)
        for _ in range(BISECTIONS if fits and high > low else 0):
            if (spent >= USED * left).any():
                break
            middle = 0.5 * (low + high)
            trial, trial_spent = market.best(middle)
            if market.fits(trial_spent, left):
                high, choice, spent = middle, trial, trial_spent
            else:
                low = middle
        return trades.part(choice if fits else choice[:0])

    def _apply(self, partners: Partners, trades: Trades) -> None:
        state = self._state
        giver, taker = partners.giver[trades.pair], partners.taker[trades.pair]
        swap = trades.taken >= 0
        given, taken = trades.given, trades.taken[swap]
        state.at[given], state.at[taken] = taker, giver[swap]
        load = state.load[given]
        load[swap] -= state.load[taken]
        state.deviations[giver] -= load / state.capacity[giver]
        state.deviations[taker] += load / state.capacity[taker]
        if len(state.limit):  # each node takes part in one trade
            state.used[:, giver] -= state.usage_on(given, giver)
            state.used[:, taker] += state.usage_on(given, taker)
            state.used[:, giver[swap]] += state.usage_on(taken, giver[swap])
            state.used[:, taker[swap]] -= state.usage_on(taken, taker[swap])
        state.spent = state.spent + trades.price.sum(axis=1)
        touched = np.concatenate((giver, taker))
        self._violations[touched] = self._band.violations(state.deviations[touched], state.removing[touched])
        self.steps += max(ROUND_STEPS, len(given))


class _Market:
    """The trades of a round, grouped by pair."""

    def __init__(self, partners: Partners, trades: Trades) -> None:
        self._trades, self._price = trades, trades.price.sum(axis=0)
        self._first = np.flatnonzero(trades.pair[1:] != trades.pair[:-1]) + 1
        self._first = np.concatenate(([0], self._first))
        pair = trades.pair[self._first]
        self._giver, self._taker = partners.giver[pair], partners.taker[pair]
        self._group = np.repeat(np.arange(len(pair)), np.diff(np.append(self._first, len(trades.pair))))

    def best(self, price: float) -> tuple[Ints, Floats]:
        """The best trade of each pair if a move costs `price` pp, each node in one at most, and (B,) what all cost."""
        value = self._trades.gain - price * self._price
        best = np.maximum.reduceat(value, self._first)
        groups = np.flatnonzero(best > 0)
        groups = groups[np.argsort(-best[groups], kind="stable")]
        groups = groups[_disjoint(self._giver[groups], self._taker[groups])]
        candidates = np.flatnonzero(value == best[self._group])
        winners = candidates[np.searchsorted(candidates, self._first[groups])]
        return winners, self._trades.price[:, winners].sum(axis=1)

    @staticmethod
    def fits(spent: Floats, left: Floats) -> bool:
        """Whether a round that costs `spent` (B,) keeps within what is `left` (B,)."""
        return bool((spent <= left + EPSILON_PP).all())


def _leaves(home: Ints, source: Ints, target: Ints) -> Floats:
    """1 where a key group leaves home, -1 where it returns, else 0."""
    factor: Floats = (home == source).astype(np.float64) - (home == target)
    return factor


def _disjoint(giver: Ints, taker: Ints) -> Ints:
    """Positions of pairs, chosen in order, that share no node with an earlier chosen pair."""
    busy: set[int] = set()
    chosen = []
    for position, (one, other) in enumerate(zip(giver.tolist(), taker.tolist(), strict=True)):
        if one not in busy and other not in busy:
            busy.update((one, other))
            chosen.append(position)
    return np.array(chosen, np.int64)
