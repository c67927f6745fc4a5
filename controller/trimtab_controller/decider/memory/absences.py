"""What is kept of apps and workers that are gone, and for how long.  No I/O, no clock.

A placement is published for ever, and every host may name apps of its own.  So an app's placement ends when nobody has
run the app for long, and so does what is known of a worker that was stopped and that no host names any more.  New apps
get a first placement at a limited rate for each host.

An app that comes back gets a first placement again, of what the engine decides meanwhile; its state is in Kafka, and
workers restore what they have no copy of.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from trimtab_controller.decider.memory.observe import placed_workers
from trimtab_controller.decider.values.decision import Forgotten
from trimtab_controller.decider.window.view import AppView
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.intents import Drain, Intent
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.rate_limit import RateLimits
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import first_few, time_span

KEPT_S = 24 * 3600.0
"""How long the placement of an app is kept that nobody runs, and a stopped worker that no host names; counted anew by
a new leader."""
SPARED_S = 3600.0
"""How long at least, where there are too many of them."""
MAX_UNRUN = 20
"""Placements that are kept of apps that nobody runs, of those that one host alone ran."""
MAX_APPS = 2_000
"""Apps with a placement."""
NEW_AT_ONCE, NEW_PER_S = 200, 1 / 60.0
"""New apps of one host that get a first placement: at once, and per second after that."""
MOST = 50
"""How many apps and workers are forgotten in one window."""


@dataclass(slots=True)
class AbsenceTracker:
    """Follows which apps run.  `unrun` and `unseen` = since when (epoch seconds) apps and stopped workers are gone."""

    unrun: dict[AppId, float] = field(default_factory=dict)
    unseen: dict[WorkerId, float] = field(default_factory=dict)
    _hosts: dict[AppId, frozenset[HostId]] = field(default_factory=dict)
    _new: RateLimits = field(default_factory=lambda: RateLimits(rate=NEW_PER_S, burst=NEW_AT_ONCE, most=10_000))

    def observe(self, snapshot: Snapshot, execution: Execution) -> None:
        """Note what a window shows that has passed `check_cluster`."""
        end_s, placements = snapshot.end_ms / 1000.0, execution.placements
        hosts: defaultdict[AppId, set[HostId]] = defaultdict(set)
        declared = {row.declared for row in snapshot.nodes}
        for row in snapshot.nodes:
            if row.app is not None and row.state is not WorkerState.AWAY:
                hosts[row.app].add(row.host)
        self._hosts = {app: each for app, each in self._hosts.items() if app in placements}
        self._hosts |= {app: frozenset(each) for app, each in hosts.items()}
        here = hosts.keys() | declared | {block.app for block in snapshot.blocks}
        self.unrun = {app: self.unrun.get(app, end_s) for app in placements if app not in here}
        named = {row.worker for row in snapshot.nodes}
        self.unseen = {each: self.unseen.get(each, end_s) for each in execution.scalings if each not in named}

    def to_forget(self, end_s: float, execution: Execution, intents: tuple[Intent, ...]) -> Iterator[Forgotten]:
        """The apps and workers that have been gone for too long; drained workers stay known while the drain lasts."""
        for app, why in islice(self._apps(end_s, execution), MOST):
            yield Forgotten(what=f"app {app}", answered=(), detail=why, app=app)
        if execution.in_flight:
            return
        owners = placed_workers(execution.placements.values())
        spared = owners | {each.worker for each in intents if isinstance(each, Drain)}
        for worker, since in islice(self.unseen.items(), MOST):
            if end_s - since >= KEPT_S and worker not in spared:
                detail = f"no host has named it for {time_span(KEPT_S)}"
                yield Forgotten(what=f"worker {worker}", answered=(), detail=detail, worker=worker)

    def _apps(self, end_s: float, execution: Execution) -> Iterator[tuple[AppId, str]]:
        """The apps to forget, and why; the longest gone first."""
        of_host: defaultdict[HostId, int] = defaultdict(int)
        for app in self.unrun:
            for host in self._alone_on(app):
                of_host[host] += 1
        total = len(execution.placements)
        for app, since in sorted(self.unrun.items(), key=lambda item: (item[1], item[0])):
            hosts, gone_s = self._alone_on(app), end_s - since
            if gone_s < SPARED_S or execution.busy(app):
                continue
            said = f"nobody has run it for {time_span(gone_s)}"
            if gone_s >= KEPT_S:
                yield app, said
            elif any(of_host[host] > MAX_UNRUN for host in hosts):
                yield app, f"{said}, and {hosts[0]} alone has run more than {MAX_UNRUN} such apps"
            elif total > MAX_APPS:
                yield app, f"{said}, and there are more than {MAX_APPS} apps"
            else:
                continue
            total -= 1
            for host in hosts:
                of_host[host] -= 1

    def _alone_on(self, app: AppId) -> tuple[HostId, ...]:
        """The host of an app that only one host ran."""
        hosts = tuple(self._hosts.get(app, ()))
        return hosts if len(hosts) == 1 else ()

    def refusal(self, view: AppView, placements: Mapping[AppId, Placement]) -> str | None:
        """Why a new app gets no first placement now; None: it gets one."""
        if len(placements) >= MAX_APPS:
            return f"{len(placements)} apps have a placement, and {MAX_APPS} may"
        hosts = sorted({worker.host for worker in view.workers})
        if any(self._new.has(host, view.end_s) for host in hosts):
            return None
        most = f"more than {NEW_AT_ONCE} new apps, and then more than one per {time_span(1 / NEW_PER_S)}"
        return f"{first_few(hosts)} had {most}"

    def accepted(self, view: AppView) -> None:
        """Count the first placement of a new app for one of its hosts."""
        hosts = sorted({worker.host for worker in view.workers})
        next((host for host in hosts if self._new.spend(host, view.end_s)), None)

    def forget(self, app: AppId | None, worker: WorkerId | None) -> None:
        """Forget an app or a worker."""
        if app is not None:
            self.unrun.pop(app, None)
        if worker is not None:
            self.unseen.pop(worker, None)
