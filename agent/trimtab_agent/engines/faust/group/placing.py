"""Who owns each partition of one operator after a rebalance.  Pure.

The placement says who should; it cannot know who is alive.  For each key group: the first of (owner, standbys) that is
a member; else it stays with its previous owner; else the member with the fewest key groups of this operator gets it.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

Member = str
"""A member of the consumer group: its id at the broker."""


class Reason(StrEnum):
    """Why a key group is where it is."""

    PLACED = "placed"  # with the owner the placement names
    STANDBY = "standby"  # that one is away: with the first standby that is there
    STAYED = "stayed"  # nobody that the placement names is there
    SPREAD = "spread"  # and its previous owner is not there either


def place(
    wanted: Sequence[Sequence[Member | None]],
    *,
    partitions: int,
    previous: Mapping[int, Member],
    members: Collection[Member],
) -> dict[int, tuple[Member, Reason]]:
    """Partition -> (member, reason), for every partition from 0.

    `wanted[partition]` = members of (owner, standby ...), None for one that is away; rows may be missing.
    """
    if not members:
        raise ValueError("a group without members")
    placed: dict[int, tuple[Member, Reason]] = {}
    for partition in range(partitions):
        row = wanted[partition] if partition < len(wanted) else ()
        for rank, member in enumerate(row):
            if member is not None and member in members:
                placed[partition] = (member, Reason.STANDBY if rank else Reason.PLACED)
                break
        else:
            if partition in previous and previous[partition] in members:
                placed[partition] = (previous[partition], Reason.STAYED)
    held = {member: sum(owner == member for owner, _ in placed.values()) for member in sorted(members)}
    for partition in range(partitions):
        if partition not in placed:
            least = min(held, key=lambda member: (held[member], member))
            placed[partition] = (least, Reason.SPREAD)
            held[least] += 1
    return placed
