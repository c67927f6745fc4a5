"""The execution as a pure machine: events and time in; publications out, each to be written in one transaction.

A hand-over goes WAITING -> PREPARING -> RELEASING -> DONE (ARCHITECTURE.md, "A hand-over, from plan to end").  Before
the release every fault leads back to the previous placement; after it only what workers or reports say counts.
Whatever changes the state is published with the state, so a successor that reads the journal stands where we stood.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from trimtab_controller.execution.events import (
    AckSeen,
    Action,
    Event,
    HandoverEnded,
    Limits,
    OwnershipSeen,
    PlacementWanted,
    PlanDecided,
    Publish,
    Resumed,
    RoundEnded,
    ScalingWanted,
)
from trimtab_controller.execution.state import (
    ENDED,
    IN_FLIGHT,
    Execution,
    Handover,
    HandoverPhase,
    Round,
    Scaling,
    ScalingPhase,
    placement_of,
    with_owners,
    without_standby,
)
from trimtab_controller.plan import Move, Plan
from trimtab_models.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_models.messages.names import AppId, Epoch, KeyGroup, WorkerId
from trimtab_models.messages.placement import Owners, Placement

ACK_GRACE_S = 2.0
"""How long after a command's deadline its agent's last word may still arrive."""
RETRY_DELAY_S = 2.0
"""Times the attempt: a rebalance that came between needs about a second."""
RESOLVE_TIMEOUTS = 6
"""So many hand-over time-outs the reports have to show who owns after a release without an answer."""

RETRYABLE = frozenset({Refusal.GENERATION, Refusal.NOT_PREPARED, Refusal.OLD_EPOCH})
UNCERTAIN = frozenset(
    {Refusal.GENERATION, Refusal.FAILED, Refusal.COMMIT_REFUSED, Refusal.WORKER_AWAY, Refusal.PRECONDITION}
)
"""Refusals of a release after which the source may not be the owner any more: the reports have the word."""


@dataclass(slots=True)
class _Step:
    """What one event changes; becomes one publication under one epoch."""

    now: float
    execution: Execution
    epoch: Epoch = field(init=False)
    changed: bool = False
    owners: dict[KeyGroup, Owners] = field(default_factory=dict)
    adopted: dict[AppId, Placement] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    ended: list[Handover] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.epoch = Epoch(self.execution.generation, self.execution.number + 1)

    def put(self, handover: Handover) -> None:
        """Replace a hand-over of the round by what became of it."""
        assert self.execution.round is not None
        rows = tuple(handover if row.id == handover.id else row for row in self.execution.round.handovers)
        self.set(round=replace(self.execution.round, handovers=rows))
        if handover.phase in ENDED:
            self.ended.append(handover)

    def set(self, *, round: Round) -> None:  # noqa: A002 - the state's own word
        """Replace the round."""
        self.execution = replace(self.execution, round=round)
        self.changed = True

    def scale(self, scaling: Scaling) -> None:
        """Replace what is known of a worker's stop or start."""
        scalings = {**self.execution.scalings, scaling.command.worker: scaling}
        self.execution = replace(self.execution, scalings=scalings)
        self.changed = True


