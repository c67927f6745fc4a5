"""A plan: the moves of one round and why; what the decider hands to the execution."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId


class PlanReason(StrEnum):
    """Why a plan is made, under the name that status and metrics use."""

    DRAIN = "drain"
    COLLOCATION = "collocation"
    LOAD_DISTANCE = "load_distance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One key group leaves `source` for `target`; `state_bytes` None = not measured."""

    key_group: KeyGroup
    source: WorkerId
    target: WorkerId
    state_bytes: int | None

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise ValueError(f"{self.key_group} would move from {self.source} to itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collocation:
    """Share of the tuples between key groups that stay within a worker, from 0 to 1.

    `saved_pp`: by how much the mean load falls with what these tuples cost between workers (pp of capacity).
    """

    before: float
    planned: float
    saved_pp: float

    @property
    def gain_pp(self) -> float:
        """What a plan brings, in percentage points of the tuples."""
        return 100.0 * (self.planned - self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The moves of one round of one app.

    `detail`: the reason in numbers and names, for the operator.
    `before` and `planned` are load distances in pp, `lower_bound` what is provably reachable within the budget.
    `status` is the solver's, `fallback` True when the solver was killed and the greedy method answered.
    `hosts` has the host of every worker named in a move; `collocation` None: not part of this plan.
    `note`: what else the operator should know.
    """

    app: AppId
    reason: PlanReason
    detail: str
    moves: tuple[Move, ...]
    hosts: Mapping[WorkerId, HostId]
    before: float
    planned: float
    lower_bound: float
    status: str
    fallback: bool = False
    solve_s: float = 0.0
    collocation: Collocation | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if not self.moves:
            raise ValueError("a plan needs a move")
        moved = {move.key_group for move in self.moves}
        if len(moved) != len(self.moves):
            raise ValueError("a plan moves each key group once")
        workers = {worker for move in self.moves for worker in (move.source, move.target)}
        if missing := workers - self.hosts.keys():
            raise ValueError(f"no host is known for {sorted(missing)}")
        object.__setattr__(self, "hosts", MappingProxyType({worker: self.hosts[worker] for worker in workers}))
