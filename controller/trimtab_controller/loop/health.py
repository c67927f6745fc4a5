"""Whether this controller does its work: a leader gets windows, a standby could take over.

The thread of the controller notes what it does; threads of the metrics port judge it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trimtab_controller.configuration import Configuration
from trimtab_controller.leadership.driver import Candidacy
from trimtab_controller.leadership.machine import CandidateRole
from trimtab_process.health import LIVE, READY, Check, HealthVerdict

STUCK_S = 120.0
"""How long the loop may stand still: the longest request to Kafka takes half of it."""
CONTACT_MARGIN_S = 5.0
"""How much older than the lease the broker's last answer to a standby may be."""


class JudgedStream(Protocol):
    """The part of the stream's process that is judged."""

    @property
    def trouble(self) -> str | None:
        """What is wrong with the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the controller.  `role` None: a dry run.

    `window_age_s`: since the end of the last window; None = none in this term.  `heard_s`: since the broker's last
    answer to this candidate; None = not yet.  `stream`: what the controller knows of its stream; None = nothing wrong.
    """

    role: CandidateRole | None
    window_age_s: float | None
    heard_s: float | None
    stream: str | None


class Health:
    """What the controller's thread has noted."""

    def __init__(
        self, configuration: Configuration, stream: JudgedStream | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._window_limit_s = configuration.needs.max_age_s
        self._contact_limit_s = configuration.lease_s + CONTACT_MARGIN_S
        self._stream = stream
        self._clock = clock
        self._candidate: Candidacy | None = None
        self._turned_at = clock()
        self._window_end: float | None = None

    def follow(self, candidate: Candidacy) -> None:
        """Judge this candidate, instead of a dry run."""
        self._candidate = candidate

    def turned(self) -> None:
        """The loop has turned."""
        self._turned_at = self._clock()

    def see_window(self, end: float | None) -> None:
        """Note the end of the last window (epoch seconds); None: a term begins."""
        self._window_end = end

    def checks(self) -> Mapping[str, Check]:
        """What the metrics port answers."""
        return {LIVE: self.live, READY: self.ready}

    def live(self) -> HealthVerdict:
        """Whether the loop turns."""
        still_s = self._clock() - self._turned_at
        return HealthVerdict(still_s < STUCK_S, f"the loop turned {max(0.0, still_s):.0f} s ago")

    def ready(self) -> HealthVerdict:
        """Whether the controller does its work."""
        now, candidate, window_end = self._clock(), self._candidate, self._window_end
        heard_at = candidate.heard_at if candidate is not None else None
        facts = Facts(
            role=candidate.role if candidate is not None else None,
            window_age_s=None if window_end is None else max(0.0, now - window_end),
            heard_s=None if heard_at is None else max(0.0, now - heard_at),
            stream=self._stream.trouble if self._stream is not None else None,
        )
        return judge(facts, window_limit_s=self._window_limit_s, contact_limit_s=self._contact_limit_s)


def judge(facts: Facts, *, window_limit_s: float, contact_limit_s: float) -> HealthVerdict:
    """Whether a controller of which this is known does its work."""
    match facts.role:
        case None:
            return _judge_windows("dry run", facts, window_limit_s)
        case CandidateRole.LEADING:
            return _judge_windows("leads", facts, window_limit_s)
        case CandidateRole.WAITING:
            return _judge_standby(facts, contact_limit_s)
        case CandidateRole.SUSPENDED:
            return HealthVerdict(False, "the lease has expired: no commands until it is known who leads")
        case CandidateRole.AWAY | CandidateRole.JOINING:
            return HealthVerdict(False, "waits for Kafka, to join the group of controllers")
        case CandidateRole.RETIRED:
            return HealthVerdict(False, "ends")


def _judge_windows(what: str, facts: Facts, limit_s: float) -> HealthVerdict:
    age_s = facts.window_age_s
    if age_s is not None and age_s <= limit_s:
        return HealthVerdict(True, f"{what}; the last window ended {age_s:.0f} s ago")
    found = "no window has come yet" if age_s is None else f"the last window ended {age_s:.0f} s ago"
    cause = facts.stream or "does the stream run, and do agents report?"
    return HealthVerdict(False, f"{what}, but {found}, expected one in {limit_s:g} s: {cause}")


def _judge_standby(facts: Facts, limit_s: float) -> HealthVerdict:
    if facts.heard_s is None:
        return HealthVerdict(False, "stands by, but Kafka has not answered yet")
    if facts.heard_s > limit_s:
        return HealthVerdict(
            False, f"stands by, but Kafka answered {facts.heard_s:.0f} s ago, expected {limit_s:g} s at most"
        )
    if facts.stream is not None:
        return HealthVerdict(False, f"stands by, but could publish no windows: {facts.stream}")
    return HealthVerdict(True, f"stands by; Kafka answered {facts.heard_s:.0f} s ago")
