"""Commands from the controller to an agent, and the acks that answer them.

A command is one step of a plan.  Its id is a hash of its content, so that an agent recognises a repeat.  It carries an
epoch (an agent refuses one older than it has seen), a deadline and, for hand-overs, the owner that it expects.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from trimtab_protocol.messages.codec import Distinct, Most, Name, Range, Text, Wire
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import AppId, CommandId, Epoch, HostId, KeyGroupName, WorkerId
from trimtab_protocol.messages.report import MAX_COUNT

VERSION = 1
MAX_KEY_GROUPS = 10_000
"""Key groups of one command."""
MAX_ACK_BYTES = 64 * 1024
"""Size of an ack; the longest that the limits of its fields allow is half of that."""


class CommandKind(StrEnum):
    """What the agent must do."""

    PREPARE = "prepare"  # to the new owner's agent: open the state and follow the changelog
    RELEASE = "release"  # to the old owner's agent: finish events, commit, release the key groups
    ABANDON = "abandon"  # to the new owner's agent: close prepared state that it will not take over
    REJOIN = "rejoin"  # to any agent: its worker joins the group again, which rebalances by the placement
    START = "start"  # start a worker process
    STOP = "stop"  # stop a worker process: an empty one, unless the command says `owning`


MIGRATIONS = frozenset({CommandKind.PREPARE, CommandKind.RELEASE, CommandKind.ABANDON})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One step for the agent of `host`, about its `worker`.

    `epoch` = epoch of the publication that contains it; `issued_at`, `deadline` = epoch seconds.
    Prepare, release and abandon set four fields, all other kinds none of them: `key_groups` move from worker `source`
    to worker `target`, and `handover` names the hand-over, the same in all its commands.
    `generation` (release only) = the group generation in which the prepare was answered.
    `owning` (stop only): the worker may own key groups.  It ends in order, and the group gives these to other workers.
    """

    WIRE: ClassVar = Wire(version=VERSION, derived=("id",))

    cluster: Name
    kind: CommandKind
    epoch: Epoch
    host: HostId
    worker: WorkerId
    app: AppId | None
    issued_at: float
    deadline: float
    handover: Name | None = None
    key_groups: Annotated[tuple[KeyGroupName, ...], Most(MAX_KEY_GROUPS), Distinct()] = ()
    source: WorkerId | None = None
    target: WorkerId | None = None
    generation: int | None = None
    owning: bool = False

    def __post_init__(self) -> None:
        migration = self.kind in MIGRATIONS
        parts = (bool(self.key_groups), self.source is not None, self.target is not None, self.handover is not None)
        if parts != (migration,) * 4:
            raise BadMessage(Fault.MISSING, "key_groups", parts, f"key groups, source, target, handover: {migration}")
        if (self.generation is not None) != (self.kind is CommandKind.RELEASE):
            raise BadMessage(Fault.MISSING, "generation", self.generation, "a generation with release only")
        if self.owning and self.kind is not CommandKind.STOP:
            raise BadMessage(Fault.RANGE, "owning", self.owning, "false, except in a stop")
        if self.deadline <= self.issued_at:
            raise BadMessage(Fault.RANGE, "deadline", self.deadline, f"after issued_at {self.issued_at}")
        if any(key_group.app != self.app for key_group in self.key_groups):
            raise BadMessage(Fault.RANGE, "key_groups", self.key_groups, f"key groups of app {self.app}")

    @property
    def id(self) -> CommandId:
        """32 hex digits of the SHA-256 of epoch, kind, worker, source, target and key groups."""
        parts = [str(self.epoch), self.kind, self.worker, self.source or "", self.target or ""]
        parts += sorted(str(key_group) for key_group in self.key_groups)
        return CommandId(hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32])


