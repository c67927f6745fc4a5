"""What the execution is: a frozen value, journalled with every publication, so that a successor can go on from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.names import AppId, CommandId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Owners, Placement


class HandoverPhase(StrEnum):
    """How far a hand-over has come; the last three are ends."""

    WAITING = "waiting"  # for a free place among those in flight, or for its next attempt
    PREPARING = "preparing"  # prepare is published
    RELEASING = "releasing"  # release is published: source and target talk to each other
    RESOLVING = "resolving"  # nobody answered after the release: the next reports show who owns
    DONE = "done"
    FAILED = "failed"  # the source owns, or whoever the reports named
    UNRESOLVED = "unresolved"  # the reports did not show an owner in time; the placement names the target


IN_FLIGHT = frozenset({HandoverPhase.PREPARING, HandoverPhase.RELEASING, HandoverPhase.RESOLVING})
ENDED = frozenset({HandoverPhase.DONE, HandoverPhase.FAILED, HandoverPhase.UNRESOLVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Key groups that go from one worker to another in one release.

    `previous` = what the placement said of each key group before. `wake_at` (epoch seconds): WAITING = not before,
    in flight = time-out; None = none. `since` = when the phase began. `pause_s` as the new owner measured it.
    """

    id: str
    key_groups: tuple[KeyGroup, ...]
    previous: tuple[Owners, ...]
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
    detail: str | None = None
    pause_s: float | None = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A plan being carried out, or the last one that was: `ended_at` None while in flight."""

    plan: str
    app: AppId
    reason: str
    status: str
    fallback: bool
    before: float
    planned: float
    lower_bound: float
    started_at: float
    handovers: tuple[Handover, ...]
    ended_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether every hand-over has come to an end."""
        return all(handover.phase in ENDED for handover in self.handovers)

    def key_groups(self, *phases: HandoverPhase) -> int:
        """How many key groups belong to hand-overs in one of the phases."""
        return sum(len(handover.key_groups) for handover in self.handovers if handover.phase in phases)


class ScalingPhase(StrEnum):
    """How far the start or stop of a worker has come."""

    SENT = "sent"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The last stop or start of a worker; `at` = when the phase began (epoch seconds)."""

    command: Command
    phase: ScalingPhase
    at: float
    detail: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether the worker was stopped by us and not started since."""
        return self.command.kind is CommandKind.STOP and self.phase is ScalingPhase.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Everything a successor needs: the last epoch given out, placements, the round, starts and stops of workers.

    The placements are not in the journal: their own topic has them, written in the same transaction.
    """

    generation: int
    number: int = 0
    placements: Mapping[AppId, Placement] = field(default_factory=dict)
    round: Round | None = None
    scalings: Mapping[WorkerId, Scaling] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "placements", MappingProxyType(dict(self.placements)))
        object.__setattr__(self, "scalings", MappingProxyType(dict(self.scalings)))

    @property
    def epoch(self) -> Epoch:
        """The epoch of the last publication."""
        return Epoch(self.generation, self.number)

    @property
    def hosts(self) -> frozenset[HostId]:
        """The hosts that were commanded: nobody else's answers are waited for."""
        handovers = self.round.handovers if self.round else ()
        ends = {host for handover in handovers for host in (handover.source_host, handover.target_host)}
        return frozenset(ends | {scaling.command.host for scaling in self.scalings.values()})

    @property
    def busy(self) -> bool:
        """Whether a round is in flight."""
        return self.round is not None and self.round.ended_at is None

    @property
    def changed_at(self) -> float | None:
        """When the last round, stop or start ended (epoch seconds): windows that began earlier mix two clusters."""
        times = [scaling.at for scaling in self.scalings.values() if scaling.phase is not ScalingPhase.SENT]
        if self.round is not None and self.round.ended_at is not None:
            times.append(self.round.ended_at)
        return max(times, default=None)

    def handover_of(self, command_id: CommandId) -> Handover | None:
        """The hand-over whose current prepare or release has this id."""
        if self.round is None:
            return None
        for handover in self.round.handovers:
            if any(
                command is not None and command.id == command_id for command in (handover.prepare, handover.release)
            ):
                return handover
        return None

    def commands_in_flight(self) -> tuple[Command, ...]:
        """The commands that wait for an ack, in the order of their epochs."""
        found = [scaling.command for scaling in self.scalings.values() if scaling.phase is ScalingPhase.SENT]
        for handover in self.round.handovers if self.round else ():
            command = {HandoverPhase.PREPARING: handover.prepare, HandoverPhase.RELEASING: handover.release}
            if (current := command.get(handover.phase)) is not None:
                found.append(current)
        return tuple(sorted(found, key=lambda command: (command.epoch, command.id)))


def with_owners(placement: Placement, epoch: Epoch, owners: Mapping[KeyGroup, Owners]) -> Placement:
    """The placement with the owners of some of its key groups replaced, under a new epoch."""
    rows = {operator: list(each) for operator, each in placement.owners.items()}
    for key_group, row in owners.items():
        rows[key_group.operator][key_group.partition] = row
    return replace(placement, epoch=epoch, owners={operator: tuple(each) for operator, each in rows.items()})


def placement_of(
    cluster: str, app: AppId, epoch: Epoch, owners: Mapping[KeyGroup, WorkerId], previous: Placement | None
) -> Placement:
    """A placement that names exactly these owners; standbys are kept where the previous one had them."""
    rows: dict[OperatorId, list[Owners]] = {}
    for key_group, owner in sorted(owners.items()):
        partitions = rows.setdefault(key_group.operator, [])
        while len(partitions) <= key_group.partition:
            partitions.append(())
        standbys = previous.of(key_group.operator, key_group.partition)[1:] if previous else ()
        partitions[key_group.partition] = (owner, *(worker for worker in standbys if worker != owner))
    owners_of = {operator: tuple(each) for operator, each in rows.items()}
    return Placement(cluster=cluster, app=app, epoch=epoch, owners=owners_of)


def without_standby(placement: Placement, worker: WorkerId) -> dict[KeyGroup, Owners]:
    """The changed rows when `worker` no longer stands by for anybody."""
    return {
        KeyGroup(placement.app, operator, partition): (row[0], *(each for each in row[1:] if each != worker))
        for operator, rows in placement.owners.items()
        for partition, row in enumerate(rows)
        if worker in row[1:]
    }


def owned_by(placements: Iterable[Placement], worker: WorkerId) -> int:
    """How many key groups the placements give to `worker`."""
    rows = (row for placement in placements for rows in placement.owners.values() for row in rows)
    return sum(1 for row in rows if row and row[0] == worker)
