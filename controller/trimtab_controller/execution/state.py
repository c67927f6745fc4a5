"""The execution state: a frozen value, journalled with each publication so that a new leader can continue from it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, ClassVar

from trimtab_controller.execution.disruption import Disruption
from trimtab_controller.plan import Plan, PlanReason
from trimtab_protocol.messages.codec import (
    MAX_INTEGER,
    Distinct,
    Inline,
    Lenient,
    Most,
    Name,
    NotSent,
    Range,
    Text,
    Wire,
)
from trimtab_protocol.messages.commands import MAX_KEY_GROUPS, Command, CommandKind, Refusal
from trimtab_protocol.messages.names import (
    AppId,
    CommandId,
    Epoch,
    HostId,
    KeyGroup,
    KeyGroupName,
    OperatorId,
    WorkerId,
)
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import MAX_MOVING, Placement


class HandoverPhase(StrEnum):
    """The phase of a hand-over; the last three are final."""

    WAITING = "waiting"  # until fewer hand-overs are in flight, or for the next attempt
    PREPARING = "preparing"  # `prepare` is published
    RELEASING = "releasing"  # `release` is published: source and target talk to each other
    RESOLVING = "resolving"  # no clear answer after the release: the next reports show the owner
    DONE = "done"
    FAILED = "failed"  # the owner is the source, or the worker that the reports show
    UNRESOLVED = "unresolved"  # the reports did not show an owner in time; the placement names the target


MAX_ROWS = 100_000
"""Rows of one array of the journal."""
MAX_DETAIL = 100_000
"""Characters of a detail in the journal."""
IN_FLIGHT = frozenset({HandoverPhase.PREPARING, HandoverPhase.RELEASING, HandoverPhase.RESOLVING})
ENDED = frozenset({HandoverPhase.DONE, HandoverPhase.FAILED, HandoverPhase.UNRESOLVED})
GUARDED = frozenset({PlanReason.LOAD_DISTANCE, PlanReason.COLLOCATION})
"""The plans that the guard ends: those that the job can do without.  All others it only slows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Key groups that move from one worker to another in one release.

    `previous` = the row of each key group in the placement before the move.  `since` = when the phase began.  `wake_at`
    (epoch seconds) = earliest start while WAITING, time-out while in flight; None = none.  `pause_s` is measured by the
    new owner.  `lacking_bytes` = what the target has to restore because it has copies of the rest on its disk; None: it
    has none.  `priority` = the highest of its moves; those with the highest begin first.  `refusal` = the last one of
    this attempt.  These three are not in the journal: a new leader takes the target for cold, keeps the order, and asks
    the reports.
    """

    id: Name
    key_groups: Annotated[tuple[KeyGroupName, ...], Most(MAX_KEY_GROUPS), Distinct()]
    previous: Annotated[tuple[Annotated[Owners, Most(MAX_ROWS)], ...], Most(MAX_ROWS)]
    source: WorkerId
    target: WorkerId
    source_host: HostId
    target_host: HostId
    state_bytes: int
    since: float
    phase: HandoverPhase = HandoverPhase.WAITING
    attempt: int = 0
    wake_at: float | None = None
    prepare: Command | None = None
    release: Command | None = None
    detail: Annotated[str | None, Text(MAX_DETAIL)] = None
    pause_s: float | None = None
    lacking_bytes: Annotated[int | None, NotSent()] = field(default=None, compare=False)
    priority: Annotated[int, NotSent()] = field(default=0, compare=False)
    refusal: Annotated[Refusal | None, NotSent()] = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.key_groups or len(self.key_groups) != len(self.previous):
            raise ValueError(f"hand-over {self.id} needs key groups, each with its previous owners")
        if (self.prepare is None) != (self.attempt == 0):
            raise ValueError(f"hand-over {self.id}: attempt {self.attempt} with prepare {self.prepare}")
        if self.phase is HandoverPhase.RELEASING and self.release is None:
            raise ValueError(f"hand-over {self.id} is {self.phase} without a release")

    @property
    def app(self) -> AppId:
        """The app of its key groups."""
        return self.key_groups[0].app

    @property
    def has_copy(self) -> bool:
        """Whether the target was a standby of all its key groups before, so that it has little to restore."""
        return all(self.target in row for row in self.previous)

    @property
    def restores(self) -> bool:
        """Whether the target has something to restore, as far as known."""
        return not self.has_copy and self.lacking_bytes != 0

    def to_restore(self, unknown: int = 0) -> int:
        """Bytes that the target has to restore; `unknown` stands in for a state that was not measured."""
        if self.has_copy:
            return 0
        return self.lacking_bytes if self.lacking_bytes is not None else self.state_bytes or unknown

    @property
    def hosts(self) -> frozenset[HostId]:
        """The hosts of source and target."""
        return frozenset({self.source_host, self.target_host})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How the restores of a round are scheduled.  `slots` = how many run at the same time, by target host.

    Seconds from `began_at` until every target is warm: `planned_s` expected (the p50 of what restores cost); no order
    and no number at a time has an expected time below `bound_s`.  `warm_at` = when the last restore so far was warm.
    Both times in epoch seconds.  `unknown_links` = target hosts of which nobody knows what their link has left, so that
    their restores count with a default until some were measured.
    """

    slots: Mapping[HostId, int]
    began_at: float
    planned_s: float
    bound_s: float
    warm_at: float | None = None
    unknown_links: tuple[HostId, ...] = ()

    @property
    def measured_s(self) -> float | None:
        """Seconds until the last target so far was warm; None while none is."""
        return None if self.warm_at is None else self.warm_at - self.began_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """An app's plan in flight or, if there is none, its last one.

    `ended_at` is None while it is in flight.  `stopped` = why the plan was ended early, in words: no hand-over of it
    begins or is tried again.  `lost`: the sources are lost, so that the hand-overs end when their targets are
    warm, and the consumer group makes these the owners.  `recovery` is None if its hand-overs begin as they are listed.
    It is not in the journal: a new leader schedules what is left.  `kind` None: another version began it.
    """

    plan: Name
    app: AppId
    reason: Annotated[str, Text(4000)]
    status: Name
    fallback: bool
    before: float
    planned: float
    lower_bound: float
    started_at: float
    handovers: Annotated[tuple[Handover, ...], Most(MAX_ROWS)]
    ended_at: float | None = None
    stopped: Annotated[str | None, Text(4000)] = None
    lost: bool = False
    recovery: Annotated[Recovery | None, NotSent()] = field(default=None, compare=False)
    kind: Annotated[PlanReason | None, Lenient()] = field(default=None, compare=False)

    @property
    def ended(self) -> bool:
        """Whether every hand-over has ended."""
        return all(handover.phase in ENDED for handover in self.handovers)

    @property
    def takes_more(self) -> bool:
        """Whether further restores may be added to it: its sources are lost, and nobody has stopped it."""
        return self.lost and self.ended_at is None and self.stopped is None

    def key_groups(self, *phases: HandoverPhase) -> int:
        """The number of key groups in hand-overs in one of the phases."""
        return sum(len(handover.key_groups) for handover in self.handovers if handover.phase in phases)


