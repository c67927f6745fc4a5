"""Improves first standbys domain by domain: moves, exchanges and promotions that relieve the worst survivor.

Each step lowers the load of the worst survivor of a domain's loss, and lets no worker rise to it.  What following costs
couples the domains; a step must leave every worker, after any other loss, below the worst value of all.

A ledger keeps what the assignment costs and uses up to date while standbys move.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.solving import StopRule
from trimtab_models.standbys.bound import orphans_by_domain
from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints, StandbyProblem, is_new, losses

EXACT = 1e-9
TABLE = 4_000_000
"""Most entries, domains by workers, of a table of what each worker inherits; larger problems compute it on demand."""
NEGLIGIBLE = 1e-6
"""Percent of a worker; a smaller gain is none."""
REFUSED = 40
"""Number of forbidden steps after which a domain's search ends."""
PASSES = 12
RELIEVED = 12
"""Number of key groups, those that cost most to follow, that a relieved worker tries to hand on."""
HEAVIEST, ROOMS = 3, 3
"""Number of key groups for which room is made, and of workers that are tried for each."""
EXCHANGED = 4
"""Number of exchanges that are tried for each of them."""
TARGETS = 100
"""Most workers that are considered for a move."""
LONGEST = 10_000
"""Most steps in one domain."""


