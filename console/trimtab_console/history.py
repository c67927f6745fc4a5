"""How the figures of each app went over time: one point per window, as far back as memory is spent on it."""

from collections import deque

from trimtab_protocol.console_documents import Point
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.status import AppStatus, Status

MAX_POINTS = 2_000
"""Points kept per app: five and a half hours of windows of 10 s."""
MAX_APPS = 100
"""Apps whose figures are kept over time."""


class History:
    """The points of one cluster's apps, oldest first."""

    def __init__(self) -> None:
        self._points: dict[AppId, deque[Point]] = {}

    def note(self, status: Status) -> None:
        """Add a point per app for the status's window; statuses of a window that is known change nothing."""
        if status.window_end is None:
            return
        for app in status.apps:
            points = self._points.get(app.app)
            if points is None:
                if len(self._points) >= MAX_APPS:
                    continue
                points = self._points[app.app] = deque(maxlen=MAX_POINTS)
            if not points or points[-1].at < status.window_end:
                points.append(_point(app, status, status.window_end))

    def of(self, app: AppId) -> tuple[Point, ...]:
        """The points of an app."""
        return tuple(self._points.get(app, ()))

    def restart(self) -> None:
        """Forget everything: the topic was made anew."""
        self._points.clear()


def _point(app: AppStatus, status: Status, at: float) -> Point:
    bound = next((row.lower_bound for row in reversed(status.rounds) if row.app == app.app), None)
    return Point(
        at=at,
        load_distance=app.load_distance,
        bound=bound,
        mean_load=app.mean_load,
        demand_cores=app.size.demand_cores if app.size else None,
        capacity_cores=app.size.capacity_cores if app.size else None,
    )
