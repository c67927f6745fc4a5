"""What it costs to follow key groups, measured: the share of their load that their standbys take.

Plug-ins report how much CPU their worker needs to read and apply changelogs.  In a window, what the workers of an app
need for that is compared with the load of the key groups that they follow.  The median of the last windows counts:
while new standbys restore, they read whole changelogs, which is not what following costs.

One number per app, because key groups of an app do alike work: what differs is how much.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from trimtab_controller.decider.observing.owned import PERCENT_PER_CORE
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow

SAMPLES = 30
"""Windows that are remembered of an app."""
SAMPLES_NEEDED = 3
"""Windows from which the measured share counts."""
LEAST_LOAD = 1.0
"""Percent of a core that the followed key groups must ask for: what polling takes does not depend on them."""
MOST = 1.0
"""Following is never taken for more work than the work itself."""


class FollowingCosts:
    """Learns per app which share of a key group's load it takes to follow it."""

    def __init__(self) -> None:
        self._samples: dict[AppId, deque[float]] = {}

    def see(
        self,
        app: AppId,
        followed: Mapping[WorkerId, float],
        nodes: Iterable[NodeWindow],
        speeds: Mapping[HostId, float],
    ) -> None:
        """Learn from a window of an app.

        `followed` = load of the key groups that each worker follows, in percent of a reference core; `speeds` = how
        fast hosts are.
        """
        took = load = 0.0
        for row in nodes:
            its = followed.get(row.worker, 0.0)
            if row.app != app or row.state is not WorkerState.RUNNING or row.following is None or not its > 0.0:
                continue
            took += PERCENT_PER_CORE * row.following * speeds.get(row.host, 1.0)
            load += its
        if load >= LEAST_LOAD:
            self._samples.setdefault(app, deque(maxlen=SAMPLES)).append(took / load)

    def of(self, app: AppId) -> float | None:
        """The share; None = not measured yet."""
        found = self._samples.get(app, ())
        return min(MOST, median(found)) if len(found) >= SAMPLES_NEEDED else None

    def keep(self, apps: Iterable[AppId]) -> None:
        """Forget all other apps."""
        known = set(apps)
        self._samples = {app: found for app, found in self._samples.items() if app in known}
