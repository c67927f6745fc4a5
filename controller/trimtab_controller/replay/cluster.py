"""Agents and workers of a replay: they carry out commands, and answer as late as real ones.

A prepared target is warm after `unit_s`, and after the time in which its host reads what it lacks; a host reads for all
its restores at `bytes_s`, one after the other.  A released key group pauses for `pause_s`.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_controller.execution.restore_costs import BYTES_PER_S, UNIT_S
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId

PAUSE_S = 0.2
"""Default of a key group's pause in a hand-over, where none was measured."""
GENERATION = 1
"""The consumer group of a replay never rebalances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast hand-overs go: see the module.  `pause_s` = by app, as measured in the recorded time."""

    unit_s: float = UNIT_S
    bytes_s: float = BYTES_PER_S
    pause_s: Mapping[AppId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Key groups that a worker owns from now on; they paused for `pause_s` seconds each (0 after a loss)."""

    key_groups: tuple[KeyGroup, ...]
    worker: WorkerId
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Due:
    at: float
    number: int
    ack: Ack = field(compare=False)
    taken: Taken | None = field(default=None, compare=False)


class ReplayedCluster:
    """Takes commands, and returns acks when they are due.  `restored` = bytes that targets had to read, by app."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._due: list[_Due] = []
        self._numbers = itertools.count()
        self._free_at: dict[HostId, float] = {}
        self.restored: Counter[AppId] = Counter()

    @property
    def next_at(self) -> float | None:
        """When the next ack is due (epoch seconds)."""
        return self._due[0].at if self._due else None

    def command(self, now: float, commands: Iterable[Command], execution: Execution) -> None:
        """Take commands that `execution` has just published."""
        for each in commands:
            match each.kind:
                case CommandKind.PREPARE:
                    self._prepare(now, each, execution)
                case CommandKind.RELEASE:
                    self._release(now, each, execution)
                case CommandKind.START:
                    self._answer(now, each, Phase.STARTED)
                case CommandKind.STOP:
                    self._answer(now, each, Phase.STOPPED, exit_code=0)
                case _:
                    pass  # nothing waits for the answer

    def due(self, now: float) -> tuple[Ack, Taken | None] | None:
        """The next ack that is due, and what it says of owners; None: none is due."""
        if not self._due or self._due[0].at > now:
            return None
        found = heapq.heappop(self._due)
        return found.ack, found.taken

    def _prepare(self, now: float, command: Command, execution: Execution) -> None:
        handover = execution.handover_of(command.id)
        if handover is None:
            return
        lacking = handover.to_restore()
        self.restored[handover.app] += lacking
        begin = max(now, self._free_at.get(command.host, now))
        warm_at = begin + self._pace.unit_s + lacking / self._pace.bytes_s
        if lacking:
            self._free_at[command.host] = warm_at
        lost = execution.rounds[handover.app].lost
        taken = Taken(key_groups=handover.key_groups, worker=handover.target, pause_s=0.0) if lost else None
        self._answer(warm_at, command, Phase.PREPARED, taken, generation=GENERATION)

    def _release(self, now: float, command: Command, execution: Execution) -> None:
        handover = execution.handover_of(command.id)
        if handover is None or handover.prepare is None:
            return
        pause_s = self._pace.pause_s.get(handover.app, PAUSE_S)
        taken = Taken(key_groups=handover.key_groups, worker=handover.target, pause_s=pause_s)
        self._answer(now + pause_s, handover.prepare, Phase.TOOK, taken, generation=GENERATION, pause_s=pause_s)

    def _answer(self, at: float, command: Command, phase: Phase, taken: Taken | None = None, **told: Any) -> None:
        ack = Ack.to(command, phase, at=at, **told)
        heapq.heappush(self._due, _Due(at=at, number=next(self._numbers), ack=ack, taken=taken))
