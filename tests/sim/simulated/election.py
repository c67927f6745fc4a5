"""The group of controllers as a model: members, sessions, and whose the lease is.  The candidates are the real ones."""

from typing import Protocol

from tests.sim.simulated import kafka_client
from tests.sim.simulated.timeline import Timeline
from trimtab_controller.leadership.machine import GroupEvent

LOOK_EVERY_S = 1.0
"""So often a member shows that it lives, and the broker and its client look at the time."""


class Candidate(Protocol):
    """A controller process, as the group knows it."""

    election: "Election"
    alive: bool
    frozen: bool

    @property
    def connected(self) -> bool:
        """Whether it reaches the broker."""

    def wake(self) -> None:
        """It has been told something."""


class SimulatedMembership:
    """`leadership.group.Membership` over the model."""

    def __init__(self, *_: object) -> None:
        process = kafka_client.running[-1]
        self.process: Candidate = process  # type: ignore[assignment]
        self.has_lease = False
        self.silent_since: float | None = None
        self._heard: list[GroupEvent] = []

    def join(self) -> None:
        """Ask to be let in."""
        self.process.election.enter(self)

    def poll(self, timeout_s: float) -> list[GroupEvent]:
        """What the group said since the last call."""
        heard, self._heard = self._heard, []
        return heard

    def leave(self) -> None:
        """Give membership and lease up."""
        self.process.election.exit(self)
        self.has_lease, self._heard = False, []

    def tell(self, word: GroupEvent) -> None:
        """What its client hears."""
        self.has_lease = word is GroupEvent.GRANTED or (self.has_lease and word is GroupEvent.NOTHING_GRANTED)
        self._heard.append(word)
        self.process.wake()


class Election:
    """`members` as the broker sees them; a client learns later, or never, what became of it."""

    def __init__(self, timeline: Timeline, lease_s: float) -> None:
        self.members: list[SimulatedMembership] = []
        self.holder: SimulatedMembership | None = None
        self._timeline = timeline
        self._lease_s = lease_s
        self._clients: list[SimulatedMembership] = []
        self._heard_at: dict[SimulatedMembership, float] = {}
        self._next: SimulatedMembership | None = None
        self._settling = False
        timeline.after(LOOK_EVERY_S, self._look)

    def enter(self, member: SimulatedMembership) -> None:
        """A client joins, or joins again."""
        if member not in self._clients:
            self._clients.append(member)
        self._let_in(member)

    def exit(self, member: SimulatedMembership) -> None:
        """An orderly end, if the broker hears of it."""
        if member in self._clients:
            self._clients.remove(member)
        if member.process.connected:
            self.expel(member)

    def expel(self, member: SimulatedMembership) -> None:
        """The broker takes it out of the group, without a word to it."""
        if member in self.members:
            self.members.remove(member)
        if self.holder is member:
            self.holder = None
        self._settle()

    def move(self, member: SimulatedMembership) -> None:
        """Give the lease to this member, in order."""
        if self.holder is not None:
            self.holder.tell(GroupEvent.MOVED)
            self.holder, self._next = None, member
            self._settle()

    def _let_in(self, member: SimulatedMembership) -> None:
        if self.holder is member:  # it comes as a new member: what it had is free
            self.holder = None
        if member not in self.members:
            self.members.append(member)
        self._heard_at[member] = self._timeline.now
        self._settle()

    def _settle(self) -> None:
        if not self._settling:
            self._settling = True
            self._timeline.soon(0.1, 1.0, self._complete)

    def _complete(self) -> None:
        """Who is not heard of is waited for until its session is over."""
        if not all(self._hears(member) for member in self.members):
            self._timeline.after(0.5, self._complete)
            return
        self._settling = False
        given = None
        if self.holder is None and self.members:
            wanted, self._next = self._next, None
            given = wanted if wanted in self.members else self._timeline.random.choice(self.members)
            self.holder = given
        for member in self.members:
            member.tell(GroupEvent.GRANTED if member is given else GroupEvent.NOTHING_GRANTED)

    def _hears(self, member: SimulatedMembership) -> bool:
        process = member.process
        return member in self._clients and process.alive and not process.frozen and process.connected

    def _look(self) -> None:
        now = self._timeline.now
        self._timeline.after(LOOK_EVERY_S, self._look)
        for member in list(self.members):
            if self._hears(member):
                self._heard_at[member] = now
            elif now - self._heard_at[member] >= self._lease_s:
                self.expel(member)
        self._clients = [member for member in self._clients if member.process.alive]
        for member in self._clients:
            if not member.process.frozen:
                self._look_from(member, now)

    def _look_from(self, member: SimulatedMembership, now: float) -> None:
        """What the client itself notices: that its session must be over, or that the broker knows it no more."""
        if member.process.connected:
            member.silent_since = None
            if member not in self.members or (self.holder is member and not member.has_lease and not self._settling):
                if member.has_lease:
                    member.tell(GroupEvent.EXPIRED)
                self._let_in(member)
            return
        if member.silent_since is None:
            member.silent_since = now - self._timeline.random.uniform(-2.0, 1.0)  # the clocks do not start together
        if member.has_lease and now - member.silent_since >= self._lease_s:
            member.tell(GroupEvent.EXPIRED)
