"""Disruption: for how long key groups of each app have paused within the last hour, and how long they may.  Pure.

The unit is the paused key-group second: one key group that nobody processes for a second.  What a hand-over pauses is
measured by the new owner.  Where no measurement arrives, the time from its release to its end is counted, which is
longer.  For how long a rebalance of the consumer group stops the inputs of a worker, its plug-in measures, whatever the
cause is.  Key groups whose owner is away count from its last report to the first one of their
next owner, and in between, where a plan restores them, from its begin to the end of each restore: nobody measures that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import Most, Range, Wire, WrittenAs
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.status import BUDGET_WINDOW_S

WINDOW_S = BUDGET_WINDOW_S
"""How long a pause counts."""
BUCKET_S = 120.0
"""Pauses that end within so long of each other are counted together, and cease to count with the last of them."""
MAX_APPS = 10_000
"""Apps of one journal entry, and apps with a limit of their own."""
MAX_PAUSED_S = 1e9
"""The highest limit."""
Seconds = Annotated[float, Range(0.0, 1e12)]


class Cause(StrEnum):
    """Why key groups have paused."""

    MOVES = "moves"  # hand-overs
    STARTS_AND_STOPS = "starts_and_stops"  # rebalances while the controller starts or stops a worker of the app
    REBALANCES = "rebalances"  # all others: members that join, leave or are lost by themselves
    LOSSES = "losses"  # key groups without an owner, and restores after a loss


MAX_PAUSES = 10 * len(Cause) * round(WINDOW_S / BUCKET_S)
"""Pauses of one app in the journal; a clock that was set back makes more of them than fit into the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """What paused from `began_at` to `ended_at` (epoch seconds, of the ends of pauses), in key-group seconds.

    `measured_s` = of hand-overs or rebalances with `key_groups` key groups in all; `assumed_s` = what nobody measured.
    """

    WIRE: ClassVar = Wire(row=True)

    began_at: Seconds
    ended_at: Seconds
    measured_s: Seconds = 0.0
    key_groups: Annotated[int, Range(0, 2**53)] = 0
    assumed_s: Seconds = 0.0
    cause: Cause = Cause.MOVES


@dataclass(frozen=True, slots=True)
class PausesOfApp:
    """What has paused in one app, as the journal has it."""

    app: AppId
    pauses: Annotated[tuple[Pauses, ...], Most(MAX_PAUSES)]


def _rows(apps: Mapping[AppId, tuple[Pauses, ...]]) -> list[PausesOfApp]:
    return [PausesOfApp(app, pauses[-MAX_PAUSES:]) for app, pauses in apps.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """What has paused in each app.  `since` = from when on it was counted (epoch seconds); None: not yet.

    `seen_to` = end of the newest window whose reports are counted (epoch seconds); None: none is.

    A controller that takes over from one that did not count, or without a journal, does not know what paused before.
    """

    since: float | None = None
    seen_to: float | None = None
    apps: Annotated[
        Mapping[AppId, tuple[Pauses, ...]],
        WrittenAs(
            Annotated[tuple[PausesOfApp, ...], Most(MAX_APPS)],
            _rows,
            lambda rows: {row.app: row.pauses for row in rows},
        ),
    ] = field(default_factory=dict)

    def of(self, app: AppId, now: float) -> tuple[Pauses, ...]:
        """What still counts, in the order in which it began."""
        return tuple(row for row in self.apps.get(app, ()) if row.ended_at + WINDOW_S > now)

    def with_pause(
        self, app: AppId, now: float, *, key_groups: int, paused_s: float, measured: bool, cause: Cause = Cause.MOVES
    ) -> "Disruption":
        """The same with a pause of `paused_s` seconds of each key group that ended now, without what is too old."""
        kept = {name: rows for name in self.apps if (rows := self.of(name, now))}
        rows = kept.get(app, ())
        same = [row for row in rows if row.cause is cause and now < row.began_at + BUCKET_S][-1:]
        last = same[0] if same else Pauses(began_at=now, ended_at=now, cause=cause)
        earlier = [row for row in rows if row is not last]
        last = replace(last, ended_at=max(last.ended_at, now))
        total_s = key_groups * max(0.0, paused_s)
        if measured:
            last = replace(last, measured_s=last.measured_s + total_s, key_groups=last.key_groups + key_groups)
        else:
            last = replace(last, assumed_s=last.assumed_s + total_s)
        return replace(self, apps={**kept, app: (*earlier, last)})

    def without(self, app: AppId) -> "Disruption":
        """The same without an app that is gone for good."""
        return replace(self, apps={name: rows for name, rows in self.apps.items() if name != app})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unowned:
    """So many key groups had no owner that reports, from `since` to `until` (epoch seconds)."""

    since: float
    until: float
    key_groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPauses:
    """What a window tells of an app.

    `measured_s` = key-group seconds at rebalances that ended in it, of `key_groups` key groups; `unowned` = key groups
    that have an owner again.
    """

    measured_s: float = 0.0
    key_groups: int = 0
    unowned: tuple[Unowned, ...] = ()


Limit = Annotated[float, Range(0.1, MAX_PAUSED_S)]


@dataclass(frozen=True, slots=True)
class LimitOfApp:
    """The table of an app that has a limit of its own."""

    max_paused_s_per_hour: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionSettings:
    """The configuration's [disruption]: for how long key groups of an app may pause in an hour, in key-group seconds.

    None: no limit.  `apps` = apps with a limit of their own.
    """

    max_paused_s_per_hour: Limit | None = None
    apps: Annotated[
        Mapping[AppId, float],
        WrittenAs(
            Annotated[Mapping[AppId, LimitOfApp], Most(MAX_APPS)],
            lambda apps: {app: LimitOfApp(limit) for app, limit in apps.items()},
            lambda apps: {app: own.max_paused_s_per_hour for app, own in apps.items()},
        ),
    ] = field(default_factory=dict)

    @property
    def limited(self) -> bool:
        """Whether any app has a limit."""
        return self.max_paused_s_per_hour is not None or bool(self.apps)

    def of(self, app: AppId) -> float | None:
        """The limit of an app."""
        return self.apps.get(app, self.max_paused_s_per_hour)
