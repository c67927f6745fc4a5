"""How long before a fault the oldest input was done that was done again.  Pure.

A worker that is killed or stopped has done what it has not committed, and others do that again.  A commit begins once
per interval, so an input may be repeated only if it was done so shortly before the fault.

With the local hop an input is done when the direct events are that it has caused; and an offset is committed only when
all before it are done.  How long that takes depends on the queues, which an input passes in no certain time: a job that
catches up on a busy machine has up to `LocalSettings.depth` events in them.  So an input counts from when all of that
was in the log, which Kafka tells, and not from its own output.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

Done = Mapping[int, Sequence[float]]
"""Number -> when it was done (epoch seconds), in order."""


def oldest_repeat_s(done: Mapping[str, Done], faults: Iterable[float]) -> float | None:
    """None if nothing was repeated, infinite where no fault explains it.  What was sent twice is totalled twice."""
    faults, regrouped = list(faults), done["regrouped"]
    firsts = [
        times[0]
        for topic, seen in done.items()
        for number, times in seen.items()
        if len(times) > 1 and not (topic == "totals" and len(regrouped.get(number, ())) > 1)
    ]
    return max((_before(faults, first) for first in firsts), default=None)


def oldest_repeat_local_s(
    done: Mapping[str, Done], faults: Iterable[float], partition_of: Callable[[int], int]
) -> float | None:
    """The same, where events between the agents may skip the broker; `partition_of` = where a number comes from."""
    faults, outputs, regrouped, totals = list(faults), done["outputs"], done["regrouped"], done["totals"]
    finished = _finished(outputs, totals, partition_of)
    ages = []
    for topic in (outputs, regrouped):
        for number, times in topic.items():
            if len(times) > 1:
                fault = min((each for each in faults if each >= times[0]), default=math.inf)
                ages.append(max(0.0, fault - finished.get(number, times[0])))
    for number, times in totals.items():
        sent = regrouped.get(number, ())
        if len(times) > max(1, len(outputs.get(number, ())), len(sent)):
            # Its reader was killed; or its sender was, the first output of which may have been lost with it.
            ages.append(min(_before(faults, first) for first in (times[0], *sent[:1])))
    return max(ages, default=None)


def _finished(outputs: Done, totals: Done, partition_of: Callable[[int], int]) -> dict[int, float]:
    """Number -> when it, what it caused and all before it from its partition were in the log for the first time."""
    latest: dict[int, float] = {}
    finished = {}
    for number in sorted(outputs):
        partition = partition_of(number)
        done_at = max(outputs[number][0], *totals.get(number, ())[:1], latest.get(partition, 0.0))
        finished[number] = latest[partition] = done_at
    return finished


def _before(faults: Sequence[float], first: float) -> float:
    return min((fault - first for fault in faults if fault >= first), default=math.inf)
