"""Unfinished hand-overs of this worker, as source or as target."""

import asyncio
from collections.abc import Iterator

from trimtab_agent.engines.faust.steering.answers import Answer
from trimtab_agent.engines.outcomes import Outcome
from trimtab_protocol.messages.names import KeyGroup


class PendingHandovers:
    """Unfinished hand-overs, by hand-over id."""

    def __init__(self) -> None:
        self._prepared: dict[str, tuple[Answer, tuple[KeyGroup, ...]]] = {}
        """Prepared here; their answers wait for the last outcome, normally `Took`."""
        self._released: dict[str, asyncio.Event] = {}
        """Released here; the event is set at the target's `took` record."""

    def prepare(self, handover: str, answer: Answer, key_groups: tuple[KeyGroup, ...]) -> None:
        """Note a hand-over whose target is this worker."""
        self._prepared[handover] = (answer, key_groups)

    def prepared_key_groups(self) -> Iterator[KeyGroup]:
        """All key groups that must be kept warm for a hand-over."""
        return (key_group for _, key_groups in self._prepared.values() for key_group in key_groups)

    def drop_prepared(self, handover: str) -> bool:
        """Forget a prepared hand-over; returns whether it was known."""
        return self._prepared.pop(handover, None) is not None

    def end_prepared(self, handover: str, outcome: Outcome) -> None:
        """Report the last outcome of a prepare, unless a rebalance or an abandon has ended it already."""
        if (prepared := self._prepared.pop(handover, None)) is not None:
            prepared[0].say(outcome)

    def end_all_prepared(self, outcome: Outcome) -> None:
        """Report the same last outcome for all prepares."""
        prepared, self._prepared = self._prepared, {}
        for answer, _ in prepared.values():
            answer.say(outcome)

    def release(self, handover: str) -> None:
        """Note a hand-over whose source is this worker, before its `released` record is written."""
        self._released[handover] = asyncio.Event()

    def note_took(self, handover: str) -> None:
        """Note that the target has taken over."""
        if (taken := self._released.get(handover)) is not None:
            taken.set()

    async def wait_until_taken(self, handover: str) -> None:
        """Wait for the target's `took` record."""
        await self._released[handover].wait()

    def forget_released(self, handover: str) -> None:
        """Forget a released hand-over: nothing waits for its end any more."""
        self._released.pop(handover, None)
