"""How much of the time a worker's main thread was ready to run and got no core.

CPU alone does not tell a worker that wants no more from one that gets no more.  Its agent may see a share of the
machine only, so a full host need not look full to it.  The kernel measures the difference: the run delay of a thread,
in `/proc/PID/schedstat` (Linux Documentation/scheduler/sched-stats.rst).  The file of a process is that of its main
thread, which is where Faust runs its event loop.  What a hypervisor withholds is not in it.

The share is that of the last WAITS_S seconds, like the averages of the kernel's pressure-stall information.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from trimtab_agent.sampler.derive import HostReading
from trimtab_protocol.messages.names import WorkerId

WAITS_S = 10.0
"""Seconds over which the share is averaged, or one interval of the agent if that is longer."""
MAX_READINGS = 100
"""Readings of a worker that are kept; with more than ten a second they cover less than WAITS_S."""


class _Waited(NamedTuple):
    at: float
    pid: int
    created: float
    waited_s: float


class Waits:
    """Follows the run delays of the workers' main threads."""

    def __init__(self) -> None:
        self._seen: dict[WorkerId, deque[_Waited]] = {}

    def see(self, reading: HostReading) -> Mapping[WorkerId, float]:
        """The share of each worker, from 0 to 1, with this reading; those that are not known are missing."""
        now = {
            worker: _Waited(reading.monotonic_s, process.pid, process.created, process.waited_s)
            for worker, process in reading.workers.items()
            if process is not None and process.waited_s is not None
        }
        self._seen = {worker: _then(self._seen.get(worker), last) for worker, last in now.items()}
        shares = ((worker, _share(seen)) for worker, seen in self._seen.items())
        return {worker: share for worker, share in shares if share is not None}


def _then(seen: deque[_Waited] | None, last: _Waited) -> deque[_Waited]:
    """The readings with the last one: without those that are too old, and none of another process."""
    if not seen or not _continues(seen[-1], last):
        return deque([last], maxlen=MAX_READINGS)
    seen.append(last)
    while len(seen) > 2 and seen[1].at <= last.at - WAITS_S:
        seen.popleft()
    return seen


def _continues(before: _Waited, last: _Waited) -> bool:
    return before[1:3] == last[1:3] and before.at < last.at and before.waited_s <= last.waited_s


def _share(seen: deque[_Waited]) -> float | None:
    first, last = seen[0], seen[-1]
    return None if len(seen) < 2 else min(1.0, (last.waited_s - first.waited_s) / (last.at - first.at))


def waited_s_of(schedstat: str) -> float | None:
    """Seconds that a thread waited for a core, from its `schedstat`: nanoseconds run, nanoseconds waited, slices."""
    words = schedstat.split()
    return int(words[1]) / 1e9 if len(words) >= 2 and words[1].isdecimal() and len(words[1]) <= 20 else None
