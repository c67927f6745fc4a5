"""Rebalances of members whose versions of the app read other topics, or say nothing of what they read."""

from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from tests.agent.engines.faust.group.test_assignor import FIRST, LAYOUT, TOPICS, Worker, placement, rejoin
from trimtab_agent.engines.faust.group.member_data import MemberData
from trimtab_agent.engines.faust.group.operators import Layout

UPGRADED = Layout(
    named=LAYOUT.named | {FIRST: LAYOUT.named[FIRST] | {"new", "ks-extras-changelog"}},  # type: ignore[operator]
    sources=LAYOUT.sources | {"new"},
    changelogs=LAYOUT.changelogs | {"ks-extras-changelog"},
)
MORE = TOPICS | {"new": 6, "ks-extras-changelog": 6}


@pytest.mark.parametrize("leader", ["m0", "m1", "m2"])
def test_in_a_rolling_upgrade_key_groups_stay_whole_and_what_a_worker_does_not_read_waits(leader: str) -> None:
    workers = {"m0": Worker(0), "m1": Worker(1, layout=UPGRADED), "m2": Worker(2, layout=UPGRADED)}
    workers["m0"].shared.offer(placement(1, [("w0",), ("w1",), ("w2",)] * 2, [("w0",)] * 6))

    rejoin(workers, leader=leader, known=MORE)

    for topic in ("in", "ks-counts-changelog"):
        assert [w.owns(topic) for w in workers.values()] == [[0, 3], [1, 4], [2, 5]]
    for topic in ("new", "ks-extras-changelog"):
        assert [w.owns(topic) for w in workers.values()] == [[], [1, 4], [2, 5]]
    differs = {w.shared.differs for w in workers.values()}
    assert differs == {"workers differ in their topics, tables or operators: w1, w2 against w0"}


def test_when_all_are_upgraded_everything_is_assigned_and_nobody_differs() -> None:
    workers = {f"m{n}": Worker(n, layout=UPGRADED) for n in range(3)}
    workers["m0"].shared.offer(placement(1, [("w0",), ("w1",), ("w2",)] * 2, [("w0",)] * 6))

    rejoin(workers, leader="m2", known=MORE)

    assert [w.owns("new") for w in workers.values()] == [w.owns("in") for w in workers.values()]
    assert [w.shared.differs for w in workers.values()] == [None] * 3


def test_nothing_moves_between_workers_that_write_the_same_key_in_other_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust uses orjson where it is installed: a new owner without it would not find the rows."""
    workers = {f"m{n}": Worker(n) for n in range(3)}
    workers["m0"].shared.offer(placement(1, [("w0",), ("w1",), ("w2",)] * 2, [("w0",)] * 6))
    metadata = workers["m1"].assignor.metadata

    def with_orjson(topics: set[str]) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr("trimtab_agent.engines.faust.group.assignor.JSON_HERE", '["\u00e4",1e16]')
            return metadata(topics)

    monkeypatch.setattr(workers["m1"].assignor, "metadata", with_orjson)

    rejoin(workers, leader="m0")

    told = "workers differ in their topics, tables or operators, or in how they write JSON (orjson): w0, w2 against w1"
    assert [w.shared.differs for w in workers.values()] == [told] * 3
    assert [w.owns("in") for w in workers.values()] == [[0, 3], [1, 4], [2, 5]]


def test_nothing_of_an_operator_goes_to_a_worker_whose_changelog_is_not_there_yet() -> None:
    workers = {"m0": Worker(0), "m1": Worker(1, layout=UPGRADED)}
    workers["m0"].shared.offer(placement(1, [("w0",), ("w1",)] * 3, [("w1",)] * 6))

    rejoin(workers, leader="m1", known=TOPICS | {"new": 6})

    assert [w.owns("in") for w in workers.values()] == [[0, 1, 2, 3, 4, 5], []]
    assert [w.owns("mid") for w in workers.values()] == [[], [0, 1, 2, 3, 4, 5]]


def test_a_member_with_an_older_plug_in_does_not_say_what_it_reads_and_is_believed_to_read_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = {f"m{n}": Worker(n) for n in range(2)}
    workers["m0"].shared.offer(placement(1, [("w0",), ("w1",)] * 3, [("w1",)] * 6))
    workers["m1"].shared.layout = None

    rejoin(workers, leader="m0")

    assert [w.owns("in") for w in workers.values()] == [[0, 2, 4], [1, 3, 5]]
    assert [w.shared.differs for w in workers.values()] == [None] * 2


@pytest.mark.parametrize(
    "layout",
    [
        7,
        {},
        {"named": {}, "sources": "in", "changelogs": []},
        {"named": {"a b": []}, "sources": [], "changelogs": []},
        {"named": {"first": ["elsewhere"]}, "sources": ["in"], "changelogs": []},
        {"named": {"first": [7]}, "sources": ["in"], "changelogs": []},
        {"named": {}, "sources": ["in"] * 10_001, "changelogs": []},
    ],
)
def test_a_layout_that_is_nonsense_is_counted_and_the_group_goes_on(layout: Any) -> None:
    workers = {f"m{n}": Worker(n) for n in range(2)}
    workers["m0"].shared.offer(placement(1, [("w0",), ("w1",)] * 3, [("w1",)] * 6))
    metadata = workers["m1"].assignor.metadata

    def nonsense(topics: set[str]) -> ConsumerProtocolMemberMetadata:
        told = metadata(topics)
        data = MemberData.loads(told.user_data)
        data.layout = layout
        return ConsumerProtocolMemberMetadata(told.version, told.subscription, data.dumps())

    workers["m1"].assignor.metadata = nonsense
    rejoin(workers, leader="m0")

    assert [w.owns("in") for w in workers.values()] == [[0, 2, 4], [1, 3, 5]]
    assert workers["m0"].shared.refused.total() == 1
