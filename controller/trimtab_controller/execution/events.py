"""Events and actions of the execution, and its limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_controller.execution.state import Execution, Handover, Round
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.commands import Ack, Command, CommandKind
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Owners, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds and counts from the configuration's [execution]."""

    handovers_in_flight: int = 2
    key_groups_per_handover: int = 4
    prepare_timeout_s: float = 60.0
    handover_timeout_s: float = 20.0
    attempts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDecided:
    """Carry out this plan; `standbys` = new rows of key groups that it does not move."""

    plan: Plan
    standbys: Mapping[KeyGroup, Owners] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementWanted:
    """Publish the ownership as the reports show it: the first placement, or the engine decided otherwise.

    `standbys` = rows in which other workers stand by than before.
    """

    app: AppId
    owners: Mapping[KeyGroup, WorkerId]
    standbys: Mapping[KeyGroup, Owners] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbysWanted:
    """Publish rows in which other workers stand by than before; the owners stay."""

    app: AppId
    rows: Mapping[KeyGroup, Owners]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingWanted:
    """Stop an empty worker, or start a stopped one."""

    kind: CommandKind
    worker: WorkerId
    host: HostId


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWanted:
    """Take an app's placement back, or drop what is known of a worker; `answered`: keys of intents that end with it."""

    answered: tuple[str, ...]
    app: AppId | None = None
    worker: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckSeen:
    """An agent's ack has arrived."""

    ack: Ack


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSeen:
    """Who reported which key group as its own in a window that began at `start_s` (epoch seconds)."""

    start_s: float
    owners: Mapping[KeyGroup, WorkerId]


@dataclass(frozen=True, slots=True)
class Resumed:
    """A new leader took over this state: the commands in flight are published once more, with the same ids."""


Event = (
    PlanDecided | PlacementWanted | StandbysWanted | ScalingWanted | ForgetWanted | AckSeen | OwnershipSeen | Resumed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """To be written in one transaction: the state as journal entry, placements, commands, ends of intents (keys)."""

    execution: Execution
    placements: tuple[Placement, ...] = ()
    commands: tuple[Command, ...] = ()
    answered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverEnded:
    """For the log and the metrics."""

    handover: Handover


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """For the log and the metrics; the state has it as its last round."""

    round: Round


Action = Publish | HandoverEnded | RoundEnded
