"""The life of a hand-over, as steps of the execution.

WAITING -> PREPARING -> RELEASING -> DONE (docs/concepts/how-it-moves.md).  Before the release every fault leads back to
the previous placement; after it, acks and reports decide who owns the key groups.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase, Round, next_owned
from trimtab_controller.execution.step import Step
from trimtab_controller.plan import Move, Plan
from trimtab_controller.rows import row_after
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import MAX_STANDBYS, Placement

ACK_GRACE_S = 2.0
"""How long after a command's deadline its ack may still arrive."""

MAX_DETAIL = 200
"""Characters of an ack's detail that are kept."""

RETRYABLE = frozenset({Refusal.GENERATION, Refusal.NOT_PREPARED, Refusal.OLD_EPOCH})
UNCERTAIN = frozenset(
    {Refusal.GENERATION, Refusal.FAILED, Refusal.COMMIT_REFUSED, Refusal.WORKER_AWAY, Refusal.PRECONDITION}
)
"""Refusals of a release after which the source may no longer be the owner: the reports decide."""


def answers(ack: Ack, command: Command | None) -> bool:
    """Whether the ack answers this command and comes from the agent that received it."""
    return (
        command is not None
        and ack.command_id == command.id
        and ack.host == command.host
        and ack.worker == command.worker
    )


def said(ack: Ack) -> str:
    """The ack in one short line; the journal holds up to a thousand of these in one message."""
    word = ack.refusal if ack.refusal is not None else ack.phase
    return f"{ack.worker} on {ack.host}: {word}" + (f" ({ack.detail[:MAX_DETAIL]})" if ack.detail else "")


RETRY_DELAY_S = 2.0
"""Delay before the next attempt, multiplied by the attempt's number.  A rebalance takes about a second."""
NAMED_WITHIN_S = 15.0
"""After a loss, how long the next owners that wait for their turn to restore stay unnamed.  The loss is decided on 20
to 30 s after it, and the group notices it after 60 s (Faust's default)."""
RESOLVE_TIMEOUTS = 6
"""How long the reports may take to show the owner after an unanswered release, in hand-over time-outs."""


def handovers_of(step: Step, plan: Plan) -> tuple[Handover, ...]:
    """The hand-overs of a plan.

    Moves between the same two workers share hand-overs.  Workers that also give key groups away receive last.
    Before all that, the highest priority comes first.
    """
    pairs: dict[tuple[WorkerId, WorkerId], list[Move]] = {}
    for move in plan.moves:
        pairs.setdefault((move.source, move.target), []).append(move)
    sources = {source for source, _ in pairs}
    size = step.limits.key_groups_per_handover
    placement = step.execution.placements[plan.app]
    if step.limits.schedule_restores:  # what the target has a copy of need not wait for what it has to restore
        pairs = {
            pair: sorted(
                moves, key=lambda move: (-move.priority, move.target not in _row(placement, move), -move.to_restore)
            )
            for pair, moves in pairs.items()
        }
    batches = [
        moves[first : first + size]
        for (_, target), moves in sorted(pairs.items(), key=lambda item: item[0][1] in sources)
        for first in range(0, len(moves), size)
    ]
    batches.sort(key=lambda batch: -max(move.priority for move in batch))
    return tuple(
        Handover(
            id=f"{step.epoch}-{index}",
            key_groups=tuple(move.key_group for move in batch),
            previous=tuple(_row(placement, move) for move in batch),
            source=batch[0].source,
            target=batch[0].target,
            source_host=plan.hosts[batch[0].target if plan.lost else batch[0].source],
            target_host=plan.hosts[batch[0].target],
            state_bytes=sum(move.state_bytes or 0 for move in batch),
            lacking_bytes=_lacking_of(batch),
            priority=max(move.priority for move in batch),
            since=step.now,
        )
        for index, batch in enumerate(batches)
    )


def _lacking_of(batch: Sequence[Move]) -> int | None:
    """What the target has to restore of a batch; None if it has a copy of nothing on its disk."""
    return None if all(move.lacking_bytes is None for move in batch) else sum(move.to_restore for move in batch)


def _row(placement: Placement, move: Move) -> Owners:
    """The row of a key group before its move; the plan's source is the reported owner."""
    row = placement.of(move.key_group.operator, move.key_group.partition)
    return row if row and row[0] == move.source else (move.source,)


# --- the normal course ------------------------------------------------------------------------------------------------


