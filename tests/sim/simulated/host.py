"""A host of the simulation."""

from dataclasses import dataclass, field

from tests.sim.simulated.agent import AgentProcess
from tests.sim.simulated.machine import Machine
from tests.sim.simulated.worker import WorkerProcess
from trimtab_protocol.messages.names import WorkerId


@dataclass(slots=True)
class Host:
    """A machine with what runs on it; `left`: it will not come back; `silent_since`: nobody hears of it.

    `joined_at` = when it came; None: it was always there.
    """

    machine: Machine
    names: list[WorkerId]
    agent: AgentProcess | None = None
    left: bool = False
    silent_since: float | None = None
    joined_at: float | None = None
    workers: dict[WorkerId, WorkerProcess] = field(default_factory=dict)
