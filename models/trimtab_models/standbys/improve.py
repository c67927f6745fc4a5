"""Improves first standbys domain by domain: moves, exchanges and promotions that relieve the worst survivor.

Each step lowers the load of the worst survivor of a domain's loss, and lets no worker rise to it.  What following costs
couples the domains; a step must leave every worker, after any other loss, below the worst value of all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.solving import Stop
from trimtab_models.standbys.bound import orphans_by_domain
from trimtab_models.standbys.evaluate import losses
from trimtab_models.standbys.ledger import Ledger, most_inherited
from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints

NEGLIGIBLE = 1e-6
"""Percent of a worker; a smaller gain is none."""
REFUSED = 40
"""Number of forbidden steps after which a domain's search ends."""
PASSES = 12
RELIEVED = 4
"""Number of key groups, those that cost most to follow, that a relieved worker tries to hand on."""


@dataclass(frozen=True, slots=True)
class _Step:
    """First standbys that change: (key group, new worker) each; or a promotion of the standby at `rank`."""

    moves: tuple[tuple[int, int], ...]
    rank: int = 0


class Improving:
    """A search over the first standbys of a ledger's assignment; `movable` (K,) says which may change."""

    def __init__(self, ledger: Ledger, bounds: Floats, movable: Bools, stop: Stop, steps: int) -> None:
        self._ledger = ledger
        self._problem = ledger.problem
        self._bounds = bounds
        self._movable = movable
        self._stop = stop
        self._left = steps
        self._orphans = orphans_by_domain(ledger.problem)
        self._top: Floats = most_inherited(self._problem, ledger.assignment)
        self._mean_bytes = float(self._problem.state_bytes.mean()) if len(self._problem.load) else 0.0
        self._cap = np.inf

    def run(self, slack: float) -> None:
        """Improve the domains whose highest load is above their bound by more than `slack`, worst first."""
        for _ in range(PASSES):
            found = losses(self._problem, self._ledger.assignment)
            worst = int(found.highest.argmax())
            self._cap = float(found.highest[worst])
            order = np.argsort(-found.highest, kind="stable")
            changed = False
            for domain in order[(found.highest - self._bounds)[order] > slack].tolist():
                if self._stop() or self._left <= 0:
                    return
                changed |= bool(self.improve(domain))
            if found.highest[worst] > self._bounds.max() + slack:
                changed |= self._relieve(int(found.worker[worst]))
            if not changed:
                return
            self._top = most_inherited(self._problem, self._ledger.assignment)

    def limit(self, worst: float) -> None:
        """Let no step raise a worker above `worst` (percent) after any loss."""
        self._cap = worst

    def improve_if(self, domain: int, least: float) -> None:
        """Improve a domain, unless the gain is less than `least`."""
        before, done = self._highest(domain), self.improve(domain)
        if before - self._highest(domain) < least:
            self.undo(done)

    def potential(self, domain: int) -> tuple[float, float]:
        """The gain (percent of a worker) and the bytes of improving a domain; the assignment stays as it is."""
        before, done = self._highest(domain), self.improve(domain)
        gain = before - self._highest(domain)
        moves = (move for step, _ in done for move in step.moves)
        price = sum(self._ledger.price(key_group, worker) for key_group, worker in moves)
        self.undo(done)
        return gain, price

    def improve(self, domain: int) -> list[tuple[_Step, tuple[int, ...]]]:
        """Take steps in one domain while they help; returns them, each with the workers that it left."""
        done: list[tuple[_Step, tuple[int, ...]]] = []
        while self._left > 0 and not self._stop():
            self._left -= 1
            step = self._best_step(domain)
            if step is None:
                break
            done.append((step, self._take(step)))
        if done:
            after = self._inherited(domain)
            self._top = np.maximum(self._top, after)
        return done

    def undo(self, done: list[tuple[_Step, tuple[int, ...]]]) -> None:
        """Take steps back."""
        for step, left in reversed(done):
            if step.rank:
                self._ledger.promote(step.moves[0][0], step.rank)
            for (key_group, _), worker in zip(step.moves, left, strict=True):
                if not step.rank:
                    self._ledger.move(key_group, worker)

    def _take(self, step: _Step) -> tuple[int, ...]:
        if step.rank:
            self._ledger.promote(step.moves[0][0], step.rank)
            return (UNPLACED,)
        return tuple(self._ledger.move(key_group, worker) for key_group, worker in step.moves)

    def _inherited(self, domain: int) -> Floats:
        orphans = self._orphans[domain]
        heirs = self._ledger.assignment[orphans, 0]
        placed = heirs != UNPLACED
        size = len(self._problem.capacity)
        return np.bincount(heirs[placed], self._ledger.inherited[orphans[placed]], size).astype(np.float64)

    def _after(self, domain: int) -> Floats:
        """(N,) loads after the loss; minus infinity for the lost."""
        after = self._ledger.loads + self._inherited(domain)
        after[self._problem.domain == domain] = -np.inf
        return after

    def _highest(self, domain: int) -> float:
        return float((self._after(domain) / self._problem.capacity).max(initial=0.0))

    def _best_step(self, domain: int) -> _Step | None:
        """The step with the largest gain, per byte where bytes must be restored."""
        problem = self._problem
        after = self._after(domain)
        relative = after / problem.capacity
        worst = int(relative.argmax())
        value = float(relative[worst])
        if value <= self._bounds[domain] + NEGLIGIBLE:
            return None
        orphans = self._orphans[domain]
        heirs = self._ledger.assignment[orphans, 0]
        on_worst = orphans[(heirs == worst) & self._movable[orphans]]
        others = orphans[(heirs != worst) & (heirs != UNPLACED) & self._movable[orphans]]
        if not len(on_worst):
            return None
        refused = 0
        for gain, step in self._steps(after, worst, value, on_worst, others):
            if gain <= NEGLIGIBLE or refused >= REFUSED:
                return None
            if self._is_allowed(step, worst):
                return step
            refused += 1
        return None

    def _steps(
        self, after: Floats, worst: int, value: float, on_worst: Ints, others: Ints
    ) -> Iterator[tuple[float, _Step]]:
        """Steps with their gains, the best first."""
        problem, heirs = self._problem, self._ledger.assignment[:, 0]
        capacity, load = problem.capacity, problem.load
        room = (self._cap * capacity - self._ledger.loads - self._top)[None, :]
        moved = load[on_worst][:, None]
        left = (after[worst] - moved) / capacity[worst]
        arrives = (after[None, :] + moved) / capacity
        arrives[:, (after == -np.inf) | problem.removing] = np.inf
        arrives[problem.follow[on_worst][:, None] > room + NEGLIGIBLE] = np.inf
        arrives[:, worst] = np.inf
        moves = value - np.maximum(arrives, left)
        at = heirs[others]
        difference = moved - load[others]
        exchanged = np.maximum(
            (after[at][None, :] + difference) / capacity[at], (after[worst] - difference) / capacity[worst]
        )
        exchanges = value - exchanged
        promotions = self._promotions(after, worst, value, on_worst)
        gains = np.concatenate((moves.ravel(), exchanges.ravel(), [gain for gain, _ in promotions]))
        prices = np.concatenate(
            (
                np.broadcast_to(self._prices(on_worst)[:, None], moves.shape).ravel(),
                (self._prices(on_worst)[:, None] + self._prices(others)).ravel(),
                np.zeros(len(promotions)),
            )
        )
        known = np.flatnonzero(gains > NEGLIGIBLE)
        worth = gains[known] / (self._mean_bytes + prices[known] + 1.0)
        for place in known[np.argsort(-worth, kind="stable")[: REFUSED + 1]].tolist():
            gain = float(gains[place])
            if place < moves.size:
                row, worker = divmod(place, moves.shape[1])
                yield gain, _Step(((int(on_worst[row]), worker),))
            elif place < moves.size + exchanges.size:
                row, column = divmod(place - moves.size, len(others))
                taken = int(others[column])
                yield gain, _Step(((int(on_worst[row]), int(heirs[taken])), (taken, worst)))
            else:
                yield promotions[place - moves.size - exchanges.size]

    def _prices(self, key_groups: Ints) -> Floats:
        """What moving each costs at least: a new standby has been paid for anyway."""
        problem = self._problem
        present = (problem.present[key_groups] == self._ledger.assignment[key_groups, :1]).any(axis=1)
        return np.where(present, problem.state_bytes[key_groups], 0.0)

    def _promotions(self, after: Floats, worst: int, value: float, on_worst: Ints) -> list[tuple[float, _Step]]:
        problem, found = self._problem, []
        for key_group in on_worst.tolist() if problem.wanted > 1 else ():
            load = self._ledger.inherited[key_group]
            for rank, other in enumerate(self._ledger.assignment[key_group].tolist()):
                if rank and other != UNPLACED:
                    left = (after[worst] - load) / problem.capacity[worst]
                    reached = max((after[other] + load) / problem.capacity[other], left)
                    found.append((value - reached, _Step(((key_group, other),), rank)))
        return found

    def _is_allowed(self, step: _Step, worst: int) -> bool:
        if step.rank:
            return True
        ledger, problem = self._ledger, self._problem
        if len(step.moves) == 1:
            return ledger.may_follow(*step.moves[0], leaves=worst)
        (given, other), (taken, _) = step.moves
        for worker, gets, loses in ((other, given, taken), (worst, taken, given)):
            more = problem.follow[gets] - problem.follow[loses]
            room = self._cap * problem.capacity[worker] - ledger.loads[worker] - self._top[worker]
            if more > room + NEGLIGIBLE and more > 0:
                return False
        # Each makes room for the other, so both leave before they are judged.
        ledger.move(given, UNPLACED)
        ledger.move(taken, UNPLACED)
        allowed = ledger.may_follow(given, other, leaves=UNPLACED)
        if allowed:
            ledger.move(given, other)
            allowed = ledger.may_follow(taken, worst, leaves=UNPLACED)
        ledger.move(given, worst)
        ledger.move(taken, other)
        return allowed

    def _relieve(self, worker: int) -> bool:
        """Hand on what a worker follows for other domains; its load falls after every loss."""
        problem, ledger = self._problem, self._ledger
        if worker < 0:
            return False
        followed = np.flatnonzero((ledger.assignment[:, 0] == worker) & self._movable & (problem.follow > 0))
        dearest = followed[np.argsort(-problem.follow[followed], kind="stable")[:RELIEVED]]
        changed = False
        for key_group in dearest.tolist():
            if self._stop() or self._left <= 0:
                break
            self._left -= 1
            domain = int(problem.domain[problem.owner[key_group]])
            follow, load = problem.follow[key_group], problem.load[key_group]
            anyway = (ledger.loads + follow + self._top) / problem.capacity
            reached = np.maximum(anyway, (self._after(domain) + load) / problem.capacity)
            reached[(problem.domain == domain) | problem.removing] = np.inf
            reached[worker] = np.inf
            target = int(reached.argmin())
            if reached[target] < self._cap - NEGLIGIBLE and ledger.may_follow(key_group, target, leaves=worker):
                ledger.move(key_group, target)
                self._top = np.maximum(self._top, self._inherited(domain))
                changed = True
        return changed