class ExecutionMachine:
    """`state` is what was last published; `on_event` and `on_tick` return what to do, in order."""

    def __init__(self, cluster: str, limits: Limits, state: Execution) -> None:
        self._cluster = cluster
        self._limits = limits
        self.state = state

    @property
    def wake_at(self) -> float | None:
        """When `on_tick` has something to do at the latest (epoch seconds)."""
        times = [row.wake_at for row in self._handovers() if row.phase not in ENDED and row.wake_at is not None]
        sent = (each for each in self.state.scalings.values() if each.phase is ScalingPhase.SENT)
        times += [scaling.command.deadline + ACK_GRACE_S for scaling in sent]
        return min(times, default=None)

    def on_event(self, now: float, event: Event) -> list[Action]:
        """What follows from the event; nothing when it does not matter any more."""
        step = _Step(now, self.state)
        match event:
            case PlanDecided(plan=plan):
                self._begin(step, plan)
            case PlacementWanted(app=app, owners=owners):
                self._adopt(step, app, owners)
            case ScalingWanted():
                self._scale(step, event)
            case AckSeen(ack=ack):
                self._on_ack(step, ack)
            case OwnershipSeen():
                self._resolve(step, event)
            case Resumed():
                step.commands = list(self.state.commands_in_flight())
                step.changed = True
        return self._close(step)

    def on_tick(self, now: float) -> list[Action]:
        """What time alone brings about."""
        step = _Step(now, self.state)
        for handover in self._handovers():
            if handover.phase in IN_FLIGHT and handover.wake_at is not None and handover.wake_at <= now:
                self._time_out(step, handover)
        for scaling in self.state.scalings.values():
            if scaling.phase is ScalingPhase.SENT and scaling.command.deadline + ACK_GRACE_S <= now:
                step.scale(replace(scaling, phase=ScalingPhase.FAILED, at=now, detail="no answer in time"))
        return self._close(step)

    def _handovers(self) -> tuple[Handover, ...]:
        return self.state.round.handovers if self.state.busy and self.state.round else ()

    def _close(self, step: _Step) -> list[Action]:
        """Start what may start, end the round when all of it has ended, and make the one publication."""
        self._start_waiting(step)
        present = step.execution.round
        finished = present is not None and present.ended_at is None and present.ended
        if finished and present is not None:
            step.set(round=replace(present, ended_at=step.now))
        if not step.changed:
            return []
        placements = self._placements(step)
        merged = {**step.execution.placements, **{placement.app: placement for placement in placements}}
        self.state = replace(step.execution, number=step.epoch.number, placements=merged)
        actions: list[Action] = [
            Publish(execution=self.state, placements=placements, commands=tuple(step.commands)),
            *(HandoverEnded(handover=handover) for handover in step.ended),
        ]
        if finished and self.state.round is not None:
            actions.append(RoundEnded(round=self.state.round))
        return actions

    def _placements(self, step: _Step) -> tuple[Placement, ...]:
        placements = dict(step.adopted)
        for app in dict.fromkeys(key_group.app for key_group in step.owners):
            rows = {key_group: row for key_group, row in step.owners.items() if key_group.app == app}
            placements[app] = with_owners(step.execution.placements[app], step.epoch, rows)
        return tuple(placements.values())

    # --- a round begins -------------------------------------------------------------------------------------------

    def _begin(self, step: _Step, plan: Plan) -> None:
        if self.state.busy or plan.app not in self.state.placements:
            raise ValueError("a plan needs a published placement and no other plan in flight")
        handovers = self._handovers_of(step, plan)
        step.set(
            round=Round(
                plan=str(step.epoch),
                app=plan.app,
                reason=plan.reason,
                status=plan.status,
                fallback=plan.fallback,
                before=plan.before,
                planned=plan.planned,
                lower_bound=plan.lower_bound,
                started_at=step.now,
                handovers=handovers,
            )
        )

    def _handovers_of(self, step: _Step, plan: Plan) -> tuple[Handover, ...]:
        """Moves of one pair of workers go together; workers that also give away receive last."""
        pairs: dict[tuple[WorkerId, WorkerId], list[Move]] = {}
        for move in plan.moves:
            pairs.setdefault((move.source, move.target), []).append(move)
        sources = {source for source, _ in pairs}
        size = self._limits.key_groups_per_handover
        batches = [
            moves[first : first + size]
            for (_, target), moves in sorted(pairs.items(), key=lambda item: item[0][1] in sources)
            for first in range(0, len(moves), size)
        ]
        placement = self.state.placements[plan.app]
        return tuple(
            Handover(
                id=f"{step.epoch}-{index}",
                key_groups=tuple(move.key_group for move in batch),
                previous=tuple(_row(placement, move) for move in batch),
                source=batch[0].source,
                target=batch[0].target,
                source_host=plan.hosts[batch[0].source],
                target_host=plan.hosts[batch[0].target],
                state_bytes=sum(move.state_bytes or 0 for move in batch),
                since=step.now,
            )
            for index, batch in enumerate(batches)
        )

    def _start_waiting(self, step: _Step) -> None:
        if step.execution.round is None or step.execution.round.ended_at is not None:
            return
        handovers = step.execution.round.handovers
        free = self._limits.handovers_in_flight - sum(row.phase in IN_FLIGHT for row in handovers)
        for handover in handovers:
            ready = handover.phase is HandoverPhase.WAITING and (handover.wake_at or 0.0) <= step.now
            if free > 0 and ready:
                self._prepare(step, handover)
                free -= 1

    def _prepare(self, step: _Step, handover: Handover) -> None:
        command = self._migration(step, CommandKind.PREPARE, handover, self._limits.prepare_timeout_s)
        step.put(
            replace(
                handover,
                phase=HandoverPhase.PREPARING,
                since=step.now,
                attempt=handover.attempt + 1,
                wake_at=command.deadline + ACK_GRACE_S,
                prepare=command,
                release=None,
            )
        )
        step.commands.append(command)
        step.owners.update(dict.fromkeys(handover.key_groups, (handover.source, handover.target)))

    def _migration(
        self, step: _Step, kind: CommandKind, handover: Handover, limit_s: float, generation: int | None = None
    ) -> Command:
        to_source = kind is CommandKind.RELEASE
        return Command(
            cluster=self._cluster,
            kind=kind,
            epoch=step.epoch,
            host=handover.source_host if to_source else handover.target_host,
            worker=handover.source if to_source else handover.target,
            app=handover.app,
            issued_at=step.now,
            deadline=step.now + limit_s,
            handover=handover.id,
            key_groups=handover.key_groups,
            source=handover.source,
            target=handover.target,
            generation=generation,
        )

    # --- an agent's word ------------------------------------------------------------------------------------------

    def _on_ack(self, step: _Step, ack: Ack) -> None:
        scaling = self.state.scalings.get(ack.worker)
        if scaling is not None and _answers(ack, scaling.command):
            self._on_scaling_ack(step, scaling, ack)
            return
        handover = self.state.handover_of(ack.command_id)
        if handover is None or handover.phase in ENDED:
            return
        if handover.prepare is not None and _answers(ack, handover.prepare):
            self._on_prepare_ack(step, handover, ack)
        elif handover.release is not None and _answers(ack, handover.release):
            self._on_release_ack(step, handover, ack)

    def _on_prepare_ack(self, step: _Step, handover: Handover, ack: Ack) -> None:
        preparing = handover.phase is HandoverPhase.PREPARING
        match ack.phase:
            case Phase.PREPARED if preparing:
                self._release(step, handover, ack)
            case Phase.TOOK if handover.release is not None:
                self._finish(step, handover, ack)
            case Phase.REFUSED if preparing and ack.refusal in RETRYABLE:
                self._try_again(step, handover, _said(ack))
            case Phase.REFUSED | Phase.EXPIRED if preparing:
                self._give_back(step, handover, _said(ack))
            case Phase.REFUSED if handover.phase is HandoverPhase.RELEASING:
                self._ask_reports(step, handover, _said(ack))
            case _:
                pass  # repeats, and words that came late

    def _on_release_ack(self, step: _Step, handover: Handover, ack: Ack) -> None:
        if handover.phase is not HandoverPhase.RELEASING or ack.phase not in (Phase.REFUSED, Phase.EXPIRED):
            return  # `released` needs nothing of us: the target's `took` is the end
        if ack.phase is Phase.EXPIRED or ack.refusal in UNCERTAIN:  # what has expired may still be done, late
            self._ask_reports(step, handover, _said(ack))
        elif ack.refusal in RETRYABLE:
            self._try_again(step, handover, _said(ack))
        else:
            self._give_back(step, handover, _said(ack))

    def _release(self, step: _Step, handover: Handover, ack: Ack) -> None:
        if ack.generation is None:
            self._give_back(step, handover, "prepared without the engine's generation")
            return
        limit_s = self._limits.handover_timeout_s
        command = self._migration(step, CommandKind.RELEASE, handover, limit_s, ack.generation)
        step.put(
            replace(
                handover,
                phase=HandoverPhase.RELEASING,
                since=step.now,
                wake_at=command.deadline + ACK_GRACE_S,
                release=command,
                state_bytes=ack.state_bytes if ack.state_bytes is not None else handover.state_bytes,
            )
        )
        step.commands.append(command)
        step.owners.update(dict.fromkeys(handover.key_groups, (handover.target, handover.source)))

    def _finish(self, step: _Step, handover: Handover, ack: Ack) -> None:
        step.put(self._ended(step, handover, HandoverPhase.DONE, None, pause_s=ack.pause_s))
        if handover.phase is HandoverPhase.WAITING:  # it was given up too early: the placement follows it
            step.owners.update(dict.fromkeys(handover.key_groups, (handover.target, handover.source)))

    # --- faults ---------------------------------------------------------------------------------------------------

    def _time_out(self, step: _Step, handover: Handover) -> None:
        match handover.phase:
            case HandoverPhase.PREPARING:
                self._give_back(step, handover, "the target did not get ready in time")
            case HandoverPhase.RELEASING:
                self._ask_reports(step, handover, "no answer after the release")
            case _:
                detail = f"{handover.detail}; the reports did not show the owner in time"
                step.put(self._ended(step, handover, HandoverPhase.UNRESOLVED, detail))

    def _try_again(self, step: _Step, handover: Handover, detail: str) -> None:
        """Back to the previous placement; another attempt after a pause, while there are any left."""
        if handover.attempt >= self._limits.attempts:
            self._give_back(step, handover, f"{detail}, {handover.attempt} times")
            return
        wake_at = step.now + RETRY_DELAY_S * handover.attempt
        step.put(replace(handover, phase=HandoverPhase.WAITING, since=step.now, wake_at=wake_at, detail=detail))
        step.owners.update(zip(handover.key_groups, handover.previous, strict=True))

    def _give_back(self, step: _Step, handover: Handover, detail: str) -> None:
        """The source keeps: previous placement under a new epoch, and the target closes what it opened."""
        step.put(self._ended(step, handover, HandoverPhase.FAILED, detail))
        step.owners.update(zip(handover.key_groups, handover.previous, strict=True))
        step.commands.append(self._migration(step, CommandKind.ABANDON, handover, self._limits.handover_timeout_s))

    def _ask_reports(self, step: _Step, handover: Handover, detail: str) -> None:
        wake_at = step.now + RESOLVE_TIMEOUTS * self._limits.handover_timeout_s
        step.put(replace(handover, phase=HandoverPhase.RESOLVING, since=step.now, wake_at=wake_at, detail=detail))

    def _resolve(self, step: _Step, seen: OwnershipSeen) -> None:
        for handover in self._handovers():
            if handover.phase is not HandoverPhase.RESOLVING or seen.start_s < handover.since:
                continue
            owners = [seen.owners.get(key_group) for key_group in handover.key_groups]
            if all(owner == handover.target for owner in owners):
                step.put(
                    self._ended(step, handover, HandoverPhase.DONE, f"{handover.detail}; the reports show it done")
                )
            elif all(owner == handover.source for owner in owners):
                self._try_again(step, handover, handover.detail or "not released")
            elif None not in owners:
                self._settle(step, handover, [owner for owner in owners if owner is not None])

    def _settle(self, step: _Step, handover: Handover, owners: Iterable[WorkerId]) -> None:
        """The engine decided otherwise: the placement follows it."""
        step.put(self._ended(step, handover, HandoverPhase.FAILED, f"{handover.detail}; other workers own it now"))
        step.owners.update({key_group: (owner,) for key_group, owner in zip(handover.key_groups, owners, strict=True)})

    @staticmethod
    def _ended(
        step: _Step, handover: Handover, phase: HandoverPhase, detail: str | None, pause_s: float | None = None
    ) -> Handover:
        return replace(handover, phase=phase, since=step.now, wake_at=None, detail=detail, pause_s=pause_s)

    # --- placements and workers -----------------------------------------------------------------------------------

    def _adopt(self, step: _Step, app: AppId, owners: Mapping[KeyGroup, WorkerId]) -> None:
        if self.state.busy:
            raise ValueError("the placement belongs to the round in flight")
        previous = self.state.placements.get(app)
        step.adopted[app] = placement_of(self._cluster, app, step.epoch, owners, previous)
        step.changed = True

    def _scale(self, step: _Step, wanted: ScalingWanted) -> None:
        command = Command(
            cluster=self._cluster,
            kind=wanted.kind,
            epoch=step.epoch,
            host=wanted.host,
            worker=wanted.worker,
            app=None,
            issued_at=step.now,
            deadline=step.now + self._limits.prepare_timeout_s,
        )
        step.commands.append(command)
        step.scale(Scaling(command=command, phase=ScalingPhase.SENT, at=step.now))
        if wanted.kind is CommandKind.STOP:
            for placement in self.state.placements.values():
                step.owners.update(without_standby(placement, wanted.worker))

    @staticmethod
    def _on_scaling_ack(step: _Step, scaling: Scaling, ack: Ack) -> None:
        if scaling.phase is ScalingPhase.DONE:
            return
        outcome = partial(replace, scaling, at=step.now)
        match ack.phase:
            case Phase.STOPPED | Phase.STARTED:
                code = None if ack.exit_code is None else f"exit code {ack.exit_code}"
                step.scale(outcome(phase=ScalingPhase.DONE, detail=code))
            case Phase.REFUSED | Phase.EXPIRED if scaling.phase is ScalingPhase.SENT:
                step.scale(outcome(phase=ScalingPhase.FAILED, detail=_said(ack)))
            case _:
                pass


def _row(placement: Placement, move: Move) -> Owners:
    """The owners of a key group before its move; the plan's source is the owner that the reports showed."""
    row = placement.of(move.key_group.operator, move.key_group.partition)
    return row if row and row[0] == move.source else (move.source,)


def _answers(ack: Ack, command: Command) -> bool:
    """Whether the ack answers this command and comes from the agent it went to."""
    return ack.command_id == command.id and ack.host == command.host and ack.worker == command.worker


def _said(ack: Ack) -> str:
    word = ack.refusal if ack.refusal is not None else ack.phase
    return f"{ack.worker} on {ack.host}: {word}" + (f" ({ack.detail})" if ack.detail else "")
