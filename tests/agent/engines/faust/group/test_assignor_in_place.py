"""What the group's leader gives to members that go on with what they own while they join."""

from collections.abc import Collection
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.protocol.metadata import MetadataResponse_v1

from tests.agent.engines.faust.group.test_assignor import LAYOUT, LEADER_TOPIC, TOPICS, Worker, placement
from trimtab_agent.engines.faust.group.assignor import PlacementAssignor
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.safety.in_place import OWN
from trimtab_protocol.messages.names import NO_EPOCH


class Group:
    """Workers that have joined by hand; `in_place` = what the leader has said last."""

    def __init__(self) -> None:
        self.workers = {f"m{number}": Worker(number) for number in range(3)}
        self.in_place: dict[str, bool] = {}
        self.revoke = False
        rows = [("w0",), ("w0",), ("w1",), ("w1",), ("w2",), ("w2",)]
        self.workers["m0"].shared.offer(placement(1, rows, rows))
        self.join()

    def join(
        self, *, keeps: Collection[str] = (), asks: Collection[str] = (), unreadable: Collection[str] = ()
    ) -> None:
        """`keeps` what they own; `asks` to stop all; `unreadable` data in the group's own protocol."""
        topics = [(0, t, False, [(0, p, 0, [0], [0]) for p in range(count)]) for t, count in TOPICS.items()]
        cluster = ClusterMetadata(bootstrap_servers=["127.0.0.1:9092"])
        cluster.update_metadata(MetadataResponse_v1([(0, "127.0.0.1", 9092, None)], 0, topics))
        told: dict[str, Any] = {}
        for member, worker in self.workers.items():
            data = worker.assignor.metadata(worker.topics, keeps=member in keeps, in_place=member not in asks)
            told[member] = ConsumerProtocolMemberMetadata.decode(data.encode())
            if member in unreadable:
                told[member] = ConsumerProtocolMemberMetadata(2, sorted(worker.topics), b"?")
        leader = self.workers["m0"].assignor
        leader.protocol = OWN
        assigned = leader.assign(cluster, told)
        for member, worker in self.workers.items():
            assignment = ConsumerProtocolMemberAssignment.decode(assigned[member].encode())
            self.in_place[member], self.revoke = PlacementAssignor.leader_says(assignment)
            worker.assignor.on_assignment(assignment)

    @property
    def owners(self) -> dict[str, list[int]]:
        return {member: worker.owns("in") for member, worker in self.workers.items()}

    def place(self, number: int, *owners: str) -> None:
        rows: list[tuple[str, ...]] = [(owner,) for owner in owners]
        self.workers["m0"].shared.offer(placement(number, rows, rows))


AS_PLACED = {"m0": [0, 1], "m1": [2, 3], "m2": [4, 5]}


@pytest.fixture
def group() -> Group:
    return Group()


def test_the_first_join_follows_the_placement_and_the_next_is_in_place(group: Group) -> None:
    assert group.owners == AS_PLACED
    assert set(group.in_place.values()) == {True}


def test_what_is_claimed_stays_whatever_the_placement_says(group: Group) -> None:
    group.place(2, "w2", "w2", "w2", "w2", "w2", "w2")
    leads = [worker.owns(LEADER_TOPIC) for worker in group.workers.values()]
    group.join(keeps=["m0", "m1", "m2"])
    assert group.owners == AS_PLACED
    assert [worker.owns(LEADER_TOPIC) for worker in group.workers.values()] == leads
    assert set(group.in_place.values()) == {True}
    assert {worker.shared.applied for worker in group.workers.values()} == {NO_EPOCH}  # a `rejoin` command is not done


def test_only_what_nobody_claims_is_given_away(group: Group) -> None:
    group.place(2, "w2", "w2", "w2", "w2", "w0", "w0")
    group.join(keeps=["m0", "m2"])  # m1 was thrown out
    assert group.owners == {"m0": [0, 1], "m1": [], "m2": [2, 3, 4, 5]}


def test_one_that_asks_stops_all_and_nobody_gets_anything_new(group: Group) -> None:
    group.join(keeps=["m0", "m1"], asks=["m1"])
    assert group.owners == {"m0": [0, 1], "m1": [2, 3], "m2": []}
    assert set(group.in_place.values()) == {False}
    group.join()
    assert group.owners == AS_PLACED
    assert set(group.in_place.values()) == {True}


def test_nobody_revokes_where_nobody_has_anything(group: Group) -> None:
    for worker in group.workers.values():
        worker.assignor._assignment.actives.clear()
    group.join(keeps=["m0", "m1"], asks=["m2"])
    assert group.owners == AS_PLACED
    assert not group.revoke


def test_data_that_cannot_be_read_may_hide_a_claim(group: Group) -> None:
    group.join(keeps=["m0", "m1"], unreadable=["m2"])
    assert group.owners == {"m0": [0, 1], "m1": [2, 3], "m2": []}
    group.join(unreadable=["m2"])
    assert group.owners == {"m0": [], "m1": [], "m2": []}
    assert group.revoke


def test_two_claims_of_one_partition_stop_all(group: Group) -> None:
    group.workers["m1"].assignor._assignment.actives["in"] = [1, 2, 3]
    group.join(keeps=["m0", "m1", "m2"])
    assert group.owners == {"m0": [0, 1], "m1": [1, 2, 3], "m2": [4, 5]}  # each has what it claims, and revokes it
    assert set(group.in_place.values()) == {False}


def test_another_version_of_the_app_stops_all(group: Group) -> None:
    more = Layout(named={}, sources=LAYOUT.sources | {LEADER_TOPIC}, changelogs=LAYOUT.changelogs)
    group.workers["m2"].shared.layout = more
    group.join(keeps=["m0", "m1"])
    assert set(group.in_place.values()) == {False}
    assert group.owners["m2"] == []


def test_a_leader_without_a_placement_lets_all_join_as_before(group: Group) -> None:
    group.workers["m0"].shared.newest = None
    for worker in group.workers.values():
        worker.shared.newest = None
    group.join()
    assert set(group.in_place.values()) == {False}
    assert sorted(partition for owned in group.owners.values() for partition in owned) == [0, 1, 2, 3, 4, 5]


def test_an_error_of_the_leader_gives_nothing_away(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_agent.engines.faust.group.assignor.place", lambda *_, **__: 1 / 0)
    group.join(keeps=["m0", "m1"])
    assert group.owners == {"m0": [0, 1], "m1": [2, 3], "m2": []}
    assert set(group.in_place.values()) == {False}