class ScalingPhase(StrEnum):
    """The phase of a worker's start or stop."""

    SENT = "sent"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerScaling:
    """The last stop or start of a worker; `at` = when the phase began (epoch seconds).

    `times`: how often in a row this was commanded.  `refusal` = the agent's, if it refused.
    """

    command: Command
    phase: ScalingPhase
    at: float
    detail: Annotated[str | None, Text(MAX_DETAIL)] = None
    times: int = 1
    refusal: Refusal | None = None

    @property
    def stopped(self) -> bool:
        """Whether the controller stopped the worker and has not started it since."""
        return self.command.kind is CommandKind.STOP and self.phase is ScalingPhase.DONE

    @property
    def of_app(self) -> AppId | None:
        """The app whose size this changes; None: it follows an operator's drain."""
        return self.command.app


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """The controller changed the number of workers of an app from `before` to `after` at `at` (epoch seconds).

    `rate` = inputs per second that the app did then; 0 = none, or unknown: nothing is compared with it.
    """

    at: float
    before: int
    after: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSize:
    """What the controller does to the size of an app: the workers that it drains for it, and its last changes."""

    leaving: Annotated[tuple[WorkerId, ...], Most(MAX_ROWS)] = ()
    changes: Annotated[tuple[SizeChange, ...], Most(MAX_ROWS)] = ()

    @property
    def changed_at(self) -> float | None:
        """When the size was changed last (epoch seconds)."""
        return self.changes[-1].at if self.changes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A plan that waits for an operator's approval, since `at` until `expires_at` (epoch seconds).

    `id` = how operators call it, and the name of the plan once it begins.  `rejected` = by whom, and why;
    it is kept until `expires_at`, so that it is not proposed again at once.
    """

    id: Name
    plan: Annotated[Plan, Inline()]
    at: float
    expires_at: float
    rejected: Annotated[str | None, Text(4000)] = None

    @property
    def app(self) -> AppId:
        """The app of the plan."""
        return self.plan.app

    @property
    def waits(self) -> bool:
        """Whether nobody has decided about it."""
        return self.rejected is None

    def turned_down(self, by: str, until: float) -> "Proposal":
        """The proposal after its rejection."""
        return replace(self, rejected=by, expires_at=until)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandMoved:
    """An operator moved a key group to this worker: it stays there until `until` (epoch seconds)."""

    worker: WorkerId
    until: float


class GuardMode(StrEnum):
    """What the guard does when a job suffers from a plan although its pace is at one hand-over at a time."""

    OFF = "off"
    STOP = "stop"  # it ends the plan; what has moved stays
    ROLL_BACK = "roll-back"  # and moves back what made a worker fall behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A key group that the plan has moved."""

    WIRE: ClassVar = Wire(row=True)

    key_group: KeyGroupName
    source: WorkerId
    target: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStop:
    """The guard ended this plan of an app at `at`; the app gets no plan for balance before `until` (epoch seconds).

    `times` = how many plans in a row it has ended.  `lags_s` = how far the workers of its moves were behind when the
    plan began, as far as known.  `moves` = what may have to be moved back.  `back_by` None: no whole window has shown
    yet which of them; later: those that are left are moved back, if that begins until then (epoch seconds).
    """

    app: AppId
    plan: Name
    at: float
    until: float
    detail: Annotated[str, Text(4000)]
    times: Annotated[int, Range(1, MAX_INTEGER)] = 1
    lags_s: Annotated[Mapping[WorkerId, Annotated[float, Range(0.0, 1e12)]], Most(2 * MAX_MOVING)] = field(
        default_factory=dict
    )
    moves: Annotated[tuple[Moved, ...], Most(MAX_MOVING)] = ()
    back_by: float | None = None

    def to_move_back(self, now: float) -> tuple[Moved, ...]:
        """What is to be moved back now."""
        return self.moves if self.back_by is not None and now <= self.back_by else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Everything that a new leader needs: the last epoch, the placements, the rounds, starts and stops of workers.

    `rounds` has one round per app, `sizes` what was done to the size of apps, `proposals` the plan of each app that
    waits for approval, `hand_moved` the key groups that stay where an operator moved them, `disruption` what has paused
    in the last hour, `guarded` the last plan of each app that the guard has ended.  The placements are not in the
    journal; the same transaction writes them to a topic of their own.
    """

    generation: int
    number: int = 0
    placements: Mapping[AppId, Placement] = field(default_factory=dict)
    rounds: Mapping[AppId, Round] = field(default_factory=dict)
    scalings: Mapping[WorkerId, WorkerScaling] = field(default_factory=dict)
    sizes: Mapping[AppId, AppSize] = field(default_factory=dict)
    proposals: Mapping[AppId, Proposal] = field(default_factory=dict)
    hand_moved: Mapping[KeyGroup, HandMoved] = field(default_factory=dict)
    disruption: Disruption = Disruption()  # noqa: RUF009 - frozen
    guarded: Mapping[AppId, GuardStop] = field(default_factory=dict)

    @property
    def epoch(self) -> Epoch:
        """The epoch of the last publication."""
        return Epoch(self.generation, self.number)

    @property
    def hosts(self) -> frozenset[HostId]:
        """The hosts that received commands; only their acks matter."""
        handovers = (handover for row in self.rounds.values() for handover in row.handovers)
        ends = {host for handover in handovers for host in (handover.source_host, handover.target_host)}
        return frozenset(ends | {scaling.command.host for scaling in self.scalings.values()})

    @property
    def in_flight(self) -> tuple[Round, ...]:
        """The rounds in flight, the oldest first."""
        rows = (row for row in self.rounds.values() if row.ended_at is None)
        return tuple(sorted(rows, key=lambda row: row.started_at))

    def busy(self, app: AppId) -> bool:
        """Whether a round of this app is in flight."""
        return app in self.rounds and self.rounds[app].ended_at is None

    @property
    def scaling_of_operators(self) -> WorkerScaling | None:
        """The stop or start under way that follows an operator's wish; None: there is none."""
        wanted = (each for each in self.scalings.values() if each.of_app is None and each.phase is ScalingPhase.SENT)
        return next(wanted, None)

    def scalings_of(self, app: AppId, may_run: Callable[[WorkerId, AppId], bool]) -> list[WorkerScaling]:
        """The last stops and starts of workers of an app, `may_run` = whether a worker may be one of the app's."""
        found = self.scalings.items()
        return [each for worker, each in found if each.of_app == app or (each.of_app is None and may_run(worker, app))]

    def changed_at(
        self, app: AppId, may_run: Callable[[WorkerId, AppId], bool] = lambda _worker, _app: True
    ) -> float | None:
        """When the app's last round, or the last stop or start of a worker of it, ended (epoch seconds).

        Windows that began earlier mix two placements.  `may_run` as in `scalings_of`.
        """
        times = [each.at for each in self.scalings_of(app, may_run) if each.phase is not ScalingPhase.SENT]
        if app in self.rounds and (ended_at := self.rounds[app].ended_at) is not None:
            times.append(ended_at)
        return max(times, default=None)

    @property
    def leaving(self) -> frozenset[WorkerId]:
        """The workers that the controller drains to make their apps smaller."""
        return frozenset(worker for size in self.sizes.values() for worker in size.leaving)

    def handover_of(self, command_id: CommandId) -> Handover | None:
        """The hand-over whose current prepare or release has this id."""
        for row in self.rounds.values():
            for handover in row.handovers:
                if any(
                    command is not None and command.id == command_id for command in (handover.prepare, handover.release)
                ):
                    return handover
        return None

    def commands_in_flight(self) -> tuple[Command, ...]:
        """The commands without an ack so far, in the order of their epochs."""
        found = [scaling.command for scaling in self.scalings.values() if scaling.phase is ScalingPhase.SENT]
        for handover in (handover for row in self.in_flight for handover in row.handovers):
            command = {HandoverPhase.PREPARING: handover.prepare, HandoverPhase.RELEASING: handover.release}
            if (current := command.get(handover.phase)) is not None:
                found.append(current)
        return tuple(sorted(found, key=lambda command: (command.epoch, command.id)))