def prepare(step: Step, handover: Handover) -> None:
    """Make the target open the state and follow it; the placement names it as a standby.

    It is the last standby: if the source dies now, the others are warm and the target is not yet.  Where the source is
    lost, it is the first one, and so the next owner.
    """
    command = _command(step, CommandKind.PREPARE, handover, step.limits.prepare_timeout_s)
    step.put(
        replace(
            handover,
            phase=HandoverPhase.PREPARING,
            since=step.now,
            attempt=handover.attempt + 1,
            wake_at=command.deadline + ACK_GRACE_S,
            prepare=command,
            release=None,
            refusal=None,
        )
    )
    step.commands.append(command)
    step.owners.update(named(handover) if _is_lost(step, handover) else _followed(handover))


def named_at(handover: Handover, limits: ExecutionLimits) -> float:
    """When the target of a waiting hand-over after a loss is named at the latest (epoch seconds), scheduled or not."""
    return handover.since + (NAMED_WITHIN_S if limits.schedule_restores else 0.0)


def to_name(execution: Execution) -> Iterator[Handover]:
    """The waiting hand-overs after a loss whose targets the placement does not name yet."""
    for row in execution.in_flight:
        placement = execution.placements[row.app]
        for handover in row.handovers if row.lost else ():
            if handover.phase is HandoverPhase.WAITING:
                rows = named(handover).items()
                if any(placement.of(each.operator, each.partition) != wanted for each, wanted in rows):
                    yield handover


def name_due(step: Step) -> None:
    """Name the targets that still wait for their turn: without that, the group would place their key groups by number.

    They begin to restore beside the others then, and are prepared in their order all the same.
    """
    for handover in to_name(step.execution):
        if step.now >= named_at(handover, step.limits):
            step.owners.update(named(handover))
            step.changed = True


def withdraw(step: Step, handover: Handover, given: Collection[KeyGroup]) -> None:
    """Take key groups out of a hand-over after a loss, since they are given to another target.

    It has not begun, or its target is lost too.
    """
    if handover.attempt:
        _end(step, handover, HandoverPhase.FAILED, "its target is lost too")
        step.commands.append(_command(step, CommandKind.ABANDON, handover, step.limits.handover_timeout_s))
        return
    pairs = zip(handover.key_groups, handover.previous, strict=True)
    rest = [(key_group, row) for key_group, row in pairs if key_group not in given]
    if not rest:
        step.drop(handover)
        return
    share, lacking = len(rest) / len(handover.key_groups), handover.lacking_bytes
    step.put(
        replace(
            handover,
            key_groups=tuple(key_group for key_group, _ in rest),
            previous=tuple(row for _, row in rest),
            state_bytes=round(share * handover.state_bytes),
            lacking_bytes=None if lacking is None else round(share * lacking),
        )
    )


def named(handover: Handover) -> dict[KeyGroup, Owners]:
    """The rows that name the target as the next owner, after those that are lost."""
    rows = zip(handover.key_groups, handover.previous, strict=True)
    return {key_group: next_owned(row, handover.target) for key_group, row in rows}


def _is_lost(step: Step, handover: Handover) -> bool:
    return step.execution.rounds[handover.app].lost


def _followed(handover: Handover) -> dict[KeyGroup, Owners]:
    """The rows with the target as a further standby."""
    rows = zip(handover.key_groups, handover.previous, strict=True)
    return {kg: row if handover.target in row else (*row[:MAX_STANDBYS], handover.target) for kg, row in rows}


def _given(step: Step, handover: Handover) -> dict[KeyGroup, Owners]:
    """The rows after the move."""
    rows = zip(handover.key_groups, handover.previous, strict=True)
    return {kg: row_after(row, handover.source, handover.target, step.sites) for kg, row in rows}


def hear(step: Step, handover: Handover, ack: Ack) -> None:
    """Apply an agent's ack of a prepare or release."""
    if ack.refusal is not None:
        handover = replace(handover, refusal=ack.refusal)
    if answers(ack, handover.prepare):
        _hear_of_prepare(step, handover, ack)
    elif answers(ack, handover.release):
        _hear_of_release(step, handover, ack)


