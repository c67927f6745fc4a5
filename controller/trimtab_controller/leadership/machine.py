"""The candidate as a pure machine: what the group says and time in; when to join, lead, stand still and stand down out.

    AWAY -> JOINING -> WAITING <-> LEADING <-> SUSPENDED

A lease that ran out suspends: nothing is commanded, but what is known is kept, for most often the broker was away and
nobody else has the lease.  Only the group's word that another one has it, or the transactional id, ends the term.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

REJOIN_DELAY_S = 1.0
"""Who was fenced leaves the group, and comes back as a new member after so long."""


class Role(StrEnum):
    """Where a candidate stands."""

    AWAY = "away"  # not in the group: not yet, or after it was fenced
    JOINING = "joining"  # asked the group to be let in
    WAITING = "waiting"  # a member: another one leads
    LEADING = "leading"  # has the lease: its term runs
    SUSPENDED = "suspended"  # the lease ran out: its term stands still until it is known who has it
    RETIRED = "retired"  # the operator ended it


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """The group gave us the partition."""


@dataclass(frozen=True, slots=True)
class NothingGranted:
    """The group has settled without giving us anything new."""


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """No word from the broker for as long as the lease lasts, or it threw us out."""


@dataclass(frozen=True, slots=True)
class LeaseMoved:
    """The group gave the partition to another member in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermFenced:
    """Another one has taken the transactional id: the term has ended already."""

    detail: str


@dataclass(frozen=True, slots=True)
class EndAsked:
    """The operator ends this controller."""


Event = LeaseGranted | NothingGranted | LeaseExpired | LeaseMoved | TermFenced | EndAsked


@dataclass(frozen=True, slots=True)
class Join:
    """Become a member of the group."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Give membership and lease up at once."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A member that does not lead: say for whom it waits."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Begin a term: take the transactional id over, read the journal, command."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Command nothing; keep what is known."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on commanding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandDown:
    """End the term; `reason` for the log."""

    reason: str


Action = Join | Leave | Wait | Lead | Suspend | Resume | StandDown


class Candidate:
    """`role` says what it may do; `on_event` and `on_tick` return what to do, in order."""

    def __init__(self) -> None:
        self.role = Role.AWAY
        self._join_at = 0.0

    @property
    def in_office(self) -> bool:
        """Whether a term runs, or stands still."""
        return self.role in (Role.LEADING, Role.SUSPENDED)

    def on_tick(self, now: float) -> list[Action]:
        """Join when it is time (seconds of a clock that only rises)."""
        if self.role is not Role.AWAY or now < self._join_at:
            return []
        self.role = Role.JOINING
        return [Join()]

    def on_event(self, now: float, event: Event) -> list[Action]:
        """What follows from the event; nothing from what comes late or twice."""
        match event:
            case EndAsked():
                return self._retire()
            case TermFenced():
                return self._fenced(now, event)
            case LeaseGranted():
                return self._granted()
            case NothingGranted():
                return self._refused()
            case LeaseExpired():
                return self._expired()
            case LeaseMoved():
                return self._moved()
        assert_never(event)

    def _granted(self) -> list[Action]:
        if self.role not in (Role.JOINING, Role.WAITING, Role.SUSPENDED):
            return []
        kept, self.role = self.role is Role.SUSPENDED, Role.LEADING
        return [Resume() if kept else Lead()]

    def _refused(self) -> list[Action]:
        match self.role:
            case Role.JOINING:
                self.role = Role.WAITING
                return [Wait()]
            case Role.SUSPENDED:
                self.role = Role.WAITING
                return [StandDown(reason="the lease ran out and another controller has it now"), Wait()]
            case _:
                return []  # who leads keeps the partition when others come and go

    def _expired(self) -> list[Action]:
        if self.role is not Role.LEADING:
            return []
        self.role = Role.SUSPENDED
        return [Suspend()]

    def _moved(self) -> list[Action]:
        if not self.in_office:
            return []
        self.role = Role.WAITING
        return [StandDown(reason="the group gave the lease to another controller"), Wait()]

    def _fenced(self, now: float, event: TermFenced) -> list[Action]:
        if self.role in (Role.AWAY, Role.RETIRED):
            return []
        self.role, self._join_at = Role.AWAY, now + REJOIN_DELAY_S
        return [StandDown(reason=event.detail), Leave()]

    def _retire(self) -> list[Action]:
        if self.role is Role.RETIRED:
            return []
        ended: list[Action] = [StandDown(reason="it is ended")] if self.in_office else []
        joined, self.role = self.role is not Role.AWAY, Role.RETIRED
        return [*ended, *([Leave()] if joined else [])]