def placement_of(
    cluster: str,
    app: AppId,
    epoch: Epoch,
    owners: Mapping[KeyGroup, WorkerId],
    previous: Placement | None,
) -> Placement:
    """A placement with exactly these owners; the standbys of the previous one are kept."""
    rows: dict[OperatorId, list[Owners]] = {}
    for key_group, owner in sorted(owners.items()):
        partitions = rows.setdefault(key_group.operator, [])
        while len(partitions) <= key_group.partition:
            partitions.append(())
        standbys = previous.of(key_group.operator, key_group.partition)[1:] if previous else ()
        partitions[key_group.partition] = (owner, *(worker for worker in standbys if worker != owner))
    owners_of = {operator: tuple(each) for operator, each in rows.items()}
    return Placement(cluster=cluster, app=app, epoch=epoch, owners=owners_of)


def next_owned(row: Owners, target: WorkerId) -> Owners:
    """The row with `target` as its first standby.  It is not longer than before, or has one standby."""
    owner, *others = row
    return (owner, target, *[each for each in others if each != target][: max(0, len(others) - 1)])


def without_standby(placement: Placement, worker: WorkerId) -> dict[KeyGroup, Owners]:
    """The rows that change when `worker` is no longer a standby of any key group."""
    return {
        KeyGroup(placement.app, operator, partition): (row[0], *(each for each in row[1:] if each != worker))
        for operator, rows in placement.owners.items()
        for partition, row in enumerate(rows)
        if worker in row[1:]
    }


def owned_by(placements: Iterable[Placement], worker: WorkerId) -> int:
    """The number of key groups that `worker` owns in the placements."""
    rows = (row for placement in placements for rows in placement.owners.values() for row in rows)
    return sum(1 for row in rows if row and row[0] == worker)