class Phase(StrEnum):
    """How far a command has got."""

    ACCEPTED = "accepted"  # verified, journalled, handed to the worker
    PREPARED = "prepared"  # prepare: the standby is warm
    RELEASED = "released"  # release: the old owner has released the key groups
    TOOK = "took"  # prepare: the new owner owns the key groups; the hand-over is complete
    ABANDONED = "abandoned"  # abandon: what was prepared is closed
    REJOINED = "rejoined"  # rejoin: the worker joins the group again
    STARTED = "started"  # start: the process runs
    STOPPED = "stopped"  # stop: the process has ended
    REFUSED = "refused"  # not carried out; the refusal says why
    EXPIRED = "expired"  # not carried out: its deadline has passed


class Refusal(StrEnum):
    """Why a command was not carried out."""

    OLD_EPOCH = "old_epoch"  # older than one that was seen before
    UNKNOWN_WORKER = "unknown_worker"  # no worker of this name is known here
    WORKER_AWAY = "worker_away"  # the worker is not connected to the agent
    NOT_STEERING = "not_steering"  # the plug-in only reports (unsupported version or kind of app)
    PRECONDITION = "precondition"  # the key group is not at the owner that the command names
    GENERATION = "generation"  # a rebalance started a new group generation
    NOT_PREPARED = "not_prepared"  # the key group is owned here already, or its tables are not followed
    DRAIN_TIMEOUT = "drain_timeout"  # events in work did not finish in time
    CATCH_UP_TIMEOUT = "catch_up_timeout"  # reading the changelog took too long
    COMMIT_REFUSED = "commit_refused"  # the broker refused the commit: the worker lost its membership
    NOT_EMPTY = "not_empty"  # stop: the worker still owns key groups
    NOT_CONFIGURED = "not_configured"  # start: the agent has no command line for this worker
    GUARD = "guard"  # the host is short of disk or memory (`[guard]` in agent.toml)
    FAILED = "failed"  # an unexpected error; see `detail`
    UNSIGNED = "unsigned"  # no signature
    UNKNOWN_KEY = "unknown_key"  # signed with a key that is not trusted
    WRONG_SIGNATURE = "wrong_signature"  # the signature is of something else


UNVERIFIED = frozenset({Refusal.UNSIGNED, Refusal.UNKNOWN_KEY, Refusal.WRONG_SIGNATURE})
"""Refusals of records without a trusted signature.  Their acks name the record, not the command it claims to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """How far a command has got: `phase` was reached `at` (epoch seconds).  A command gets several acks.

    `refusal` is set exactly when the phase is REFUSED; `detail` = text for the log.  `generation` = group generation in
    which the worker acted; `lag_records` = changelog records that the prepared state is behind; `state_bytes` = size of
    the prepared state; `pause_s` = seconds in which the key groups were not processed; `exit_code` of a stopped
    process. None = unknown or not applicable.
    """

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_ACK_BYTES)

    cluster: Name
    command_id: Annotated[CommandId, Text(64)]
    epoch: Epoch
    kind: CommandKind
    host: HostId
    worker: WorkerId
    phase: Phase
    at: float
    handover: Name | None = None
    refusal: Refusal | None = None
    detail: Annotated[str | None, Text(4000)] = None
    generation: int | None = None
    lag_records: int | None = None
    state_bytes: Annotated[int | None, Range(0, MAX_COUNT)] = None
    pause_s: float | None = None
    exit_code: Annotated[int | None, Range(-255, 255)] = None

    def __post_init__(self) -> None:
        if (self.refusal is not None) != (self.phase is Phase.REFUSED):
            raise BadMessage(Fault.MISSING, "refusal", self.refusal, "a reason with refused only")

    @classmethod
    def to(cls, command: Command, phase: Phase, *, at: float, **told: Any) -> Self:
        """An ack of this command from its host and worker; `told` = further fields."""
        return cls(
            cluster=command.cluster,
            command_id=command.id,
            epoch=command.epoch,
            kind=command.kind,
            host=command.host,
            worker=command.worker,
            phase=phase,
            at=at,
            handover=command.handover,
            **told,
        )
