"""A member that keeps its key groups, and works on them, while its consumer group rebalances.  Pure.

`docs/decisions/0031-rebalances-in-place.md` says why nobody else works on them meanwhile.

    out --claims nothing--> joining --good SyncGroup, in place--> steady --claims what it owns--> joining ...
     ^                        |                                     |
     +----- revokes all <-----+--------- any doubt <----------------+

Partitions are of any type here.  Times are seconds of `uptime`, those of *sending*.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trimtab_agent.engines.faust.safety.fence import Fence

Partition = TypeVar("Partition", bound=Hashable)

COMMON, OWN = "faust", "trimtab"
"""Names of the group protocol: the one that every Faust worker offers, and the one of members that join in place."""
NO_GENERATION = -1


def group_generation(app: Any) -> int:
    """The generation of the consumer group that this worker is in; Faust's number, unless it has rejoined in place."""
    consumer = getattr(app, "_consumer", None)
    found: int | None = getattr(consumer, "group_generation", None)  # Faust's own consumer has none
    return app.consumer_generation_id if found is None else found


@dataclass(frozen=True, slots=True)
class AssignmentChange(Generic[Partition]):
    """What the group's answer means for a member: what it goes on with, what it gets, and what it must not touch."""

    kept: frozenset[Partition]
    new: frozenset[Partition]
    lost: frozenset[Partition]


class MemberInPlace(Generic[Partition]):
    """One member: what it may claim, when nothing may be given or taken, and which answers count."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.generation = NO_GENERATION
        """Of the last answer to a JoinGroup."""
        self.synced = NO_GENERATION
        """The generation whose SyncGroup was answered well."""
        self.in_place = False
        """Whether the leader of that generation has said that members keep what they own at the next join."""
        self.barrier = False
        """From the claim until a good SyncGroup nothing is taken or given.  A JoinGroup whose answer was lost counts at
        the broker, so its claim must stay true."""
        self.doubt: str | None = None
        """Why everything must be revoked before the next join."""
        self._claim: frozenset[Partition] | None = None

    def keeps(self, now: float) -> bool:
        """Whether the next join may claim what this member owns."""
        member = self.synced != NO_GENERATION and not self.fence.closed(now) and not self.fence.tripped
        return self.in_place and member and self.doubt is None

    def claim(self, owned: Collection[Partition] | None) -> frozenset[Partition]:
        """A join begins, in which this member goes on with all that it owns; None: it revokes everything first."""
        self.barrier = True
        self._claim = None if owned is None else frozenset(owned)
        return self._claim or frozenset()

    def joined(self, generation: int, sent_at: float) -> None:
        """The JoinGroup sent then was answered well."""
        self.generation = generation
        self.fence.in_step(sent_at)

    def synced_with(
        self, given: Collection[Partition], sent_at: float, *, in_place: bool, revoke: bool = False
    ) -> AssignmentChange[Partition]:
        """The SyncGroup sent then was answered well.

        If this member must not go on with all of its claim, it is in doubt afterwards, and the barrier stays.
        """
        self.fence.in_step(sent_at)
        self.synced, self.in_place = self.generation, in_place
        claim, given = self._claim or frozenset(), frozenset(given)
        change = AssignmentChange(kept=claim & given, new=given - claim, lost=claim - given)
        if change.lost:
            self.doubt = "the group has given away what this worker works on"
        elif revoke or (claim and not in_place):
            self.doubt = "the leader of the group asks for it"
        return change

    def settled(self) -> None:
        """The answer is carried out: from here on key groups may be taken and given."""
        self.barrier, self.doubt = False, None

    def beat(self, generation: int, sent_at: float, *, stable: bool) -> None:
        """A heartbeat of this generation was answered as to a member; `stable`: and no rebalance is under way."""
        self.fence.heard(sent_at)
        if stable and generation == self.synced:
            self.fence.in_step(sent_at)

    def is_late(self, generation: int) -> bool:
        """Whether an answer to a request of this generation says nothing about this member: it is already joining."""
        return generation != self.generation or (self.barrier and self._claim is not None)

    def thrown_out(self) -> None:
        """The broker does not know this member any more: others may own all that it has."""
        self.generation = self.synced = NO_GENERATION
        self.in_place = False