def _hear_of_prepare(step: Step, handover: Handover, ack: Ack) -> None:
    preparing = handover.phase is HandoverPhase.PREPARING
    match ack.phase:
        case Phase.PREPARED if preparing:
            release(step, handover, ack)
        case Phase.TOOK if handover.release is not None:
            _finish(step, handover, ack)
        case Phase.REFUSED if preparing and ack.refusal in RETRYABLE:
            _try_again(step, handover, said(ack))
        case Phase.EXPIRED if preparing:
            _give_up(step, handover, said(ack))
        case Phase.REFUSED if preparing and ack.refusal is Refusal.CATCH_UP_TIMEOUT:
            _give_up(step, handover, said(ack))
        case Phase.REFUSED if preparing and ack.refusal is Refusal.PRECONDITION and _is_lost(step, handover):
            _ask_reports(step, handover, said(ack))  # the group may have given it the key groups, and no window says so
        case Phase.REFUSED if preparing:
            _give_back(step, handover, said(ack))
        case Phase.REFUSED if handover.phase is HandoverPhase.RELEASING:
            _ask_reports(step, handover, said(ack))
        case _:
            pass  # repeated or late acks


def _hear_of_release(step: Step, handover: Handover, ack: Ack) -> None:
    if handover.phase is not HandoverPhase.RELEASING or ack.phase not in (Phase.REFUSED, Phase.EXPIRED):
        return  # `released` needs no reaction: the target's `took` ends the hand-over
    if ack.phase is Phase.EXPIRED or ack.refusal in UNCERTAIN:  # an expired command may still be carried out late
        _ask_reports(step, handover, said(ack))
    elif ack.refusal in RETRYABLE:
        _try_again(step, handover, said(ack))
    else:
        _give_back(step, handover, said(ack))


def release(step: Step, handover: Handover, ack: Ack) -> None:
    """The target is warm: tell the source to let go.  From now on the two workers talk to each other."""
    if _is_lost(step, handover):
        if ack.state_bytes is not None:
            handover = replace(handover, state_bytes=ack.state_bytes)
        _end(step, handover, HandoverPhase.DONE, None)  # the rows name it already, and the group does the rest
        return
    if ack.generation is None:
        _give_back(step, handover, "prepared without the engine's generation")
        return
    command = _command(step, CommandKind.RELEASE, handover, step.limits.handover_timeout_s, ack.generation)
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
    step.owners.update(_given(step, handover))


def _finish(step: Step, handover: Handover, ack: Ack) -> None:
    _end(step, handover, HandoverPhase.DONE, None, pause_s=ack.pause_s)
    if handover.phase is HandoverPhase.WAITING:  # given up too early: the placement must follow
        step.owners.update(_given(step, handover))


# --- faults -----------------------------------------------------------------------------------------------------------


def time_out(step: Step, handover: Handover) -> None:
    """Give up waiting for an ack."""
    match handover.phase:
        case HandoverPhase.PREPARING:
            _give_up(step, handover, "the target did not get ready in time")
        case HandoverPhase.RELEASING:
            _ask_reports(step, handover, "no answer after the release")
        case _:
            detail = f"{handover.detail}; the reports did not show the owner in time"
            _end(step, handover, HandoverPhase.UNRESOLVED, detail)


def stop(step: Step, handover: Handover, reason: str, lost: Collection[WorkerId] = ()) -> None:
    """End a hand-over that is not released yet, and one that is if an end of it is `lost`: the placement decides.

    What a lost source has nobody else for stays with a target that has begun to restore it.
    """
    has_lost_end = not {handover.source, handover.target}.isdisjoint(lost)
    match handover.phase:
        case HandoverPhase.WAITING if not handover.attempt:
            _end(step, handover, HandoverPhase.FAILED, reason)
        case HandoverPhase.PREPARING if handover.source in lost and handover.target not in lost:
            _leave_to_target(step, handover, reason, lost)
        case HandoverPhase.WAITING | HandoverPhase.PREPARING:
            _give_back(step, handover, reason)
        case HandoverPhase.RELEASING | HandoverPhase.RESOLVING if has_lost_end:
            _end(step, handover, HandoverPhase.UNRESOLVED, reason)
        case _:
            pass  # it arrives within moments, or has ended


def stop_all(step: Step, row: Round, reason: str, lost: Collection[WorkerId] = ()) -> None:
    """End a plan early, for this reason: none of its hand-overs begins or is tried again."""
    step.set_round(replace(row, stopped=reason))
    for handover in row.handovers:
        stop(step, handover, reason, lost)


def _leave_to_target(step: Step, handover: Handover, reason: str, lost: Collection[WorkerId]) -> None:
    """Name the target as the next owner of the key groups that no living standby will take over."""
    pairs = zip(handover.key_groups, handover.previous, strict=True)
    rows = {each: row if set(row).difference(lost, {handover.target}) else None for each, row in pairs}
    if all(rows.values()):
        _give_back(step, handover, reason)
        return
    _end(step, handover, HandoverPhase.FAILED, f"{reason}; {handover.target} is the next owner and goes on restoring")
    step.owners.update({**named(handover), **{each: row for each, row in rows.items() if row is not None}})


