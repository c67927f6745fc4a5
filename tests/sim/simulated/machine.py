"""The host that agents run on one after another, and its workers as an agent sees them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trimtab_agent.commands.events import Admitted, ProcessId
from trimtab_protocol.messages.names import HostId, WorkerId

CAPACITY_CORES = 1.0
"""Of every worker."""


class Worker(Protocol):
    """What an agent knows of a worker process."""

    id: WorkerId
    process: ProcessId
    alive: bool

    def connect(self) -> None:
        """There is an agent to connect to."""

    def hear(self, frame: bytes) -> None:
        """A frame from the agent."""

    def terminate(self) -> None:
        """SIGTERM."""


@dataclass(slots=True)
class Machine:
    """The host that an agent runs on: what survives it.

    `clock_ahead_s`: how wrong its clock is.  `dies_after` writes of the journal the agent is killed; None = it is not.
    """

    host: HostId
    folder: Path
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    start_worker: Callable[[WorkerId], Worker] = field(default=lambda worker: (_ for _ in ()).throw(KeyError(worker)))
    admitted: Callable[[Admitted], None] = field(default=lambda entry: None)
    clock_ahead_s: float = 0.0
    clock_was_wrong: bool = False
    dies_after: int | None = None
    zone: str | None = None
    durable_bytes: int = 0
