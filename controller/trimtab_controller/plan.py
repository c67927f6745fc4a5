"""A plan: the moves of one round and their reason, passed from the decider to the execution."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import Most, Name, NotSent, Text, Wire
from trimtab_protocol.messages.names import AppId, HostId, KeyGroupName, WorkerId
from trimtab_protocol.messages.placement import MAX_MOVING


class PlanReason(StrEnum):
    """Why a plan is made; status and metrics use these names."""

    DRAIN = "drain"
    COLLOCATION = "collocation"
    LOAD_DISTANCE = "load_distance"
    FIRST = "first_placement"
    LOSS = "loss"
    RULES = "rules"
    MOVE = "move"  # an operator chose its moves
    UNDO = "undo"  # an operator takes back the moves of another plan
    ROLL_BACK = "roll_back"  # the guard takes back moves from which the job suffers

    @property
    def by_operator(self) -> bool:
        """Whether an operator chose the moves."""
        return self in (PlanReason.MOVE, PlanReason.UNDO)

    @property
    def may_wait(self) -> bool:
        """Whether it may wait for approval: an operator's own word does not, nor what has no owner."""
        return self in (PlanReason.LOAD_DISTANCE, PlanReason.COLLOCATION, PlanReason.FIRST, PlanReason.RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of one key group from `source` to `target`; `state_bytes` None = not measured.

    `lacking_bytes` = how much of the state the target has to restore, because it has a copy of the rest on its disk.
    None: it has none, or is a standby.  Those of the highest `priority` begin first.
    """

    WIRE: ClassVar = Wire(row=True)

    key_group: KeyGroupName
    source: WorkerId
    target: WorkerId
    state_bytes: int | None
    lacking_bytes: Annotated[int | None, NotSent()] = None
    priority: Annotated[int, NotSent()] = 0

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise ValueError(f"{self.key_group} would move from {self.source} to itself")

    @property
    def to_restore(self) -> int:
        """Bytes that the target restores, as far as they are known."""
        return (self.state_bytes or 0) if self.lacking_bytes is None else self.lacking_bytes


class MoveReason(StrEnum):
    """Why a key group leaves its worker; events use these names."""

    DRAIN = "drain"  # the worker is being drained
    LOSS = "loss"  # the worker is lost
    FIRST = "first_placement"
    HOST_FULL = "host_full"  # its host is asked for more of a resource than it has
    OVER_MEAN = "over_mean"  # the worker has more than the mean load
    UNDER_MEAN = "under_mean"  # it has not, but the target has less
    COLLOCATION = "collocation"  # it exchanges tuples with key groups of the target
    RULE = "rule"  # a rule wants it on another worker
    MAKES_ROOM = "makes_room"  # for another key group that comes in exchange
    MOVE = "move"  # an operator moves it
    UNDO = "undo"  # an operator takes back the move of another plan
    ROLL_BACK = "roll_back"  # its worker has fallen behind since another plan moved it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWhy:
    """What a plan was made for.

    `reasons` and `loads` (percent of a core) have one entry per move; `before` and `after` = the predicted load of each
    worker, in percent of its capacity, `mean_load` that of all that stay.
    """

    reasons: tuple[MoveReason, ...]
    loads: tuple[float, ...]
    before: Mapping[WorkerId, float]
    after: Mapping[WorkerId, float]
    mean_load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collocation:
    """Share of the tuples between key groups that stay within a worker, from 0 to 1.

    `saved_pp`: by how much the mean load falls because fewer tuples go between workers (pp of capacity).  `spared_s`:
    tuples per second that no longer go through the broker.
    """

    before: float
    planned: float
    saved_pp: float
    spared_s: float = 0.0

    @property
    def gain_pp(self) -> float:
        """The gain of the plan, in percentage points of the tuples."""
        return 100.0 * (self.planned - self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The moves of one round of one app.

    `detail`: the reason in numbers and names, for the operator.
    `before` and `planned` are load distances in pp; no plan within the budget has one below `lower_bound`.
    `status` is the solver's, `fallback` True when the solver was killed and Flux answered.
    `hosts` has the host of every worker named in a move, but not of one that is lost; `cores` those of hosts, as far as
    known.
    `to_standbys` = how many moves go to a standby, which has little to restore; `to_copies` = how many go to a worker
    with a copy of the state on its disk, which restores the rest.
    `collocation` None: not part of this plan.  `note`: anything else that the operator should know.  `why`: of the
    moves; None for a plan after a loss.
    """

    app: AppId
    reason: PlanReason
    detail: Annotated[str, Text(4000)]
    moves: Annotated[tuple[Move, ...], Most(MAX_MOVING)]
    hosts: Annotated[Mapping[WorkerId, HostId], Most(2 * MAX_MOVING)]
    before: float
    planned: float
    lower_bound: float
    status: Name
    fallback: bool = False
    solve_s: Annotated[float, NotSent()] = 0.0
    collocation: Annotated[Collocation | None, NotSent()] = None
    note: Annotated[str, Text(4000)] = ""
    cores: Annotated[Mapping[HostId, float], NotSent()] = field(default_factory=dict)
    to_standbys: Annotated[int, NotSent()] = 0
    to_copies: Annotated[int, NotSent()] = 0
    why: Annotated[PlanWhy | None, NotSent()] = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.moves:
            raise ValueError("a plan needs a move")
        moved = {move.key_group for move in self.moves}
        if len(moved) != len(self.moves):
            raise ValueError("a plan moves each key group once")
        workers = {worker for move in self.moves for worker in (move.target, *([] if self.lost else [move.source]))}
        if missing := workers - self.hosts.keys():
            raise ValueError(f"no host is known for {sorted(missing)}")
        object.__setattr__(self, "hosts", MappingProxyType({worker: self.hosts[worker] for worker in sorted(workers)}))

    @property
    def lost(self) -> bool:
        """Whether the sources are lost: the targets become the next owners as soon as the consumer group notices."""
        return self.reason is PlanReason.LOSS
