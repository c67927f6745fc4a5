"""Events and actions of the execution, and its limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from trimtab_controller.execution.disruption import AppPauses, DisruptionSettings
from trimtab_controller.execution.state import Execution, GuardMode, GuardStop, Handover, Round, SizeChange
from trimtab_controller.plan import Plan
from trimtab_controller.rows import Sites
from trimtab_protocol.messages.codec import NotSent, Range
from trimtab_protocol.messages.commands import Ack, Command, CommandKind
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import PART_SIZE, Owners
from trimtab_protocol.messages.placement import Placement

if TYPE_CHECKING:  # it needs numpy, which commands that only read the configuration do without
    from trimtab_controller.execution.lags import JobWindow

Count = Annotated[int, Range(1, 10_000)]
Time = Annotated[float, Range(0.1, 86_400)]
"""Seconds."""
Rate = Annotated[float, Range(1e3, 1e12)]
"""Bytes per second."""
APPS_AT_FULL_SPEED = 4
"""So many apps may have all their hand-overs in flight; those of further apps wait for room."""
Lacking = Mapping[KeyGroup, Mapping[HostId, int]]
"""Bytes that the new standbys of key groups have to restore, by host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionLimits:
    """The configuration's [execution] and [disruption], and what of it is not configured.

    A hand-over whose key groups paused for more than `max_pause_s` halves the number of its app, and so does a window
    in which the app is behind by `max_lag_s` more than its plan found it (see `pace.py`, `lags.py`).  `guard`: what
    becomes of a plan from which a job suffers all the same.

    Restores begin so that a host restores no more bytes per second on average (None: no limit; see `pace.py`).
    """

    handovers_in_flight: Count = 32
    """Of one app."""
    handovers_per_host: Count = 8
    """Of all apps, from and to one host."""
    max_pause_s: Time = 5.0
    max_lag_s: Time = 10.0
    guard: GuardMode = GuardMode.ROLL_BACK
    restore_host_bytes_s: Rate | None = None
    key_groups_per_handover: Count = 4
    prepare_timeout_s: Time = 60.0
    handover_timeout_s: Time = 20.0
    attempts: Annotated[int, NotSent()] = 3
    restores_at_first: Annotated[int, NotSent()] = 4
    """A plan begins with so many restores, one on each host, and with more as windows show the job calm."""
    guard_windows: Annotated[int, NotSent()] = 3
    """The guard ends a plan after so many windows in a row in which the job fell behind, or so many long pauses."""
    guard_back_off_s: Annotated[float, NotSent()] = 600.0
    """After that the app gets no plan for balance for so long, after each further one twice as long."""
    schedule_restores: Annotated[bool, NotSent()] = True
    """By what restores have cost, choose the order of a plan's hand-overs, and how many a host prepares at a time.

    False: as the plan lists them, which `benchmarks/restoring` compares with.
    """
    key_groups_per_part: Annotated[int, NotSent()] = PART_SIZE
    """A placement of more key groups is published in parts of that size."""
    disruption: Annotated[DisruptionSettings, NotSent()] = DisruptionSettings()  # noqa: RUF009 - frozen
    """For how long key groups of an app may pause in an hour."""

    @property
    def handovers_in_cluster(self) -> int:
        """How many hand-overs of all apps may be in flight."""
        return APPS_AT_FULL_SPEED * self.handovers_in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDecided:
    """Carry out this plan.

    `standbys` = new rows of key groups that it does not move, `lacking` as in StandbysWanted.  `id` = that of the
    proposal which it was; None: it has not waited for approval.  `keep_until`: its key groups stay where it brings them
    until then (epoch seconds).  `answered` = keys of the intents that this ends.
    """

    plan: Plan
    standbys: Mapping[KeyGroup, Owners] = field(default_factory=dict)
    lacking: Lacking = field(default_factory=dict)
    id: str | None = None
    keep_until: float | None = None
    answered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProposed:
    """Keep this plan until an operator approves or rejects it, or until `expires_at` (epoch seconds)."""

    plan: Plan
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalDropped:
    """The plan with this id does not wait any longer.

    `rejected_until`: nothing else is proposed for the app until then (epoch seconds); None: it may be at once.
    """

    app: AppId
    plan: str
    detail: str
    rejected_until: float | None = None
    answered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentsAnswered:
    """End the intents with these keys."""

    answered: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementWanted:
    """Publish the reported ownership: as the first placement, or because the engine decided otherwise.

    `standbys` = rows with changed standbys, `lacking` as in StandbysWanted.
    """

    app: AppId
    owners: Mapping[KeyGroup, WorkerId]
    standbys: Mapping[KeyGroup, Owners] = field(default_factory=dict)
    lacking: Lacking = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbysWanted:
    """Publish rows with changed standbys; the owners stay.

    `lacking` = bytes that the new standbys of a key group restore, by host: such a row is published as soon as these
    hosts have room for the restores.  All others are published at once.
    """

    app: AppId
    rows: Mapping[KeyGroup, Owners]
    lacking: Lacking = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingWanted:
    """Stop or start a worker.  `app`: whose size this changes; None: an operator wants it.

    `owning`: it may own key groups when it is stopped, and remains a standby, since it is started again at once.
    """

    kind: CommandKind
    worker: WorkerId
    host: HostId
    app: AppId | None = None
    owning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeWanted:
    """Change the number of workers of an app: `start` these, `drain` those, `keep` those that were to leave.

    `start` = worker and host.  `change` None: this only corrects what was begun or, without an app, only ends the
    intents with the keys `answered`.
    """

    app: AppId | None
    start: Mapping[WorkerId, HostId] = field(default_factory=dict)
    drain: tuple[WorkerId, ...] = ()
    keep: tuple[WorkerId, ...] = ()
    change: SizeChange | None = None
    answered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWanted:
    """End the plan in flight of `app`, or of all apps (None).

    `answered`: keys of the intents that this ends.  `lost` = workers that no hand-over waits for any longer.
    """

    app: AppId | None
    reason: str
    answered: tuple[str, ...] = ()
    lost: frozenset[WorkerId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWanted:
    """Revoke an app's placement, or forget a worker.  `answered`: keys of the intents that this ends."""

    answered: tuple[str, ...]
    app: AppId | None = None
    worker: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckSeen:
    """An agent's ack has arrived."""

    ack: Ack


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """A host in a window; None = unknown.

    `link_bytes_s` = what plans and restores may fill of its link each way, `received_bytes_s` = what it received.
    """

    cores: float | None = None
    link_bytes_s: float | None = None
    received_bytes_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSeen:
    """What a window from `start_s` to `end_s` (epoch seconds) shows; None = it is not looked at for this."""

    start_s: float
    end_s: float
    owners: Mapping[KeyGroup, WorkerId] | None = None
    """The reported owner of each key group."""
    hosts: Mapping[HostId, HostReport] | None = None
    sites: Sites = field(default_factory=dict)
    """Where workers run; looked at together with `hosts`."""
    jobs: Mapping[AppId, "JobWindow"] | None = None
    """How much waits in each app."""
    pauses: Mapping[AppId, AppPauses] | None = None
    """For how long key groups of each app paused."""


@dataclass(frozen=True, slots=True)
class PlacementsLost:
    """The placements' topic was re-created: publish all placements again."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A new leader has taken over this state: publish the commands in flight again, with the same ids.

    `answered`: keys of the intents that this ends.
    """

    answered: tuple[str, ...] = ()


Event = (
    PlanDecided
    | PlanProposed
    | ProposalDropped
    | IntentsAnswered
    | PlacementWanted
    | StandbysWanted
    | StopWanted
    | ScalingWanted
    | ResizeWanted
    | ForgetWanted
    | AckSeen
    | WindowSeen
    | PlacementsLost
    | Resumed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Write in one transaction: the state as journal entry, placements, commands, tombstones of `answered` intents.

    `before` = the placements that the topic has of these apps.
    """

    execution: Execution
    placements: tuple[Placement, ...] = ()
    before: Mapping[AppId, Placement] = field(default_factory=dict)
    commands: tuple[Command, ...] = ()
    answered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverEnded:
    """A hand-over has ended: for log and metrics."""

    handover: Handover


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreEnded:
    """The target of a hand-over has become warm, `seconds` after its `prepare` was published: for log and metrics."""

    handover: Handover
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """A round has ended: for log and metrics."""

    round: Round


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceChanged:
    """From now on `after` hand-overs of the app may be in flight, until now `before`.

    One paused for `pause_s` seconds, or the app, or this `worker` of it, is behind by `lag_s` seconds more than its
    plan found it, or the `worker` does not report whole windows any more (neither).  For log and metrics.
    """

    app: AppId
    before: int
    after: int
    pause_s: float | None = None
    lag_s: float | None = None
    worker: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardActed:
    """The guard has ended a plan, or has judged what of it is to be moved back: for log and metrics."""

    stop: GuardStop


Action = Publish | RestoreEnded | HandoverEnded | RoundEnded | PaceChanged | GuardActed
