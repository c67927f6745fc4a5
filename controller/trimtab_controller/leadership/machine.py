"""The candidate as a pure machine: events of the group and time in; when to join, lead, pause and stand down out.

    AWAY -> JOINING -> WAITING <-> LEADING <-> SUSPENDED

When the lease expires the term is suspended: it sends no commands but keeps what it knows, as most often the broker
was away and nobody else has the lease.  The term ends when the group says that another one has the lease, or when the
transactional id was taken over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

REJOIN_DELAY_S = 1.0
"""A controller that was fenced leaves the group, and joins it again so much later."""


class Role(StrEnum):
    """Where a candidate stands."""

    AWAY = "away"  # not in the group: not yet, or after it was fenced
    JOINING = "joining"  # asked to join the group
    WAITING = "waiting"  # a member: another one leads
    LEADING = "leading"  # has the lease: its term runs
    SUSPENDED = "suspended"  # the lease expired: its term stands still until it is known who has it
    RETIRED = "retired"  # the operator ended it


class GroupEvent(Enum):
    """What happens in the group, or what the operator asks for."""

    GRANTED = auto()  # the group gave us the lease
    NOTHING_GRANTED = auto()  # it has settled without giving us anything new
    EXPIRED = auto()  # no answer from the broker for as long as the lease lasts, or it removed us
    MOVED = auto()  # the group gave the lease to another member in order
    END_ASKED = auto()  # the operator ends this controller


@dataclass(frozen=True, slots=True, kw_only=True)
class TermFenced:
    """Another one has taken the transactional id: the term has ended already."""

    detail: str


Event = GroupEvent | TermFenced


class LeadershipAction(Enum):
    """What to do; a term begins with LEAD and ends with StandDown."""

    JOIN = auto()  # become a member of the group
    LEAVE = auto()  # give membership and lease up at once
    WAIT = auto()  # a member that does not lead: say for whom it waits
    LEAD = auto()  # begin a term: take the transactional id over, read the journal, command
    SUSPEND = auto()  # command nothing; keep what is known
    RESUME = auto()  # go on commanding


@dataclass(frozen=True, slots=True, kw_only=True)
class StandDown:
    """End the term; `reason` for the log."""

    reason: str


Action = LeadershipAction | StandDown

TAKEN = StandDown(reason="the lease expired and another controller has it now")
GIVEN_AWAY = StandDown(reason="the group gave the lease to another controller")
ENDED = StandDown(reason="asked to end")

TRANSITIONS: Mapping[tuple[Role, GroupEvent], tuple[Role, tuple[Action, ...]]] = {
    (Role.JOINING, GroupEvent.GRANTED): (Role.LEADING, (LeadershipAction.LEAD,)),
    (Role.JOINING, GroupEvent.NOTHING_GRANTED): (Role.WAITING, (LeadershipAction.WAIT,)),
    (Role.WAITING, GroupEvent.GRANTED): (Role.LEADING, (LeadershipAction.LEAD,)),
    (Role.LEADING, GroupEvent.EXPIRED): (Role.SUSPENDED, (LeadershipAction.SUSPEND,)),
    (Role.LEADING, GroupEvent.MOVED): (Role.WAITING, (GIVEN_AWAY, LeadershipAction.WAIT)),
    (Role.SUSPENDED, GroupEvent.GRANTED): (Role.LEADING, (LeadershipAction.RESUME,)),
    (Role.SUSPENDED, GroupEvent.NOTHING_GRANTED): (Role.WAITING, (TAKEN, LeadershipAction.WAIT)),
    (Role.SUSPENDED, GroupEvent.MOVED): (Role.WAITING, (GIVEN_AWAY, LeadershipAction.WAIT)),
    (Role.AWAY, GroupEvent.END_ASKED): (Role.RETIRED, ()),
    (Role.JOINING, GroupEvent.END_ASKED): (Role.RETIRED, (LeadershipAction.LEAVE,)),
    (Role.WAITING, GroupEvent.END_ASKED): (Role.RETIRED, (LeadershipAction.LEAVE,)),
    (Role.LEADING, GroupEvent.END_ASKED): (Role.RETIRED, (ENDED, LeadershipAction.LEAVE)),
    (Role.SUSPENDED, GroupEvent.END_ASKED): (Role.RETIRED, (ENDED, LeadershipAction.LEAVE)),
}
"""All other events are late or repeated, and change nothing: the leader keeps the lease while others come and go."""


class Candidate:
    """`role` says what it may do; `on_event` and `on_tick` return what to do, in order."""

    def __init__(self) -> None:
        self.role = Role.AWAY
        self._join_at = 0.0

    def on_tick(self, now: float) -> tuple[Action, ...]:
        """Join when it is time (seconds of a clock that only rises)."""
        if self.role is not Role.AWAY or now < self._join_at:
            return ()
        self.role = Role.JOINING
        return (LeadershipAction.JOIN,)

    def on_event(self, now: float, event: Event) -> tuple[Action, ...]:
        """What follows from the event."""
        if isinstance(event, TermFenced):
            return self._fenced(now, event)
        self.role, actions = TRANSITIONS.get((self.role, event), (self.role, ()))
        return actions

    def _fenced(self, now: float, event: TermFenced) -> tuple[Action, ...]:
        """Wherever it stands in the group, it comes back as a new member."""
        if self.role in (Role.AWAY, Role.RETIRED):
            return ()
        self.role, self._join_at = Role.AWAY, now + REJOIN_DELAY_S
        return (StandDown(reason=event.detail), LeadershipAction.LEAVE)
