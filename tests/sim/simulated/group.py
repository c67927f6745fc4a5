"""The consumer group of the app as a model: members, generations, who is given what.  Placing is the real `place`."""

from typing import Protocol

from tests.sim.simulated.timeline import Timeline
from trimtab_agent.engines.faust.group.placing import place
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_protocol.messages.names import NO_EPOCH, AppId, Epoch, KeyGroup, OperatorId, WorkerId

SESSION_S = 10.0
"""After so long without a sign of it the broker takes a member out; a member fences itself a little earlier."""
FENCE_S = 8.0


class Member(Protocol):
    """A worker process, as the group knows it."""

    id: WorkerId
    alive: bool
    board: PluginState
    before_rebalance: frozenset[KeyGroup]

    @property
    def connected(self) -> bool:
        """Whether the broker hears of it."""

    def catch_up(self) -> None:
        """As leader it reads the placement that a member has read."""

    def rebalancing(self) -> None:
        """It learns that the generation ends: it commits, and owns nothing."""

    def assigned(self, key_groups: list[KeyGroup], generation: int, epoch: Epoch) -> None:
        """What the leader gives it."""


class Group:
    """`committed` = next offset of every key group, as the broker has it."""

    def __init__(self, timeline: Timeline, app: AppId, operators: dict[OperatorId, int]) -> None:
        self.app = app
        self.operators = operators
        self.generation = 0
        self.members: list[Member] = []
        self.committed: dict[KeyGroup, int] = {}
        self._timeline = timeline
        self._waiting: list[Member] = []
        self._lost_at: dict[Member, float] = {}
        self._rebalancing = False

    @property
    def rebalancing(self) -> bool:
        """Whether the present generation is over and the next has not begun."""
        return self._rebalancing

    def accepts(self, member: Member, generation: int) -> bool:
        """Whether the broker takes a commit: it checks member and generation, not ownership."""
        return member in self.members and generation == self.generation and member.connected

    def join(self, member: Member) -> None:
        """A process wants in, or in again."""
        if member not in self._waiting:
            self._waiting.append(member)
        self.rebalance()

    def leave(self, member: Member) -> None:
        """An orderly end."""
        self._forget(member)
        self.rebalance()

    def lost(self, member: Member) -> None:
        """No more signs of it, be it dead or cut off."""
        if member in self.members or member in self._waiting:
            since = self._lost_at.setdefault(member, self._timeline.now)
            self._timeline.at(since + SESSION_S, lambda: self._expire(member, since))

    def found(self, member: Member) -> None:
        """It is heard of again."""
        self._lost_at.pop(member, None)

    def _expire(self, member: Member, since: float) -> None:
        if self._lost_at.get(member) == since:
            self._forget(member)
            self.rebalance()

    def _forget(self, member: Member) -> None:
        self._lost_at.pop(member, None)
        for members in (self.members, self._waiting):
            if member in members:
                members.remove(member)

    def rebalance(self) -> None:
        """End the generation; the members learn of it one by one."""
        if self._rebalancing:
            return
        self._rebalancing = True
        for member in self.members:
            self._timeline.soon(0.0, 0.5, lambda member=member: self._notify(member))  # type: ignore[misc]
        self._timeline.soon(0.6, 2.5, self._complete)

    def _notify(self, member: Member) -> None:
        if member.alive and member.connected:
            member.rebalancing()

    def _complete(self) -> None:
        """Begin the next generation; who is not heard of is waited for until its session is over."""
        if self._lost_at:
            self._timeline.after(0.5, self._complete)
            return
        members = [*self.members, *(each for each in self._waiting if each not in self.members)]
        for member in self.members:
            member.rebalancing()
        self.members, self._waiting = sorted(members, key=lambda member: member.id), []
        self.generation += 1
        self._rebalancing = False
        if self.members:
            self._assign()

    def _assign(self) -> None:
        """The leader uses the newest placement that any member has seen.  Of one in parts it is told the epoch."""
        leader = self.members[0].board
        in_parts = NO_EPOCH
        for member in self.members:
            if member.board.newest is None:
                continue
            if member.board.newest[0].part_size is None:
                leader.offer(*member.board.newest)
            else:
                in_parts = max(in_parts, member.board.newest[0].epoch)
        if leader.placement is None or leader.placement.epoch < in_parts:
            self.members[0].catch_up()
        epoch = leader.placement.epoch if leader.placement else NO_EPOCH
        by_worker = {member.id: member for member in self.members}
        given: dict[WorkerId, list[KeyGroup]] = {worker: [] for worker in by_worker}
        for operator, partitions in self.operators.items():
            rows = leader.placement.owners.get(operator, ()) if leader.placement else ()
            placed = place(
                [[worker if worker in by_worker else None for worker in row] for row in rows],
                partitions=partitions,
                previous=self._previous(operator),
                members=list(by_worker),
                stay=epoch < in_parts,
            )
            for partition, (worker, _) in placed.items():
                given[WorkerId(worker)].append(KeyGroup(self.app, operator, partition))
        for member in self.members:
            member.assigned(given[member.id], self.generation, epoch)

    def _previous(self, operator: OperatorId) -> dict[int, str]:
        """What the members say that they had before."""
        return {
            key_group.partition: member.id
            for member in self.members
            for key_group in member.before_rebalance
            if key_group.operator == operator
        }
