"""Members that rejoin in place: two never work on one partition, and each rule is needed for that."""

import pytest

from tests.agent.engines.faust.safety.in_place_walks import PARTITIONS, TICKS, Rule, Walk
from trimtab_agent.engines.faust.group.placing import PlacingReason, place
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.safety.in_place import MemberInPlace

WALKS = 300
MOST_WALKS = 3000


def test_no_two_members_work_on_one_partition() -> None:
    generations = handed_over = worked = 0
    for seed in range(WALKS):
        walk = Walk(seed, Rule)
        assert walk.run() is None, f"seed {seed}"
        generations += walk.broker.generation
        handed_over += len(walk.topic)
        worked += walk.worked
    assert generations > 10 * WALKS
    assert handed_over > 10 * WALKS
    assert worked > 0.25 * WALKS * TICKS * PARTITIONS  # else nobody working would pass, too


@pytest.mark.parametrize("rule", Rule)
def test_without_a_rule_two_are_found(rule: Rule) -> None:
    rules = set(Rule) - {rule}
    assert any(Walk(seed, rules).run() is not None for seed in range(800, 800 + MOST_WALKS))


def test_an_answer_says_what_is_kept_new_and_lost() -> None:
    member: MemberInPlace[int] = MemberInPlace(Fence(10.0, 30.0))
    member.claim({1, 2})
    member.joined(5, 1.0)
    change = member.synced_with({2, 3}, 1.1, in_place=True)
    assert (change.kept, change.new, change.lost) == ({2}, {3}, {1})
    assert member.doubt is not None
    assert member.barrier
    assert not member.keeps(1.2)


def test_good_heartbeats_without_a_sync_do_not_keep_the_fence_open() -> None:
    fence = Fence(10.0, 30.0)
    member: MemberInPlace[int] = MemberInPlace(fence)
    member.claim({1})
    member.joined(5, 0.0)
    for second in range(1, 30):
        member.beat(5, float(second), stable=True)
    assert not fence.closed(29.5)
    assert fence.closed(30.5)


def test_claims_stay_whatever_the_placement_says() -> None:
    placed = place([("b",), ("a",), ("b",)], partitions=3, previous={}, members=["a", "b"], claims={0: "a", 1: "a"})
    assert placed == {
        0: ("a", PlacingReason.STAYED),
        1: ("a", PlacingReason.PLACED),
        2: ("b", PlacingReason.PLACED),
    }