def _try_again(step: Step, handover: Handover, detail: str) -> None:
    """Return to the previous placement, and try again after a pause while attempts are left."""
    if (stopped := step.execution.rounds[handover.app].stopped) is not None:
        _give_back(step, handover, f"{detail}; {stopped}")
        return
    if handover.attempt >= step.limits.attempts:
        _give_up(step, handover, f"{detail}, {handover.attempt} times")
        return
    wake_at = step.now + RETRY_DELAY_S * handover.attempt
    step.put(replace(handover, phase=HandoverPhase.WAITING, since=step.now, wake_at=wake_at, detail=detail))
    if not _is_lost(step, handover):
        step.owners.update(zip(handover.key_groups, handover.previous, strict=True))


def _give_up(step: Step, handover: Handover, detail: str) -> None:
    """The target is not warm in time.  Where the source is lost it stays named, and goes on: nobody else is further."""
    if _is_lost(step, handover):
        _end(step, handover, HandoverPhase.FAILED, f"{detail}; it stays the next owner and goes on restoring")
    else:
        _give_back(step, handover, detail)


def _give_back(step: Step, handover: Handover, detail: str) -> None:
    """Leave the key groups at the source: publish the previous placement, and make the target close their state."""
    _end(step, handover, HandoverPhase.FAILED, detail)
    step.owners.update(zip(handover.key_groups, handover.previous, strict=True))
    step.commands.append(_command(step, CommandKind.ABANDON, handover, step.limits.handover_timeout_s))


def _ask_reports(step: Step, handover: Handover, detail: str) -> None:
    wake_at = step.now + RESOLVE_TIMEOUTS * step.limits.handover_timeout_s
    step.put(replace(handover, phase=HandoverPhase.RESOLVING, since=step.now, wake_at=wake_at, detail=detail))


def resolve(step: Step, handover: Handover, reported: Mapping[KeyGroup, WorkerId]) -> None:
    """End a hand-over without acks as the reports show it; wait while key groups are not reported."""
    owners = [reported.get(key_group) for key_group in handover.key_groups]
    if all(owner == handover.target for owner in owners):
        _end(step, handover, HandoverPhase.DONE, f"{handover.detail}; the reports show it done")
    elif all(owner == handover.source for owner in owners):
        returned = handover.refusal is Refusal.CATCH_UP_TIMEOUT  # the target gave it back; the next try would fail too
        (_give_back if returned else _try_again)(step, handover, handover.detail or "not released")
    elif None not in owners:
        _settle(step, handover, [owner for owner in owners if owner is not None])


def look(step: Step, handover: Handover, reported: Mapping[KeyGroup, WorkerId]) -> None:
    """End a hand-over whose source was lost, as soon as the reports show an owner of all its key groups again."""
    owners = [reported.get(key_group) for key_group in handover.key_groups]
    if all(owner == handover.target for owner in owners):
        _end(step, handover, HandoverPhase.DONE, "the consumer group gave it to the target before it was warm")
    elif all(owner == handover.source for owner in owners):
        if handover.attempt:
            _give_back(step, handover, f"{handover.source} is back")
        else:
            step.owners.update(zip(handover.key_groups, handover.previous, strict=True))
            _end(step, handover, HandoverPhase.FAILED, f"{handover.source} is back")
    elif None not in owners:
        handover = replace(handover, detail="the consumer group noticed the loss")
        _settle(step, handover, [owner for owner in owners if owner is not None])


def _settle(step: Step, handover: Handover, owners: Iterable[WorkerId]) -> None:
    """Follow the engine, which gave the key groups to other workers."""
    _end(step, handover, HandoverPhase.FAILED, f"{handover.detail}; other workers own it now")
    rows = zip(handover.key_groups, handover.previous, owners, strict=True)
    step.owners.update({kg: (owner, *(each for each in row[1:] if each != owner)) for kg, row, owner in rows})


def _end(
    step: Step, handover: Handover, phase: HandoverPhase, detail: str | None, pause_s: float | None = None
) -> None:
    step.put(replace(handover, phase=phase, since=step.now, wake_at=None, detail=detail, pause_s=pause_s))


def _command(
    step: Step, kind: CommandKind, handover: Handover, limit_s: float, generation: int | None = None
) -> Command:
    to_source = kind is CommandKind.RELEASE
    return Command(
        cluster=step.cluster,
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
