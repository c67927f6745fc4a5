"""Who owns what after a rebalance: the placement where it can be followed, every partition exactly once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab_agent.engines.faust.group.placing import PlacingReason, place

A, B, C = "a", "b", "c"


def test_while_a_newer_placement_exists_what_has_an_owner_stays() -> None:
    found = place([(A,), (A,), (B,)], partitions=4, previous={0: B, 1: C, 3: A}, members=[A, B], stay=True)

    assert found == {
        0: (B, PlacingReason.STAYED),
        1: (A, PlacingReason.PLACED),
        2: (B, PlacingReason.PLACED),
        3: (A, PlacingReason.STAYED),
    }


def test_orphans_go_to_those_who_have_least() -> None:
    placed = place([(A,), (A,), (B,)], partitions=6, previous={}, members=[A, B, C])

    assert {p: placed[p] for p in (3, 4, 5)} == {
        3: (C, PlacingReason.SPREAD),
        4: (B, PlacingReason.SPREAD),
        5: (C, PlacingReason.SPREAD),
    }


def test_orphans_go_to_the_most_complete_copy_until_its_holder_has_enough() -> None:
    copies = {2: {B: 70, C: 90, "gone": 99}, 3: {B: 10}, 4: {B: 10}, 5: {A: 50}, 6: {A: 50, C: 1}, 7: {A: 50}}
    placed = place([(A,), (A,), (A,)], partitions=8, previous={1: A}, members=[A, B, C], copies={**copies, 0: {B: 9}})

    assert {p: placed[p] for p in range(3, 8)} == {
        3: (B, PlacingReason.COPY),
        4: (B, PlacingReason.COPY),
        5: (A, PlacingReason.COPY),
        6: (C, PlacingReason.COPY),
        7: (C, PlacingReason.SPREAD),
    }, "A has three of its share, one more because of a copy, and then enough"
    assert [placed[p] for p in range(3)] == [(A, PlacingReason.PLACED)] * 3, "whoever has a copy"


def test_a_copy_takes_nothing_from_who_is_placed_or_was_the_owner() -> None:
    placed = place([(A,)], partitions=2, previous={1: B}, members=[A, B, C], copies={0: {C: 9}, 1: {C: 9}})
    assert placed == {0: (A, PlacingReason.PLACED), 1: (B, PlacingReason.STAYED)}


def test_a_group_without_members_is_a_fault() -> None:
    with pytest.raises(ValueError, match="without members"):
        place([], partitions=1, previous={}, members=[])


@given(st.data())
def test_every_partition_has_one_living_owner_and_placed_ones_theirs(data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True))
    candidate = st.sampled_from(["a", "b", "c", "d", "e", None])
    partitions = data.draw(st.integers(1, 12))
    wanted = data.draw(st.lists(st.lists(candidate, max_size=3), max_size=partitions))
    previous = data.draw(st.dictionaries(st.integers(0, 11), st.sampled_from("abcde")))

    placed = place(wanted, partitions=partitions, previous=previous, members=members)

    assert sorted(placed) == list(range(partitions))
    assert {owner for owner, _ in placed.values()} <= set(members)
    for partition, row in enumerate(wanted):
        if row and row[0] in members:
            assert placed[partition] == (row[0], PlacingReason.PLACED)
