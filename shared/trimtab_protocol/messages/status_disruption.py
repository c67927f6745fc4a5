"""The part of the status about the disruption budget of an app."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Name

MAX_CAUSES = 20
"""Causes of pauses in a status; a newer controller may know more than this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseStatus:
    """Paused key-group seconds by one cause, in the last hour."""

    cause: Name
    used_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionStatus:
    """Paused key-group seconds of an app: `used_s` in the last hour, of which nobody measured `assumed_s`.

    `in_flight_s` = what hand-overs in flight are expected to add.  `limit_s` None: there is no limit.  `fits` = how
    many further key groups may be handed over now, `free_at` = when one may again (epoch seconds); None: no limit, or,
    beside `fits` 0, never.  `since` = from when on pauses were counted (epoch seconds); None: not yet.  `causes` = what
    is used, by cause: moves, starts_and_stops, rebalances, losses.  `unmeasured` = running workers that do not say for
    how long rebalances stop their inputs, which is then unknown; None: no window is known yet.
    """

    used_s: float
    assumed_s: float
    in_flight_s: float
    limit_s: float | None = None
    fits: int | None = None
    free_at: float | None = None
    since: float | None = None
    causes: Annotated[tuple[CauseStatus, ...], Most(MAX_CAUSES)] = ()
    unmeasured: int | None = None

    @property
    def by_cause(self) -> dict[str, float]:
        """What is used, in key-group seconds, by cause."""
        return {row.cause: row.used_s for row in self.causes}