class LossLedger:
    """An assignment with the loads, the use of resources, and the restores that it begins.

    `top` (N,) = the most that each worker inherits from one domain, beyond what following costs.  In a large problem it
    may be too high, until `refresh`.
    """

    def __init__(self, problem: StandbyProblem, assignment: Ints) -> None:
        self.problem = problem
        self.assignment = assignment
        self.loads = problem.loads(assignment)
        self.inherited = problem.load - problem.follow
        self._domain = problem.domain[problem.owner]
        self._table = self._tabled() if problem.domains * len(problem.capacity) <= TABLE else None
        self.top = most_inherited(problem, assignment)
        rows = [problem.followed(assignment, usage) for usage in problem.usage]
        self._used = np.array(rows).reshape(problem.limit.shape)
        key_group, rank = np.nonzero(is_new(problem, assignment))
        target, size = assignment[key_group, rank], len(problem.capacity)
        self._begun = np.bincount(target, minlength=size).astype(np.float64)
        self._begun_bytes = np.bincount(target, problem.state_bytes[key_group], size).astype(np.float64)

    def _tabled(self) -> Floats:
        problem = self.problem
        table = np.zeros((problem.domains, len(problem.capacity)))
        if self.assignment.size:
            heirs = self.assignment[:, 0]
            placed = np.flatnonzero(heirs != UNPLACED)
            np.add.at(table, (self._domain[placed], heirs[placed]), self.inherited[placed])
        return table

    def inherited_from(self, domain: int, orphans: Ints) -> Floats:
        """(N,) what each worker inherits from the domain with these orphans, beyond what following costs."""
        if self._table is not None:
            row: Floats = self._table[domain]
            return row
        heirs = self.assignment[orphans, 0]
        placed = heirs != UNPLACED
        found = np.bincount(heirs[placed], self.inherited[orphans[placed]], len(self.loads))
        return found.astype(np.float64)

    def worst(self) -> tuple[float, int, int]:
        """The highest load after any one loss (percent of capacity), of which worker, and which domain's loss."""
        while True:
            relative = (self.loads + self.top) / self.problem.capacity
            worker = int(relative.argmax())
            by_domain = self._inherited_by(worker)
            domain = int(by_domain.argmax())
            if by_domain[domain] >= self.top[worker] - EXACT:
                return float(relative[worker]), worker, domain
            self.top[worker] = by_domain[domain]

    def _inherited_by(self, worker: int) -> Floats:
        """(D,) what a worker inherits from each domain, beyond what following costs."""
        if self._table is not None:
            column: Floats = self._table[:, worker]
            return column
        followed = np.flatnonzero(self.assignment[:, 0] == worker)
        found = np.bincount(self._domain[followed], self.inherited[followed], self.problem.domains)
        return found.astype(np.float64)

    def refresh(self) -> None:
        """Compute `top` exactly."""
        if self._table is None:
            self.top = most_inherited(self.problem, self.assignment)

    def price(self, key_group: int, worker: int) -> float:
        """Bytes that `worker` must restore to follow the key group: none if it does so at present."""
        known = worker in self.problem.present[key_group]
        return 0.0 if known else float(self.problem.state_bytes[key_group])

    def may_follow(self, key_group: int, worker: int, *, leaves: int) -> bool:
        """Whether `worker` may take the place of the standby at `leaves`, by domains, limits and budgets."""
        problem, found = self.problem, self.assignment[key_group]
        owner = problem.owner[key_group]
        names = problem.levels[problem.outside[key_group]]
        if problem.removing[worker] or names[worker] == names[owner]:
            return False
        names = problem.levels[problem.apart[owner]]
        if any(names[worker] == names[other] for other in found if other not in (UNPLACED, leaves)):
            return False
        if (self._used[:, worker] + problem.usage[:, key_group] > problem.limit[:, worker]).any():
            return False
        return self._affordable(key_group, worker, leaves)

    def _affordable(self, key_group: int, worker: int, leaves: int) -> bool:
        budget, price = self.problem.budget, self.price(key_group, worker)
        if not price and worker in self.problem.present[key_group]:
            return True
        back = 0.0 if leaves in self.problem.present[key_group] else 1.0
        returned = back * self.problem.state_bytes[key_group]
        count, size = self._begun[worker] + 1, self._begun_bytes[worker] + price
        in_all, bytes_in_all = self._begun.sum() + 1 - back, self._begun_bytes.sum() + price - returned
        here = count <= 1 or (count <= budget.worker_changes and size <= budget.worker_bytes)
        return bool(here and (in_all <= 1 or (in_all <= budget.changes and bytes_in_all <= budget.state_bytes)))

    def move(self, key_group: int, worker: int) -> int:
        """Put the first standby on another worker (UNPLACED: nowhere); returns where it was."""
        before = int(self.assignment[key_group, 0])
        self.assignment[key_group, 0] = worker
        for place, sign in ((before, -1.0), (worker, 1.0)):
            if place != UNPLACED:
                self._book(key_group, place, sign)
                self._inherit(key_group, place, sign)
        return before

    def promote(self, key_group: int, rank: int) -> None:
        """Exchange the first standby and the one at `rank`; nothing is restored for it."""
        row = self.assignment[key_group]
        self._inherit(key_group, int(row[0]), -1.0)
        row[0], row[rank] = row[rank], row[0]
        self._inherit(key_group, int(row[0]), 1.0)

    def _inherit(self, key_group: int, worker: int, sign: float) -> None:
        more = sign * self.inherited[key_group]
        if self._table is None:
            self.top[worker] += max(0.0, more)
            return
        domain = self._domain[key_group]
        self._table[domain, worker] += more
        self.top[worker] = self._table[:, worker].max()

    def _book(self, key_group: int, worker: int, sign: float) -> None:
        problem = self.problem
        self.loads[worker] += sign * problem.follow[key_group]
        self._used[:, worker] += sign * problem.usage[:, key_group]
        if worker not in problem.present[key_group]:
            self._begun[worker] += sign
            self._begun_bytes[worker] += sign * problem.state_bytes[key_group]


def most_inherited(problem: StandbyProblem, assignment: Ints) -> Floats:
    """(N,) the most that each worker inherits from one domain, in load beyond what following costs."""
    top = np.zeros(len(problem.capacity))
    if not assignment.size:
        return top
    heir = assignment[:, 0]
    placed: Bools = heir != UNPLACED
    size = len(problem.capacity)
    codes, place = np.unique(problem.domain[problem.owner[placed]] * size + heir[placed], return_inverse=True)
    sums = np.bincount(place.reshape(-1), (problem.load - problem.follow)[placed], len(codes))
    np.maximum.at(top, codes % size, sums)
    return top


@dataclass(frozen=True, slots=True)
class _Step:
    """First standbys that change: (key group, new worker) each; or a promotion of the standby at `rank`."""

    moves: tuple[tuple[int, int], ...]
    rank: int = 0


_Done = list[tuple[_Step, tuple[int, ...]]]
"""Steps that were taken, each with the workers that its key groups left."""


