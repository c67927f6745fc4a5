"""For how long agents work on events, and when a key group can be released without a long pause.

Most events end within milliseconds.  Some stay unacknowledged for long: in a batch (`take`), while a service answers,
or because the app acknowledges by hand (`noack`).  A release waits for them, and its key group stands still meanwhile.
So it is begun only when they are about to end, as far as earlier ones have shown, and is refused otherwise.

Where a topic has several agents, an event that one has begun may wait in the queue of another, behind thousands.  That
is no work: a release brings such events forward.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from faust.types import TP

EARLY_S = 2.0
"""So long before an event is expected to end its key group stops: when earlier ones ended is known to a second."""
FADES = 0.8
"""What is left of the longest time when a shorter one is seen: an app may have become faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InWork:
    """The oldest event of a partition that agents have begun and not acknowledged, and how old it is."""

    tp: TP
    offset: int
    age_s: float

    def __str__(self) -> str:
        return f"{self.tp.topic}/{self.tp.partition} offset {self.offset} is in work for {self.age_s:.0f} s"


class EventsInWork:
    """What was seen of begun events, by source partition."""

    def __init__(self) -> None:
        self.counts: Counter[TP] = Counter()
        """How many were in work when `see` looked last."""
        self._oldest: dict[TP, InWork] = {}
        self._seen_at = 0.0
        self._waited_until: dict[Any, float] = {}
        """When begun messages were last seen to wait for another agent."""
        self._waiting: dict[Any, set[Any]] = {}
        """Those that did at the last look, by its queue."""
        self._taken: dict[Any, float] = {}
        """How many of them an agent has taken per second, by its queue."""
        self._longest: dict[TP, float] = {}

    def see(self, begun: Collection[Any], waiting: Mapping[Any, Collection[Any]], now: float) -> None:
        """Look at all begun events (Faust's messages); `now` in monotonic seconds.  Call it about once a second.

        `waiting`: those of them that another agent has yet to take, by its queue.
        """
        passed_s, known = now - self._seen_at, self._waited_until
        self._taken = {
            queue: len(before.difference(waiting.get(queue, ()))) / passed_s for queue, before in self._waiting.items()
        }
        self._waiting = {queue: set(messages) for queue, messages in waiting.items() if messages}
        self._waited_until = {message: known[message] for message in begun if message in known}
        self._waited_until |= dict.fromkeys(chain.from_iterable(waiting.values()), now)
        in_hands = [message for message in begun if self._waited_until.get(message) != now]
        self.counts = Counter(message.tp for message in in_hands)
        present, before = self.oldest_of(in_hands, now), self._oldest
        for tp, seen in before.items():
            still = present.get(tp)
            if still is None or still.offset != seen.offset:
                self.note(tp, seen.age_s + passed_s)  # at most: it has ended since
        self._oldest, self._seen_at = present, now

    def seconds_behind(self, queue: Any, waiting: Sequence[Any], tps: Collection[TP], now: float) -> float:
        """About how long an agent takes to take those of these partitions, if it takes them before all others.

        `waiting` = all begun events in its queue.  It goes on as fast as it was seen last; until then, as fast as other
        agents have begun these events.
        """
        ours, taken = sum(message.tp in tps for message in waiting), self._taken.get(queue)
        if not ours:
            return 0.0
        if taken is None:
            return ours / len(waiting) * max(now - (message.time_in or now) for message in waiting)
        return ours / taken if taken else math.inf

    def note(self, tp: TP, seconds: float) -> None:
        """An event of this partition took so long."""
        self._longest[tp] = max(seconds, FADES * self._longest.get(tp, 0.0))

    def longest_s(self, tps: Iterable[TP]) -> float:
        """For how long events of these partitions stay in work; 0 while all that ended were short."""
        return max((self._longest.get(tp, 0.0) for tp in tps), default=0.0)

    def forget(self, tps: Iterable[TP]) -> None:
        """Forget partitions that this worker no longer owns."""
        for tp in tps:
            self.counts.pop(tp, None)
            self._oldest.pop(tp, None)
            self._longest.pop(tp, None)

    def oldest_of(self, begun: Iterable[Any], now: float) -> dict[TP, InWork]:
        """The oldest of these events of each partition; one without a time has just been begun."""
        found: dict[TP, InWork] = {}
        for message in begun:
            began = now if message.time_in is None else max(message.time_in, self._waited_until.get(message, 0.0))
            age_s = now - began
            if (known := found.get(message.tp)) is None or age_s > known.age_s:
                found[message.tp] = InWork(tp=message.tp, offset=message.offset, age_s=age_s)
        return found


def seconds_to_wait(oldest: InWork | None, longest_s: float, limit_s: float) -> float | None:
    """How long to wait before a release stops the key group, so that it need not stand still for longer than `limit_s`.

    0: it may stop now.  None: nobody knows when the event will end; it is older than any before.
    """
    if oldest is None or (longest_s <= limit_s and oldest.age_s <= limit_s):
        return 0.0
    if oldest.age_s > longest_s + EARLY_S:
        return None
    return max(0.0, longest_s - oldest.age_s - EARLY_S)
