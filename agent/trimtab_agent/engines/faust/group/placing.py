"""Chooses the owner of each partition of one operator in a rebalance.  Pure.

The placement names owner and standbys; it cannot know which workers are alive.  A key group that a member works on
while it joins (`claims`) stays with it.  For each other one, in this order:

1. the first of (owner, standbys) that is a member of the group;
2. its previous owner;
3. the member with the most complete copy of its state on its disk, unless that has enough of this operator already;
4. the member with the fewest key groups of this operator.

If the group knows that a newer placement exists, its previous owner comes first.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

Member = str
"""A member of the consumer group: its id at the broker."""


class PlacingReason(StrEnum):
    """Why a key group is where it is."""

    PLACED = "placed"  # on the owner that the placement names
    STANDBY = "standby"  # the owner is away: on the first standby that is a member
    STAYED = "stayed"  # no worker of the placement is a member: on its previous owner
    COPY = "copy"  # its previous owner is away too: on a member with a copy of its state
    SPREAD = "spread"  # nobody with room has a copy either: on the member with the fewest key groups


def most_for_copies(partitions: int, members: int) -> int:
    """How many key groups a member may get to for the sake of its copies: a quarter more than its share, at least one.

    Until a key group is restored it stands still; too many on one member are moved later without a pause.
    """
    share = -(-partitions // members)
    return share + max(1, share // 4)


def place(
    wanted: Sequence[Sequence[Member | None]],
    *,
    partitions: int,
    previous: Mapping[int, Member],
    members: Collection[Member],
    copies: Mapping[int, Mapping[Member, int]] = MappingProxyType({}),
    claims: Mapping[int, Member] = MappingProxyType({}),
    stay: bool = False,
) -> dict[int, tuple[Member, PlacingReason]]:
    """Partition -> (member, reason), for every partition from 0.

    `wanted[partition]` = members of (owner, standby ...), None for a worker that is away; rows may be missing.
    `copies[partition]` = records of the state that members have on their disks.  `claims[partition]` = the member that
    works on it while it joins.  `stay`: a newer placement exists, so what a member owns stays with it.
    """
    if not members:
        raise ValueError("a group without members")
    placed: dict[int, tuple[Member, PlacingReason]] = {}
    for partition in range(partitions):
        row = wanted[partition] if partition < len(wanted) else ()
        if partition in claims:
            placed[partition] = (claims[partition], _reason(claims[partition], row))
            continue
        if stay and previous.get(partition) in members:
            placed[partition] = (previous[partition], PlacingReason.STAYED)
            continue
        for rank, member in enumerate(row):
            if member is not None and member in members:
                placed[partition] = (member, PlacingReason.STANDBY if rank else PlacingReason.PLACED)
                break
        else:
            if partition in previous and previous[partition] in members:
                placed[partition] = (previous[partition], PlacingReason.STAYED)
    held = {member: sum(owner == member for owner, _ in placed.values()) for member in sorted(members)}
    enough = most_for_copies(partitions, len(members))
    for partition in range(partitions):
        holders = copies.get(partition, {}) if partition not in placed else {}
        found = [
            (-records, held[member], member) for member, records in holders.items() if held.get(member, enough) < enough
        ]
        if found:
            _, _, holder = min(found)
            placed[partition] = (holder, PlacingReason.COPY)
            held[holder] += 1
    for partition in range(partitions):
        if partition not in placed:
            least = min(held, key=lambda member: (held[member], member))
            placed[partition] = (least, PlacingReason.SPREAD)
            held[least] += 1
    return placed


def _reason(claimant: Member, row: Sequence[Member | None]) -> PlacingReason:
    if claimant not in row:
        return PlacingReason.STAYED
    return PlacingReason.STANDBY if row.index(claimant) else PlacingReason.PLACED
