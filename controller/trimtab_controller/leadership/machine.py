"""The candidate, a pure state machine: from group events and time it decides when to join, lead, suspend, stand down.

    AWAY -> JOINING -> WAITING <-> LEADING <-> SUSPENDED

When the lease expires, the term is suspended: it sends no commands but keeps its state, since most often the broker was
away and no other controller has the lease.  The term ends when the group grants the lease to another controller, or
when another controller takes over the transactional id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

REJOIN_DELAY_S = 1.0
"""How long a fenced controller, which leaves the group, waits before it joins again."""


class Role(StrEnum):
    """The role of a candidate."""

    AWAY = "away"  # not in the group: not yet, or after it was fenced
    JOINING = "joining"  # asked to join the group
    WAITING = "waiting"  # a member; another controller leads
    LEADING = "leading"  # has the lease; its term runs
    SUSPENDED = "suspended"  # the lease expired; its term waits until the owner of the lease is known
    RETIRED = "retired"  # the operator ended it


class GroupEvent(Enum):
    """What happens in the group, or what the operator asks for."""

    GRANTED = auto()  # the group granted the lease to this member
    NOTHING_GRANTED = auto()  # the group has settled without granting this member anything new
    EXPIRED = auto()  # the broker did not answer for the length of the lease, or removed this member
    MOVED = auto()  # the group moved the lease to another member in good order
    END_ASKED = auto()  # the operator ends this controller


@dataclass(frozen=True, slots=True, kw_only=True)
class TermFenced:
    """Another controller has taken over the transactional id, which has already ended the term."""

    detail: str


Event = GroupEvent | TermFenced


class LeadershipAction(Enum):
    """What to do; a term begins with LEAD and ends with StandDown."""

    JOIN = auto()  # join the group
    LEAVE = auto()  # give up membership and lease at once
    WAIT = auto()  # log which leader this member waits for
    LEAD = auto()  # begin a term: take over the transactional id, read the journal, send commands
    SUSPEND = auto()  # send no commands, keep the state
    RESUME = auto()  # send commands again


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
"""All other events are late or repeated and change nothing: the leader keeps the lease while members come and go."""


class Candidate:
    """Decides when to join, lead and stand down.  `on_event` and `on_tick` return the actions in order."""

    def __init__(self) -> None:
        self.role = Role.AWAY
        self._join_at = 0.0

    def on_tick(self, now: float) -> tuple[Action, ...]:
        """Join the group when it is time.  `now`: seconds of a monotonic clock."""
        if self.role is not Role.AWAY or now < self._join_at:
            return ()
        self.role = Role.JOINING
        return (LeadershipAction.JOIN,)

    def on_event(self, now: float, event: Event) -> tuple[Action, ...]:
        """Process an event and return the actions that follow."""
        if isinstance(event, TermFenced):
            return self._fenced(now, event)
        self.role, actions = TRANSITIONS.get((self.role, event), (self.role, ()))
        return actions

    def _fenced(self, now: float, event: TermFenced) -> tuple[Action, ...]:
        """Leave the group in any role, to join it again as a new member."""
        if self.role in (Role.AWAY, Role.RETIRED):
            return ()
        self.role, self._join_at = Role.AWAY, now + REJOIN_DELAY_S
        return (StandDown(reason=event.detail), LeadershipAction.LEAVE)
