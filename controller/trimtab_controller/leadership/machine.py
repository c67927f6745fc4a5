"""The candidate, a pure state machine: from group events and time it decides when to join, lead, suspend, stand down.

    AWAY -> JOINING -> WAITING <-> LEADING <-> SUSPENDED

When the lease expires, the term is suspended: it sends no commands but keeps its state, since most often the broker was
away and no other controller has the lease.  The term ends when the group grants the lease to another controller, or
when another controller takes over the transactional id.

It also ends when the broker ends the term's producer.  A new producer takes over the transactional id, which would
fence whoever leads meanwhile.  So only a term that was elected makes one: the candidate leaves the group and joins it
again, as one that was fenced does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

REJOIN_DELAY_S = 1.0
"""How long a controller that left the group waits before it joins again: fenced, or its producer ended."""
LONGEST_REJOIN_DELAY_S = 30.0
"""The delay doubles up to this while one producer after another ends."""
LASTED_S = 120.0
"""A producer that ended so long after the one before has nothing to do with it."""


class CandidateRole(StrEnum):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEnded:
    """The broker has ended the term's producer, and so the term; nobody else has taken over."""

    detail: str


Event = GroupEvent | TermFenced | ProducerEnded


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
    """End the term; `reason` for the log.  `taken`: another controller has the lead now, or is about to."""

    reason: str
    taken: bool = True


Action = LeadershipAction | StandDown

TAKEN = StandDown(reason="the lease expired and another controller has it now")
GIVEN_AWAY = StandDown(reason="the group gave the lease to another controller")
ENDED = StandDown(reason="asked to end", taken=False)

TRANSITIONS: Mapping[tuple[CandidateRole, GroupEvent], tuple[CandidateRole, tuple[Action, ...]]] = {
    (CandidateRole.JOINING, GroupEvent.GRANTED): (CandidateRole.LEADING, (LeadershipAction.LEAD,)),
    (CandidateRole.JOINING, GroupEvent.NOTHING_GRANTED): (CandidateRole.WAITING, (LeadershipAction.WAIT,)),
    (CandidateRole.WAITING, GroupEvent.GRANTED): (CandidateRole.LEADING, (LeadershipAction.LEAD,)),
    (CandidateRole.LEADING, GroupEvent.EXPIRED): (CandidateRole.SUSPENDED, (LeadershipAction.SUSPEND,)),
    (CandidateRole.LEADING, GroupEvent.MOVED): (CandidateRole.WAITING, (GIVEN_AWAY, LeadershipAction.WAIT)),
    (CandidateRole.SUSPENDED, GroupEvent.GRANTED): (CandidateRole.LEADING, (LeadershipAction.RESUME,)),
    (CandidateRole.SUSPENDED, GroupEvent.NOTHING_GRANTED): (CandidateRole.WAITING, (TAKEN, LeadershipAction.WAIT)),
    (CandidateRole.SUSPENDED, GroupEvent.MOVED): (CandidateRole.WAITING, (GIVEN_AWAY, LeadershipAction.WAIT)),
    (CandidateRole.AWAY, GroupEvent.END_ASKED): (CandidateRole.RETIRED, ()),
    (CandidateRole.JOINING, GroupEvent.END_ASKED): (CandidateRole.RETIRED, (LeadershipAction.LEAVE,)),
    (CandidateRole.WAITING, GroupEvent.END_ASKED): (CandidateRole.RETIRED, (LeadershipAction.LEAVE,)),
    (CandidateRole.LEADING, GroupEvent.END_ASKED): (CandidateRole.RETIRED, (ENDED, LeadershipAction.LEAVE)),
    (CandidateRole.SUSPENDED, GroupEvent.END_ASKED): (CandidateRole.RETIRED, (ENDED, LeadershipAction.LEAVE)),
}
"""All other events are late or repeated and change nothing: the leader keeps the lease while members come and go."""


class Candidate:
    """Decides when to join, lead and stand down.  `on_event` and `on_tick` return the actions in order."""

    def __init__(self) -> None:
        self.role = CandidateRole.AWAY
        self._join_at = 0.0
        self._ended_at: float | None = None
        self._delay_s = REJOIN_DELAY_S

    def on_tick(self, now: float) -> tuple[Action, ...]:
        """Join the group when it is time.  `now`: seconds of a monotonic clock."""
        if self.role is not CandidateRole.AWAY or now < self._join_at:
            return ()
        self.role = CandidateRole.JOINING
        return (LeadershipAction.JOIN,)

    def on_event(self, now: float, event: Event) -> tuple[Action, ...]:
        """Process an event and return the actions that follow."""
        if isinstance(event, TermFenced):
            return self._leave(now, StandDown(reason=event.detail), REJOIN_DELAY_S)
        if isinstance(event, ProducerEnded):
            again = self._ended_at is not None and now - self._ended_at < LASTED_S
            self._delay_s = min(LONGEST_REJOIN_DELAY_S, 2.0 * self._delay_s) if again else REJOIN_DELAY_S
            self._ended_at = now
            return self._leave(now, StandDown(reason=event.detail, taken=False), self._delay_s)
        self.role, actions = TRANSITIONS.get((self.role, event), (self.role, ()))
        return actions

    def _leave(self, now: float, ended: StandDown, delay_s: float) -> tuple[Action, ...]:
        """Leave the group in any role, to join it again as a new member."""
        if self.role in (CandidateRole.AWAY, CandidateRole.RETIRED):
            return ()
        self.role, self._join_at = CandidateRole.AWAY, now + delay_s
        return (ended, LeadershipAction.LEAVE)
