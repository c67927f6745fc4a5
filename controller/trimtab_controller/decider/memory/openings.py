"""When plans for balance may begin again, where [plans] holds them back."""

from datetime import datetime

from trimtab_controller.decider.values.plan_settings import DAY_S, PlanTimes, zone_of
from trimtab_protocol.wording import time_span

FORESEEN_S = 7 * DAY_S
"""How far ahead the end of what holds plans back is looked for: that of `* * * * *` never comes."""


class Openings:
    """Looks for the end of a freeze minute by minute, so it remembers what it has found."""

    def __init__(self) -> None:
        self._found: dict[PlanTimes, tuple[float, float, float | None]] = {}
        """What was found last: it holds for questions between the first two times."""

    def closed(self, times: PlanTimes, now: float) -> str | None:
        """Why no plan for balance begins at this time (epoch seconds), and when one may; None: it may."""
        if (why := times.closed(now)) is None:
            return None
        if (at := self._next(times, now)) is None:
            return f"{why}; no plan may begin in the next days"
        shown = datetime.fromtimestamp(at, zone_of(times.timezone))
        return f"{why}; plans may begin from {shown:%a %d %b %H:%M} ({times.timezone}) on, in {time_span(at - now)}"

    def _next(self, times: PlanTimes, now: float) -> float | None:
        """The first minute in which nothing holds (epoch seconds); None: not within FORESEEN_S."""
        first, last, found = self._found.get(times, (0.0, 0.0, None))
        if not first <= now < last:
            minutes = (now - now % 60.0 + 60.0 * number for number in range(1, round(FORESEEN_S / 60.0)))
            found = next((each for each in minutes if times.closed(each) is None), None)
            self._found[times] = now, found or now + DAY_S, found
        return found
