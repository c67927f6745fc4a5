"""A status at a point in time: how serious the state is, who leads, and which runbook to open."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.leadership.group import Member
from trimtab_protocol.messages.intents import PAUSE_KEY, Intent, Pause
from trimtab_protocol.messages.status import Status

SILENT_AFTER_S = 15.0
"""Age from which a status counts as silence; a controller publishes one every 5 s."""
OLD_SNAPSHOT_S = 60.0
"""Age from which a snapshot is shown as old; what the controller takes for stale depends on its windows."""
CALM = frozenset(
    {
        SkipReason.INSIDE_BAND,
        SkipReason.INSIDE_NOISE,
        SkipReason.PLANS_FROZEN,
        SkipReason.TOO_SOON,
        SkipReason.PLAN_IN_FLIGHT,
        SkipReason.SCALING_IN_FLIGHT,
        SkipReason.WINDOW_TOO_EARLY,
        SkipReason.TOO_FEW_WINDOWS,
        SkipReason.DRY_RUN,
        SkipReason.REJECTED,
    }
)
"""Reasons to do nothing that need no action; every other reason is the name of a runbook."""
UNTIL_ENDED = frozenset({SkipReason.PAUSED, SkipReason.JOURNAL})
"""Reasons that end with a state of the controller, while its last decision still names them until the next window."""


class State(StrEnum):
    """The state of the controller as a whole."""

    SILENT = "silent"  # no status for SILENT_AFTER_S; the real state is unknown
    HOLD = "hold"
    PAUSED = "paused"
    ACTING = "acting"
    DRY_RUN = "dry run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A status at the time `now`, and the group of controllers; None: the broker did not answer.

    `intents` = those in force now by key, which may be newer than the status; None for one that cannot be read, and if
    nobody has read them.
    """

    status: Status
    controllers: Sequence[Member] | None
    now: float
    intents: Mapping[str, Intent | None] | None = None

    @property
    def state(self) -> State:
        """The most serious state that applies."""
        if self.silent_s > SILENT_AFTER_S:
            return State.SILENT
        if self.status.hold:
            return State.HOLD
        if self.paused is not None:
            return State.PAUSED
        return State.ACTING if self.status.acting else State.DRY_RUN

    @property
    def paused(self) -> str | None:
        """Who has paused the controller, and why; None if nobody has."""
        if self.intents is None:
            return self.status.paused
        pause = self.intents.get(PAUSE_KEY)
        if isinstance(pause, Pause):
            return pause.told
        return self.status.paused if PAUSE_KEY in self.intents else None

    @property
    def silent_s(self) -> float:
        """Seconds since the controller last published a status."""
        return max(0.0, self.now - self.status.at)

    @property
    def snapshot_age_s(self) -> float | None:
        """Seconds since the last window ended; None before the first window."""
        return None if self.status.window_end is None else max(0.0, self.now - self.status.window_end)

    @property
    def leader(self) -> str | None:
        """The controller that leads, according to the broker."""
        return next((row.name for row in self.controllers or () if row.leads), None)

    @property
    def runbook(self) -> str | None:
        """The name of the runbook to open; None if there is no problem."""
        last = self.status.decisions[-1] if self.status.decisions else None
        if self.state is State.SILENT:
            return "no_leader"
        if self.state is State.HOLD:
            return str(SkipReason.JOURNAL)
        if last is not None and last.kind == "skip" and last.reason not in CALM | UNTIL_ENDED:
            return last.reason
        if self.state is State.PAUSED:
            return str(SkipReason.PAUSED)
        return next((concern.kind for concern in self.status.concerns), None)


def summary(seen: Seen) -> dict[str, object]:
    """The first lines of the status as a JSON object."""
    return {
        "state": str(seen.state),
        "leader": seen.leader,
        "silent_s": seen.silent_s,
        "snapshot_age_s": seen.snapshot_age_s,
        "runbook": seen.runbook,
    }


def most_telling(told: Iterable[Status], now: float) -> Status | None:
    """The newest status of an acting controller or, if all of those are silent, the newest of all."""
    known = list(told)
    alive = [status for status in known if status.acting and now - status.at <= SILENT_AFTER_S]
    return max(alive or known, key=lambda status: status.at, default=None)
