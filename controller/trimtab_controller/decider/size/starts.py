"""How long started workers took until they ran, as seen in this run of the controller.  Pure.

As in Flink's autoscaler (`restart.time-tracking`), the longest of the last starts counts, and the configured
`restart_s` stands in until one was seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trimtab_controller.execution.state import Scaling, ScalingPhase
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId, CommandId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

KEPT = 10
"""Starts of an app that count, the newest."""
LONGEST_S = 900.0
"""A start counts with so much at most: Flink's `restart.time-tracking.limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """`took` = seconds from START until the end of the window in which the worker runs, per app, the newest last.

    `counted` = the commands among the present ones that are in it.  `since_s` = end of the first window (epoch
    seconds): of what was started before, it is not known how long it took.
    """

    took: Mapping[AppId, tuple[float, ...]] = field(default_factory=dict)
    counted: frozenset[CommandId] = frozenset()
    since_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "took", MappingProxyType(dict(self.took)))

    def measured_s(self, app: AppId) -> float | None:
        """The longest of the last starts; None while none was seen."""
        return max(self.took.get(app, ()), default=None)

    def after(self, snapshot: Snapshot, scalings: Mapping[WorkerId, Scaling]) -> "Starts":
        """What is known after a further window."""
        end_s = snapshot.end_ms / 1000.0
        since_s = end_s if self.since_s is None else self.since_s
        took = dict(self.took)
        counted = {scaling.command.id for scaling in scalings.values()} & self.counted
        for row in snapshot.nodes:
            scaling = scalings.get(row.worker)
            if scaling is None or row.app is None or row.state is not WorkerState.RUNNING:
                continue
            command = scaling.command
            if command.kind is not CommandKind.START or scaling.phase is not ScalingPhase.DONE:
                continue
            if command.id in counted or not since_s <= command.issued_at < end_s:
                continue
            counted.add(command.id)
            seconds = min(LONGEST_S, end_s - command.issued_at)
            took[row.app] = (*took.get(row.app, ()), seconds)[-KEPT:]
        return Starts(took=took, counted=frozenset(counted), since_s=since_s)
