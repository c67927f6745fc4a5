"""The question to the solver's process and its answer: arrays in, indices of these arrays out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trimtab_controller.plan import Collocation

if TYPE_CHECKING:  # the solver's process sets the number of threads before it imports numpy
    import numpy as np
    from numpy.typing import NDArray


class Method(StrEnum):
    """The method of planning."""

    MILP = "milp"  # smallest load distance within the budget
    FLUX = "flux"  # a baseline: largest key groups from the most to the least loaded workers
    ALBIC = "albic"  # brings key groups that exchange tuples together, within a load distance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A balance problem of K key groups on N workers, and how long the solver may take (seconds).

    Loads are in percent of a worker of capacity 1.  `traffic` = bytes per second received and sent, None = no link is
    narrow enough to matter.  `hosts` None = no host has a limit.  `placing` None = there is no rule.  `copies` = where
    state is already, None = nowhere, or no disk and no memory is small enough to matter.  `pinned` key groups stay
    where they are, None = none does.  `flows` and `charge` with ALBIC only; `charge` = the load that the move of each
    key group must save at least.

    `potential`: no plan to carry out is wanted, but the loads that one with free moves would reach.
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
    time_limit_s: float
    method: Method = Method.MILP
    seed: int = 0
    hosts: "Hosts | None" = None
    traffic: "NDArray[np.float64] | None" = None  # (2, K)
    copies: "Copies | None" = None
    pinned: "NDArray[np.bool_] | None" = None  # (K,)
    placing: "Placing | None" = None
    charge: "NDArray[np.float64] | None" = None  # (K,)
    potential: bool = False

    @property
    def rows(self) -> int:
        """The number of key groups plus flows."""
        return len(self.load) + (len(self.flows.rate) if self.flows else 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hosts:
    """What the key groups of all these workers may use together on each of H hosts."""

    host: "NDArray[np.int32]"  # (N,) place of each worker's host
    cpu: "NDArray[np.float64]"  # (H,) in the unit of loads; infinite = no limit
    memory: "NDArray[np.float64]"  # (H,) bytes of state; infinite = no limit
    disk: "NDArray[np.float64]"  # (H,) bytes of state; infinite = no limit.  What leaves frees nothing
    link: "NDArray[np.float64]"  # (2, H) bytes per second to receive and to send; infinite = no limit
    memory_stays: bool = False  # a key group's old owner becomes a standby, and so keeps its state (but see Copies)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copies:
    """P workers that do not own a key group, and to which its move takes less disk or memory; all by their indices.

    `lacking` = the share of the state that they would still write; a standby lacks nothing.  `in_memory`: a move there
    takes no more memory on the host, as with a standby, or on the owner's host if the owner's copy goes.
    """

    key_group: "NDArray[np.int32]"  # (P,)
    worker: "NDArray[np.int32]"  # (P,)
    lacking: "NDArray[np.float64]"  # (P,) from 0 to 1
    in_memory: "NDArray[np.bool_]"  # (P,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placing:
    """Which workers key groups may be on by rules: C classes of key groups.  `frozen` ones stay where they are."""

    class_of: "NDArray[np.int32]"  # (K,) or -1: any worker
    allowed: "NDArray[np.bool_]"  # (C, N)
    frozen: "NDArray[np.bool_]"  # (K,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flows:
    """F flows between key groups, given by their indices, in tuples per second.

    `send_cost`, `receive_cost` = load at each end, per tuple per second, of a flow that goes to another worker.
    `by_broker` = whether its tuples go through the broker within a worker too.
    """

    source: "NDArray[np.int32]"  # (F,)
    target: "NDArray[np.int32]"  # (F,)
    rate: "NDArray[np.float64]"  # (F,)
    send_cost: "NDArray[np.float64]"  # (F,)
    receive_cost: "NDArray[np.float64]"  # (F,)
    by_broker: "NDArray[np.bool_]"  # (F,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A key group that cannot leave a worker being drained, given by their indices; `obstacle`: why not."""

    key_group: int
    worker: int
    obstacle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Potential:
    """What the plan with free moves reaches.

    `loads` (N,) = of each worker, in the unit of loads.  `left` = key groups that cannot leave workers being drained.
    `in_time`: the search came to its end; otherwise a better plan may exist.
    """

    loads: tuple[float, ...]
    left: int
    in_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan: moves as (key group, target), given by their indices in the question.

    `before` and `load_distance` are in pp, with ALBIC the latter with the loads after its collocations, the bound with
    those before.  `fallback`: Flux answered, because the solver did not.
    `collocation`: with ALBIC only.  `potential`: only where that was the question, and then there are no moves.
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
    potential: Potential | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """No plan was found, or the solver did not answer and Flux failed too."""

    reason: str
