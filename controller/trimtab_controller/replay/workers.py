"""Which workers run in a replay that scales: they begin as recorded, then its own controller starts and stops them.

A worker that is started runs after `restart_s`.  One that runs here and had been stopped when it was recorded is like
the others of its app, and has the CPU of its key groups beside what a worker uses without any.  One that was recorded
running and does not run here can be started.  A worker that was lost when it was recorded is lost here, too: crashed,
or not reported.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot


@dataclass(slots=True)
class ReplayedWorkers:
    """The workers of the apps that the settings let scale; those of all others are as recorded.

    `_since` = the workers that run here, and from when on (epoch seconds).  `_like` = a row of a running worker of each
    app, and the cores that a worker used without its key groups.
    """

    settings: ScalingSettings
    _begun: set[AppId] = field(default_factory=set)
    _since: dict[WorkerId, float] = field(default_factory=dict)
    _like: dict[AppId, tuple[NodeWindow, float]] = field(default_factory=dict)

    def scales(self, app: AppId | None) -> bool:
        """Whether the size of an app is the replay's own."""
        return app is not None and self.settings.of(app).mode is Mode.ACT

    def command(self, now: float, commands: Iterable[Command]) -> None:
        """Take starts and stops."""
        for each in commands:
            if each.kind is CommandKind.START and each.app is not None:
                self._since[each.worker] = now + self.settings.of(each.app).restart_s
            elif each.kind is CommandKind.STOP:
                self._since.pop(each.worker, None)

    def of_window(self, snapshot: Snapshot) -> Snapshot:
        """The window with the workers as they are here; their key groups are as recorded."""
        if not any(self.scales(row.app or row.declared) for row in snapshot.nodes):
            return snapshot
        self._see(snapshot)
        rows = tuple(self._row(row, snapshot.start_ms / 1000.0) for row in snapshot.nodes)
        return replace(snapshot, nodes=rows)

    def _see(self, snapshot: Snapshot) -> None:
        """Begin with the workers that run when an app is seen first; later ones count if no agent could start them."""
        used: defaultdict[WorkerId, float] = defaultdict(float)
        for block in snapshot.blocks:
            for worker, cpu in zip(block.worker, block.cpu, strict=True):
                used[block.workers[worker]] += 0.0 if cpu == UNKNOWN else cpu
        running: defaultdict[AppId, list[NodeWindow]] = defaultdict(list)
        for row in snapshot.nodes:
            if row.app is None or row.state is WorkerState.AWAY or not self.scales(row.app):
                continue
            if row.app not in self._begun or row.declared is None:
                self._since.setdefault(row.worker, 0.0)
            if row.state is WorkerState.RUNNING:
                running[row.app].append(row)
        for app, rows in running.items():
            self._begun.add(app)
            idle = median(max(0.0, (row.cpu or 0.0) - used[row.worker]) for row in rows)
            self._like[app] = rows[0], idle

    def _row(self, row: NodeWindow, start_s: float) -> NodeWindow:
        app = row.app or row.declared
        if app is None or not self.scales(app) or app not in self._like:
            return row
        since = self._since.get(row.worker)
        if row.state is not WorkerState.AWAY:
            return row if since is not None and start_s >= since else _away(row, app, starting=since is not None)
        if row.absence is not Absence.STOPPED or since is None:
            return row
        like, idle = self._like[app]
        kept = replace(like, worker=row.worker, host=row.host, capacity=row.capacity, cpu=idle, declared=row.declared)
        return replace(kept, also_on=()) if start_s >= since else _away(row, app, starting=True)


def _away(row: NodeWindow, app: AppId, *, starting: bool) -> NodeWindow:
    """A worker that its agent can start, or has just started."""
    return NodeWindow(
        worker=row.worker,
        host=row.host,
        app=None,
        state=WorkerState.AWAY,
        capacity=row.capacity,
        covered_s=row.covered_s,
        cpu=None,
        complete=True,
        steering=False,
        absence=Absence.STARTING if starting else Absence.STOPPED,
        declared=app,
    )


def with_fewest(owners: Mapping[KeyGroup, WorkerId], workers: Iterable[WorkerId]) -> WorkerId | None:
    """The worker that the consumer group would give a key group to: that with the fewest."""
    counts = dict.fromkeys(sorted(workers), 0)
    for worker in owners.values():
        if worker in counts:
            counts[worker] += 1
    return min(counts, key=counts.__getitem__, default=None)
