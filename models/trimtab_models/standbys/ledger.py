"""What an assignment costs and uses, kept up to date while standbys move."""

import numpy as np

from trimtab_models.standbys.evaluate import is_new
from trimtab_models.standbys.problem import UNPLACED, Bools, Floats, Ints, StandbyProblem

EXACT = 1e-9
TABLE = 4_000_000
"""Most entries, domains by workers, of a table of what each worker inherits; larger problems compute it on demand."""


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

    def move(self, key_group: int, worker: int, rank: int = 0) -> int:
        """Put a standby on another worker (UNPLACED: nowhere); returns where it was."""
        before = int(self.assignment[key_group, rank])
        self.assignment[key_group, rank] = worker
        for place, sign in ((before, -1.0), (worker, 1.0)):
            if place != UNPLACED:
                self._book(key_group, place, sign)
                if not rank:
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