class Improving:
    """A search over the first standbys of a ledger's assignment; `movable` (K,) says which may change."""

    def __init__(self, ledger: LossLedger, bounds: Floats, movable: Bools, stop: StopRule, steps: int) -> None:
        self._ledger = ledger
        self._problem = ledger.problem
        self._bounds = bounds
        self._movable = movable
        self._stop = stop
        self._left = steps
        self._orphans = orphans_by_domain(ledger.problem)
        self._mean_bytes = float(self._problem.state_bytes.mean()) if len(self._problem.load) else 0.0
        self._cap = np.inf
        self._least = NEGLIGIBLE

    @property
    def left(self) -> int:
        """Steps that it may still take."""
        return self._left

    def run(self, slack: float) -> None:
        """Lower the worst value of all, then the highest load of each domain that is above its bound by `slack`.

        For the latter a step must gain as much: they are many, and matter less.
        """
        for _ in range(PASSES):
            self._least = NEGLIGIBLE
            self.lower_worst(float(self._bounds.max(initial=0.0)) + NEGLIGIBLE)
            self._least = max(NEGLIGIBLE, slack)
            found = losses(self._problem, self._ledger.assignment)
            self.limit(float(found.highest.max(initial=0.0)))
            order = np.argsort(-found.highest, kind="stable")
            changed = False
            for domain in order[(found.highest - self._bounds)[order] > slack].tolist():
                if self._stop() or self._left <= 0:
                    return
                changed |= bool(self.improve(domain))
            if not changed:
                return
            self._ledger.refresh()

    def lower_worst(self, enough: float) -> _Done:
        """Relieve the worst worker after the worst loss, until that fails or the worst value is low `enough`."""
        ledger = self._ledger
        done: _Done = []
        while self._left > 0 and not self._stop():
            highest, worker, domain = ledger.worst()
            self.limit(highest)
            if highest <= enough:
                break
            steps = self.improve(domain, most=1) or self._relieve(worker) or self._make_room(domain, worker)
            if not steps:
                break
            done += steps
        return done

    def limit(self, worst: float) -> None:
        """Let no step raise a worker above `worst` (percent) after any loss."""
        self._cap = worst

    def lower_worst_if(self, enough: float, least: float) -> None:
        """Lower the worst value of all, unless the gain is less than `least`."""
        before, done = self._ledger.worst()[0], self.lower_worst(enough)
        self._ledger.refresh()
        if before - self._ledger.worst()[0] < least:
            self.undo(done)

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

    def improve(self, domain: int, most: int = LONGEST) -> _Done:
        """Take steps in one domain while they help; returns them, each with the workers that it left."""
        done: _Done = []
        while len(done) < most and self._left > 0 and not self._stop():
            self._left -= 1
            step = self._best_step(domain)
            if step is None:
                break
            done.append((step, self._take(step)))
        return done

    def undo(self, done: _Done) -> None:
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

    def _after(self, domain: int) -> Floats:
        """(N,) loads after the loss; minus infinity for the lost."""
        after = self._ledger.loads + self._ledger.inherited_from(domain, self._orphans[domain])
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
        steps = self._steps(after, worst, value, on_worst, others)
        return next((step for step in steps if self._is_allowed(step, worst)), None)

    def _steps(self, after: Floats, worst: int, value: float, on_worst: Ints, others: Ints) -> Iterator[_Step]:
        """Steps that gain something, the best first; at most REFUSED."""
        problem, heirs = self._problem, self._ledger.assignment[:, 0]
        capacity, load = problem.capacity, problem.load
        targets = self._least_loaded(after)
        room = self._cap * capacity[targets] - self._ledger.loads[targets] - self._ledger.top[targets]
        moved = load[on_worst][:, None]
        left = (after[worst] - moved) / capacity[worst]
        arrives = (after[targets] + moved) / capacity[targets]
        arrives[problem.follow[on_worst][:, None] > room + NEGLIGIBLE] = np.inf
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
        known = np.flatnonzero(gains > self._least)
        worth = gains[known] / (self._mean_bytes + prices[known] + 1.0)
        for place in known[np.argsort(-worth, kind="stable")[:REFUSED]].tolist():
            if place < moves.size:
                row, column = divmod(place, moves.shape[1])
                yield _Step(((int(on_worst[row]), int(targets[column])),))
            elif place < moves.size + exchanges.size:
                row, column = divmod(place - moves.size, len(others))
                taken = int(others[column])
                yield _Step(((int(on_worst[row]), int(heirs[taken])), (taken, worst)))
            else:
                yield promotions[place - moves.size - exchanges.size][1]

    def _least_loaded(self, after: Floats) -> Ints:
        """The able survivors, in a large problem only those with the least load."""
        able = np.flatnonzero((after > -np.inf) & ~self._problem.removing)
        if len(able) <= TARGETS:
            return able
        return able[np.argpartition((after / self._problem.capacity)[able], TARGETS)[:TARGETS]]

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
            room = self._cap * problem.capacity[worker] - ledger.loads[worker] - ledger.top[worker]
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

    def _relieve(self, worker: int) -> _Done:
        """Hand on something that a worker follows: its load falls after every loss."""
        problem, ledger = self._problem, self._ledger
        if worker < 0:
            return []
        followed = np.flatnonzero((ledger.assignment[:, 0] == worker) & self._movable & (problem.follow > 0))
        dearest = followed[np.argsort(-problem.follow[followed], kind="stable")[:RELIEVED]]
        found = [each for key_group in dearest.tolist() for each in self._reliefs(key_group, worker)]
        for reached, step in sorted(found, key=lambda each: each[0])[:REFUSED]:
            if reached < self._cap - NEGLIGIBLE and self._is_allowed(step, worker):
                self._left -= 1
                return [(step, self._take(step))]
        return []

    def _make_room(self, domain: int, worker: int) -> _Done:
        """Move what weighs most at the worst survivor to a worker that first hands on what it follows."""
        problem, ledger = self._problem, self._ledger
        orphans = self._orphans[domain]
        inherited = orphans[(ledger.assignment[orphans, 0] == worker) & self._movable[orphans]]
        for key_group in inherited[:HEAVIEST].tolist():  # the largest load comes first
            least = (problem.own + problem.load[key_group]) / problem.capacity
            least[problem.beside(key_group) | problem.removing] = np.inf
            for target in np.argsort(least, kind="stable")[:ROOMS].tolist():
                if least[target] >= self._cap - NEGLIGIBLE:
                    break
                done = self._cleared(domain, key_group, target)
                if done is not None and ledger.may_follow(key_group, target, leaves=worker):
                    step = _Step(((key_group, target),))
                    return [*done, (step, self._take(step))]
                self.undo(done or [])
        return []

    def _cleared(self, domain: int, key_group: int, target: int) -> _Done | None:
        """Relieve `target` until it can take the key group; None, and all as before, if it cannot."""
        problem, ledger = self._problem, self._ledger
        done: _Done = []
        while True:
            after = self._after(domain)[target] + problem.load[key_group]
            anyway = ledger.loads[target] + ledger.top[target] + problem.follow[key_group]
            if max(after, anyway) / problem.capacity[target] < self._cap - NEGLIGIBLE:
                return done
            steps = self._relieve(target) if self._left > 0 else []
            if not steps:
                self.undo(done)
                return None
            done += steps

    def _reliefs(self, key_group: int, worker: int) -> Iterator[tuple[float, _Step]]:
        """The best move and the best exchanges of one key group, with the worst value that they lead to."""
        problem, ledger = self._problem, self._ledger
        capacity = problem.capacity
        domain = int(problem.domain[problem.owner[key_group]])
        follow, load = problem.follow[key_group], problem.load[key_group]
        after = self._after(domain)
        reached = np.maximum((ledger.loads + follow + ledger.top), after + load) / capacity
        reached[problem.beside(key_group) | problem.removing] = np.inf
        reached[worker] = np.inf
        left = self._cap - follow / capacity[worker]
        target = int(reached.argmin())
        yield max(float(reached[target]), left), _Step(((key_group, target),))
        orphans = self._orphans[domain]
        heirs = ledger.assignment[orphans, 0]
        lighter = problem.follow[orphans] < follow
        others = orphans[lighter & (heirs != worker) & (heirs != UNPLACED) & self._movable[orphans]]
        at = ledger.assignment[others, 0]
        more = follow - problem.follow[others]
        reached = np.maximum(ledger.loads[at] + more + ledger.top[at], after[at] + load - problem.load[others])
        value = np.maximum(reached / capacity[at], self._cap - more / capacity[worker])
        for place in np.argsort(value, kind="stable")[:EXCHANGED].tolist():
            yield float(value[place]), _Step(((key_group, int(at[place])), (int(others[place]), worker)))
