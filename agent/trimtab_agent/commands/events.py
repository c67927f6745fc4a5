"""Events, actions and journal entries of the command machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import MAX_INTEGER, Range, Text, Wire
from trimtab_protocol.messages.commands import Ack, Command, Phase
from trimtab_protocol.messages.names import AppId, CommandId, Epoch, KeyGroup, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process.  `created` (seconds after boot) distinguishes it from a later process with the same pid."""

    pid: Annotated[int, Range(1, MAX_INTEGER)]
    created: float


MAX_DETAIL = 200
"""Characters kept of how a worker ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorker:
    """A worker that the agent keeps running: it was told to start it, and not to stop it since.

    `at` = when it was started or crashed last (epoch seconds); `crashes` = how often it crashed in a row; `detail` =
    how it ended then.  `given_up`: the agent does not start it again by itself; without a crash, its start failed.
    """

    at: float
    crashes: int = 0
    detail: Annotated[str | None, Text(MAX_DETAIL)] = None
    given_up: bool = False


# --- events: what happened


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReceived:
    """A command was read.  Free bytes are those of now, on the worker's data disk and in memory; None = unknown."""

    command: Command
    free_disk_bytes: int | None = None
    free_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConnected:
    """A worker's plug-in connected.

    `process` None: not visible to the agent.  `reason`: why the worker is not steered.
    """

    worker: WorkerId
    app: AppId
    process: ProcessId | None
    steering: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDisconnected:
    """A worker's connection ended; its process may still run."""

    worker: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReported:
    """A worker reported key groups that it owns; all of them if `complete`."""

    worker: WorkerId
    owned: frozenset[KeyGroup]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAcked:
    """A worker answered a command."""

    worker: WorkerId
    ack: Ack


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted:
    """A worker's process runs: it was started, or found running."""

    worker: WorkerId
    process: ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFailed:
    """A worker's process could not be started or signalled."""

    worker: WorkerId
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnded:
    """A worker's process ended.  The exit code is known only for the agent's own children."""

    worker: WorkerId
    process: ProcessId
    exit_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckDelivered:
    """The broker has stored an ack."""

    command_id: CommandId
    phase: Phase


Event = (
    CommandReceived
    | WorkerConnected
    | WorkerDisconnected
    | WorkerReported
    | WorkerAcked
    | ProcessStarted
    | ProcessFailed
    | ProcessEnded
    | AckDelivered
)


# --- entries: what must survive


ENTRY = Wire(version=2)
"""The version of every line of the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A command and the first answer to it (accepted, refused, expired or done)."""

    WIRE: ClassVar[Wire] = ENTRY

    command: Command
    ack: Ack


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A further answer to a command."""

    WIRE: ClassVar[Wire] = ENTRY

    ack: Ack


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The broker has stored an ack."""

    WIRE: ClassVar[Wire] = ENTRY

    command_id: Annotated[CommandId, Text(64)]
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNoted:
    """The process of a worker that the agent started or is stopping; None = ended."""

    WIRE: ClassVar[Wire] = ENTRY

    worker: WorkerId
    process: ProcessId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNoted:
    """What the agent knows of a worker that it keeps running; None = it no longer does."""

    WIRE: ClassVar[Wire] = ENTRY

    worker: WorkerId
    kept: KeptWorker | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSeen:
    """The highest epoch seen in any command for this host."""

    WIRE: ClassVar[Wire] = ENTRY

    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """Entries before `at` (epoch seconds) were lost: commands issued until then may have been carried out."""

    WIRE: ClassVar[Wire] = ENTRY

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Next offset to read in one partition of the commands topic.  A re-created topic has another id."""

    WIRE: ClassVar[Wire] = ENTRY

    topic_id: str
    partition: int
    offset: int


Entry = Admitted | Acked | Delivered | ProcessNoted | KeptNoted | EpochSeen | Damaged | Position
ENTRIES: Mapping[str, type[Entry]] = {
    "admitted": Admitted,
    "acked": Acked,
    "delivered": Delivered,
    "process": ProcessNoted,
    "kept": KeptNoted,
    "epoch": EpochSeen,
    "damaged": Damaged,
    "position": Position,
}
"""The classes of entries, by the member `entry` of a line."""


# --- actions: what the driver must do, in this order


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Append an entry to the journal.  It must be on disk before the next action."""

    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAck:
    """Produce an ack to the acks topic, and retry until it is delivered."""

    ack: Ack


@dataclass(frozen=True, slots=True, kw_only=True)
class TellWorker:
    """Send a command to its worker, which recognises a repeat by the command's id."""

    worker: WorkerId
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProcess:
    """Find the worker's process, or start it."""

    worker: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class StopProcess:
    """Send SIGTERM to a process and watch for its end."""

    worker: WorkerId
    process: ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class SayCrash:
    """Log and count a crash of a worker that the agent keeps running."""

    worker: WorkerId
    kept: KeptWorker


Action = Write | SendAck | TellWorker | StartProcess | StopProcess | SayCrash
