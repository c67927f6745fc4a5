"""Rebalances by a placement in parts, of which members send only the epoch along."""

from dataclasses import replace

import pytest

from tests.agent.engines.faust.group.test_assignor import TOPICS, Worker, placement, rejoin
from trimtab_agent.engines.faust.group.member_data import read_member
from trimtab_protocol.messages.names import NO_EPOCH, Epoch
from trimtab_protocol.messages.placement import Placement


@pytest.fixture
def workers() -> dict[str, Worker]:
    return {f"m{number}": Worker(number) for number in range(3)}


def in_parts(found: Placement) -> Placement:
    return replace(found, part_size=2)


def test_a_placement_in_parts_is_followed_and_only_its_epoch_is_sent_along(workers: dict[str, Worker]) -> None:
    for worker in workers.values():
        worker.shared.offer(in_parts(placement(1, [("w0",)] * 4 + [("w1",)] * 2, [("w2",)] * 6)))

    rejoin(workers, leader="m0")

    assert [w.owns("in") for w in workers.values()] == [[0, 1, 2, 3], [4, 5], []]
    assert [w.shared.applied for w in workers.values()] == [Epoch(1, 1)] * 3
    said = read_member(workers["m1"].assignor.metadata(set(TOPICS)).user_data)
    assert (said.epoch, said.placement) == ([1, 1], None)


def test_a_leader_that_lacks_the_newest_placement_in_parts_leaves_key_groups_with_their_owners(
    workers: dict[str, Worker], caplog: pytest.LogCaptureFixture
) -> None:
    old = in_parts(placement(1, [("w0",)] * 6, [("w1",)] * 6))
    for worker in workers.values():
        worker.shared.offer(old)
    rejoin(workers, leader="m0")
    for topic in ("in", "ks-counts-changelog"):  # handed over within the generation
        workers["m1"].assignor._assignment.actives[topic] = [5]
        workers["m0"].assignor._assignment.actives[topic] = [0, 1, 2, 3, 4]
    workers["m1"].shared.offer(in_parts(placement(2, [("w0",)] * 5 + [("w1",)], [("w1",)] * 6)))

    rejoin(workers, leader="m0")

    assert [w.owns("in") for w in workers.values()] == [[0, 1, 2, 3, 4], [5], []]
    assert [w.owns("mid") for w in workers.values()] == [[], [0, 1, 2, 3, 4, 5], []]
    assert [w.shared.applied for w in workers.values()] == [Epoch(1, 1)] * 3, "it does not claim the newer one"
    assert "placement 1.2 could not be read in time" in caplog.text


def test_a_leader_without_any_placement_moves_nothing_while_members_follow_one_in_parts(
    workers: dict[str, Worker],
) -> None:
    for name in ("m1", "m2"):
        workers[name].shared.offer(in_parts(placement(1, [("w1",)] * 6, [("w2",)] * 6)))
    rejoin(workers, leader="m1")

    rejoin(workers, leader="m0")

    assert [w.owns("in") for w in workers.values()] == [[], [0, 1, 2, 3, 4, 5], []]
    assert [w.owns("mid") for w in workers.values()] == [[], [], [0, 1, 2, 3, 4, 5]]
    assert [w.shared.applied for w in workers.values()] == [NO_EPOCH] * 3
