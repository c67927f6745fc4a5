"""What goes to the solver's process and what comes back: arrays in, places in these arrays out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trimtab_controller.plan import Collocation

if TYPE_CHECKING:  # the solver's process sets the number of threads before it imports numpy
    import numpy as np
    from numpy.typing import NDArray


class Method(StrEnum):
    """How plans are made."""

    MILP = "milp"  # the least load distance within the budget
    ALBIC = "albic"  # key groups that talk to each other come together, within a load distance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A balance problem of K key groups on N workers, and how long the solver may take (seconds).

    Loads are in percent of a worker of capacity 1.  `flows` (with ALBIC only) are tuples per second, and `remote_cost`
    is the load of a tuple per second that goes to another worker, at each of both ends.
    """

    load: "NDArray[np.float64]"  # (K,)
    state_bytes: "NDArray[np.int64]"  # (K,)
    operator: "NDArray[np.int32]"  # (K,)
    owner: "NDArray[np.int32]"  # (K,) place of the worker
    capacity: "NDArray[np.float64]"  # (N,)
    draining: "NDArray[np.bool_]"  # (N,)
    flows: "Flows | None"
    max_migrations: int
    max_load_distance: float
    remote_cost: float
    time_limit_s: float
    method: Method = Method.MILP
    seed: int = 0

    @property
    def rows(self) -> int:
        """How many key groups and flows there are."""
        return len(self.load) + (len(self.flows.rate) if self.flows else 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flows:
    """F flows between key groups, by their places."""

    source: "NDArray[np.int32]"  # (F,)
    target: "NDArray[np.int32]"  # (F,)
    rate: "NDArray[np.float64]"  # (F,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A key group that cannot leave a worker that is being drained, by their places; `obstacle`: why not."""

    key_group: int
    worker: int
    obstacle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Moves as (key group, target), by their places in the question; `before` and `load_distance` in pp.

    `fallback`: the solver did not answer, the greedy method did.  `collocation`: of ALBIC only.
    """

    moves: tuple[tuple[int, int], ...]
    status: str
    before: float
    load_distance: float
    lower_bound: float
    solve_s: float
    fallback: bool = False
    stuck: tuple[Stuck, ...] = ()
    collocation: Collocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """There is no plan, or the greedy method failed too."""

    reason: str
