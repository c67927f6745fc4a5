"""Unfinished hand-overs of this worker, as source or as target: what they may end with was announced here.

Any worker of any app may write to the topic of hand-over records.  So this worker believes only a record that fits what
it knows itself: a prepare that it has carried out, or a release of its own.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from trimtab_agent.engines.faust.handover.handover import given_back, took
from trimtab_agent.engines.outcomes import CommandOutcomes
from trimtab_protocol.messages.commands import Command, Refusal
from trimtab_protocol.messages.handover import HandoverRecord
from trimtab_protocol.messages.names import KeyGroup


@dataclass(slots=True, kw_only=True)
class _Prepare:
    """A prepare of this worker in a group generation; its answer waits for the last outcome, normally `took`."""

    command: Command
    generation: int
    answer: CommandOutcomes
    taking: bool = False

    def announces(self, record: HandoverRecord) -> bool:
        """Whether this `released` record is the one that the prepare announced."""
        command = self.command
        return (
            (record.source, record.target, record.generation) == (command.source, command.target, self.generation)
            and set(record.key_groups) == set(command.key_groups)
            and record.epoch >= command.epoch  # the release was published later
        )


@dataclass(slots=True)
class _Release:
    """What this worker has written to the topic; `ended` is set when the target has taken over or gives back."""

    record: HandoverRecord
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    came_back: bool = False


class PendingHandovers:
    """Unfinished hand-overs, by hand-over id."""

    def __init__(self) -> None:
        self._prepared: dict[str, _Prepare] = {}
        self._released: dict[str, _Release] = {}
        self.adopted: frozenset[KeyGroup] = frozenset()
        """Key groups that nobody owned at the last join in place, while this worker takes them over."""

    def key_groups(self) -> Iterator[KeyGroup]:
        """All key groups to keep warm for a hand-over: they come, or may come, or come back."""
        yield from self.adopted
        for prepare in self._prepared.values():
            yield from prepare.command.key_groups
        for release in self._released.values():
            yield from release.record.key_groups

    # ---- as the target

    def prepare(self, command: Command, generation: int, answer: CommandOutcomes) -> None:
        """Note a hand-over whose target is this worker."""
        assert command.handover is not None
        self._prepared[command.handover] = _Prepare(command=command, generation=generation, answer=answer)

    def accept(self, record: HandoverRecord) -> bool:
        """Whether this worker shall take over by this `released` record; True only once for each prepare."""
        prepare = self._prepared.get(record.handover)
        if prepare is None or prepare.taking or not prepare.announces(record):
            return False
        prepare.taking = True
        return True

    def end_prepared(self, handover: str) -> CommandOutcomes | None:
        """Forget a prepare; its answer, None if a rebalance or an abandon has ended it already."""
        prepare = self._prepared.pop(handover, None)
        return None if prepare is None else prepare.answer

    def refuse_prepared(self, refusal: Refusal, detail: str) -> None:
        """End all prepares, with this as their last outcome."""
        prepared, self._prepared = self._prepared, {}
        for prepare in prepared.values():
            prepare.answer.refuse(refusal, detail)

    # ---- as the source

    def release(self, record: HandoverRecord) -> None:
        """Note a hand-over whose source is this worker, before its `released` record is written."""
        self._released[record.handover] = _Release(record)

    def end_released(self, record: HandoverRecord) -> bool:
        """Whether the record ends a release of this worker: its target has taken over, or gives back."""
        release = self._released.get(record.handover)
        if release is None or record not in (took(release.record), given_back(release.record)):
            return False
        release.came_back = record.target == release.record.source
        release.ended.set()
        return True

    async def wait_until_ended(self, handover: str) -> bool:
        """Wait until the target has taken over, or gives back; returns whether it gives back."""
        release = self._released[handover]
        await release.ended.wait()
        return release.came_back

    def forget_released(self, handover: str) -> None:
        """Forget a released hand-over: nothing waits for its end any more."""
        self._released.pop(handover, None)
