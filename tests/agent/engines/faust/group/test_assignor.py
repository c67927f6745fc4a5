"""Real Faust apps, one per worker, joined by hand: bytes through the wire codecs both ways."""

import functools
import itertools
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import faust
import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.protocol.metadata import MetadataResponse_v1

from trimtab_agent.engines.faust.group.assignor import STOCK_LEADER, PlacementAssignor
from trimtab_agent.engines.faust.group.member_data import MemberData, read_member
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH, AppId, Epoch, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.envelope import Envelope, signatures_in
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

PARTITIONS = 6
LEADER_TOPIC = "ks-__assignor-__leader"
TOPICS = {"in": 6, "mid": 6, "ks-counts-changelog": 6, "ks-sums-changelog": 6, LEADER_TOPIC: 1}
FIRST, SECOND = OperatorId("first"), OperatorId("second")
LAYOUT = Layout(
    named={
        FIRST: frozenset({"in", "ks-counts-changelog"}),
        SECOND: frozenset({"mid", "ks-sums-changelog"}),
    },
    sources=frozenset({"in", "mid"}),
    changelogs=frozenset({"ks-counts-changelog", "ks-sums-changelog"}),
)


class Worker:
    def __init__(self, number: int, *, steered: bool = True, trust: Any = None, layout: Layout = LAYOUT) -> None:
        self.shared = PluginState(cluster="c", app=AppId("ks"), worker=WorkerId(f"w{number}"), trust=trust)
        self.shared.layout = layout
        self.topics = {*layout.sources, *layout.changelogs, LEADER_TOPIC}
        app = faust.App("ks", canonical_url=f"http://w{number}:6066", table_standby_replicas=0, web_enabled=False)
        if steered:
            app.conf.PartitionAssignor = functools.partial(PlacementAssignor, self.shared)
        for name in ("counts", "sums"):
            app.Table(name, partitions=PARTITIONS)
        self.assignor: Any = app.assignor

    def owns(self, topic: str) -> list[int]:
        return sorted(tp.partition for tp in self.assignor.assigned_actives() if tp.topic == topic)


def rejoin(workers: Mapping[str, Worker], *, leader: str, known: Mapping[str, int] = TOPICS) -> None:
    cluster = ClusterMetadata(bootstrap_servers=["127.0.0.1:9092"])
    topics = [(0, t, False, [(0, p, 0, [0], [0]) for p in range(count)]) for t, count in known.items()]
    cluster.update_metadata(MetadataResponse_v1([(0, "127.0.0.1", 9092, None)], 0, topics))
    joined = {
        member: ConsumerProtocolMemberMetadata.decode(worker.assignor.metadata(worker.topics).encode())
        for member, worker in workers.items()
    }
    assigned = workers[leader].assignor.assign(cluster, joined)
    for member, worker in workers.items():
        worker.assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(assigned[member].encode()))


def placement(number: int, first: list[tuple[str, ...]], second: list[tuple[str, ...]]) -> Placement:
    rows = {FIRST: first, SECOND: second}
    owners = {operator: tuple(tuple(map(WorkerId, row)) for row in found) for operator, found in rows.items()}
    return Placement(cluster="c", app=AppId("ks"), epoch=Epoch(1, number), owners=owners)


@pytest.fixture
def workers() -> dict[str, Worker]:
    return {f"m{number}": Worker(number) for number in range(3)}


def test_operators_are_placed_independently_also_when_only_a_follower_knows_the_placement(
    workers: dict[str, Worker],
) -> None:
    workers["m2"].shared.offer(placement(1, [("w0",)] * 4 + [("w1", "w2")] * 2, [("w2",)] * 6))

    rejoin(workers, leader="m0")

    assert [w.owns("in") for w in workers.values()] == [[0, 1, 2, 3], [4, 5], []]
    assert [w.owns("ks-counts-changelog") for w in workers.values()] == [[0, 1, 2, 3], [4, 5], []]
    assert [w.owns("mid") for w in workers.values()] == [[], [], [0, 1, 2, 3, 4, 5]]
    assert [w.shared.applied for w in workers.values()] == [Epoch(1, 1)] * 3
    assert sum(len(w.owns(LEADER_TOPIC)) for w in workers.values()) == 1


def test_a_dead_worker_is_replaced_by_its_standbys_and_the_rest_is_spread(workers: dict[str, Worker]) -> None:
    workers["m0"].shared.offer(placement(1, [("w1", "w2")] * 3 + [("w1",)] * 3, [("w0",)] * 6))
    rejoin(workers, leader="m0")
    del workers["m1"]

    rejoin(workers, leader="m2")

    assert {m: w.owns("in") for m, w in workers.items()} == {"m0": [3, 4, 5], "m2": [0, 1, 2]}
    assert workers["m0"].owns("mid") == [0, 1, 2, 3, 4, 5]


def test_without_a_placement_faust_decides_and_says_so(workers: dict[str, Worker]) -> None:
    rejoin(workers, leader="m1")

    assert sorted(itertools.chain(*(w.owns("in") for w in workers.values()))) == list(range(PARTITIONS))
    assert [w.shared.applied for w in workers.values()] == [NO_EPOCH] * 3


@pytest.mark.parametrize("placed", [True, False])
def test_two_members_with_one_name_keep_all_from_handing_over_until_one_has_left(
    workers: dict[str, Worker], placed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    workers["m3"] = Worker(1)
    if placed:
        workers["m0"].shared.offer(placement(1, [("w1",)] * 6, [("w0",)] * 6))

    rejoin(workers, leader="m0")

    told = "several processes are called w1: each needs a name of its own (TRIMTAB_WORKER)"
    assert [worker.shared.reports_only for worker in workers.values()] == [told] * 4
    assert f"no hand-overs while {told}" in caplog.text
    assert sorted(number for worker in workers.values() for number in worker.owns("in")) == [0, 1, 2, 3, 4, 5]

    del workers["m3"]
    rejoin(workers, leader="m0")

    assert [worker.shared.reports_only for worker in workers.values()] == [None] * 3


def test_a_leader_never_raises(workers: dict[str, Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    workers["m0"].shared.offer(placement(1, [("w0",)] * 6, [("w0",)] * 6))
    monkeypatch.setattr("trimtab_agent.engines.faust.group.assignor.place", lambda *_, **__: 1 / 0)

    rejoin(workers, leader="m0")

    assert sorted(itertools.chain(*(w.owns("in") for w in workers.values()))) == list(range(PARTITIONS))
    assert workers["m0"].shared.applied == NO_EPOCH


@pytest.mark.parametrize("steered", [True, False], ids=["placed", "by stock Faust"])
@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"assignment":{"actives":{"in":[99]},"standbys":{}},"url":"u","changelog_distribution":{}}',
        b'{"assignment":{"actives":{"in":"x"},"standbys":[]},"url":5,"changelog_distribution":{}}',
        b'{"assignment":{"actives":{},"standbys":{}},"url":"u","changelog_distribution":{},"epoch":[1],"placement":7}',
        b'{"assignment":{"actives":{"a\\nERROR b":"x"},"standbys":{}},"url":"u","changelog_distribution":{}}',
    ],
)
def test_a_member_that_cannot_be_understood_is_unknown_and_the_others_have_their_group(
    workers: dict[str, Worker], broken: bytes, steered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if steered:
        workers["m0"].shared.offer(placement(1, [("w0",)] * 3 + [("w2",)] * 3, [("w0",)] * 6))
    stranger = workers.pop("m1")
    stranger.assignor.metadata = lambda topics: ConsumerProtocolMemberMetadata(0, sorted(topics), broken)

    rejoin({**workers, "m1": stranger}, leader="m0")

    owned = [w.owns("in") for w in (*workers.values(), stranger)]
    assert sorted(itertools.chain(*owned)) == list(range(PARTITIONS))
    assert not steered or owned == [[0, 1, 2], [3, 4, 5], []]
    assert workers["m0"].shared.refused.total() == 1
    assert workers["m2"].shared.refused.total() == 0
    assert not any("\n" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("said", [b"", b"\xff", zlib.compress(b"{}"), zlib.compress(b" " * 20_000_000), b"x"])
def test_a_member_has_its_partitions_whatever_the_leader_says_of_them(workers: dict[str, Worker], said: bytes) -> None:
    worker = workers["m0"]

    worker.assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [("in", [1, 2])], said))

    assert worker.owns("in") == [1, 2]
    assert worker.shared.applied == NO_EPOCH
    assert worker.shared.refused == {Fault.MALFORMED: 1}


def test_a_member_with_stock_faust_gets_its_share_and_can_lead(workers: dict[str, Worker]) -> None:
    workers["m1"] = Worker(1, steered=False)
    workers["m0"].shared.offer(placement(1, [("w0",)] * 6, [("w1",)] * 6))

    rejoin(workers, leader="m0")
    assert (workers["m0"].owns("in"), workers["m1"].owns("in")) == ([0, 1, 2, 3, 4, 5], [])

    rejoin(workers, leader="m1")
    assert sorted(itertools.chain(*(w.owns("in") for w in workers.values()))) == list(range(PARTITIONS))


def test_what_changed_in_place_is_told_at_the_next_join(workers: dict[str, Worker]) -> None:
    workers["m0"].shared.offer(placement(1, [("w0",)] * 6, [("w0",)] * 6))
    rejoin(workers, leader="m0")
    before = workers["m0"].assignor.metadata(set(TOPICS)).encode()

    workers["m0"].assignor._assignment.actives["in"] = [0, 1, 2]

    assert workers["m0"].assignor.metadata(set(TOPICS)).encode() != before


def test_an_older_or_foreign_placement_is_not_taken() -> None:
    shared = PluginState(cluster="c", app=AppId("ks"), worker=WorkerId("w0"))
    assert shared.offer(placement(2, [], []))

    assert not shared.offer(placement(1, [("w0",)], []))
    assert not shared.offer(placement(2, [("w0",)], []))
    foreign = Placement(cluster="d", app=AppId("ks"), epoch=Epoch(9, 9), owners={})
    assert not shared.offer(foreign)
    assert shared.placement == placement(2, [], [])


KEY, STRANGER = SigningKey.generate(), SigningKey.generate()


def published(what: Placement, by: SigningKey | None = KEY, topic: str = "trimtab.c.placement") -> tuple[bytes, Any]:
    value = encoded(what)
    envelope = Envelope(topic=topic, key=b"ks", value=value)
    return value, signatures_in([by.sign(envelope)]) if by else ()


def test_what_a_member_passes_on_is_checked_by_the_leader_too() -> None:
    trust = TrustedKeys((KEY.public,))
    workers = {f"m{number}": Worker(number, trust=trust) for number in range(3)}
    workers["m1"] = Worker(1)  # this one trusts everybody
    true, forged = placement(1, [("w2",)] * 6, [("w2",)] * 6), placement(9, [("w1",)] * 6, [("w1",)] * 6)
    assert workers["m2"].shared.take(*published(true))
    assert workers["m1"].shared.take(*published(forged, by=STRANGER))

    rejoin(workers, leader="m0")

    assert [w.owns("in") for w in workers.values()] == [[], [], [0, 1, 2, 3, 4, 5]]
    assert workers["m0"].shared.applied == Epoch(1, 1)
    assert workers["m0"].shared.refused == {Fault.UNKNOWN_KEY: 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"signatures": ["\u0100"]}, {"signatures": [7]}, {"signatures": 7}, {"epoch": 3}, {"epoch": [1]},
        {"epoch": ["a", "b"]}, {"placement": [1]}, {"placement": "\u0100"}, {"placement": "AAAA"},
        {"worker": "\n" * 5000, "epoch": None},
    ],
)  # fmt: skip
def test_a_member_that_sends_nonsense_does_not_keep_the_group_from_the_placement(
    workers: dict[str, Worker], monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    workers["m0"].shared.offer(placement(1, [("w0",)] * 6, [("w0",)] * 6))
    workers["m1"].shared.offer(placement(9, [("w1",)] * 6, [("w1",)] * 6))
    true = MemberData.loads

    def wrong(data: bytes) -> MemberData:
        member = true(data)
        for name, value in fields.items() if list(member.epoch) == [1, 9] else ():
            setattr(member, name, value)
        return member

    monkeypatch.setattr(MemberData, "loads", wrong)
    rejoin(workers, leader="m0")

    assert workers["m0"].owns("in") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (published(placement(1, [], []), by=None), Fault.UNSIGNED),
        (published(placement(1, [], []), by=STRANGER), Fault.UNKNOWN_KEY),
        (published(placement(1, [], []), topic="trimtab.d.placement"), Fault.WRONG_SIGNATURE),
        (published(Placement(cluster="d", app=AppId("ks"), epoch=Epoch(1, 1), owners={})), Fault.CLUSTER),
        (published(Placement(cluster="c", app=AppId("x"), epoch=Epoch(1, 1), owners={})), Fault.RANGE),
    ],
)
def test_a_placement_that_nobody_vouches_for_is_counted_and_not_kept(value: Any, fault: Fault) -> None:
    trust: Any = TrustedKeys((KEY.public,))
    shared = PluginState(cluster="c", app=AppId("ks"), worker=WorkerId("w0"), trust=trust)

    with pytest.raises(BadMessage):
        shared.take(*value)

    assert (shared.refused, shared.placement) == ({fault: 1}, None)
    assert shared.take(*published(placement(2, [], [])))
    assert not shared.take(*published(placement(1, [], [])))  # older: no fault, compacted topics are read again


def test_a_worker_that_only_reports_follows_the_placement_but_as_the_leader_assigns_as_stock_faust_does(
    workers: dict[str, Worker],
) -> None:
    workers["m0"].shared.offer(placement(1, [("w0",), ("w1",), ("w2",)] * 2, [("w1",)] * 6))
    workers["m2"].shared.refusal = "store memory://"
    workers["m2"].assignor.replicas = 1

    rejoin(workers, leader="m0")
    assert [w.owns("in") for w in workers.values()] == [[0, 3], [1, 4], [2, 5]]
    assert [w.shared.differs for w in workers.values()] == [None] * 3

    rejoin(workers, leader="m2")
    assert [w.shared.differs for w in workers.values()] == [STOCK_LEADER] * 3, "Faust itself follows changelogs"
    assert [w.shared.applied for w in workers.values()] == [NO_EPOCH] * 3

    rejoin(workers, leader="m0")
    assert [w.shared.differs for w in workers.values()] == [None] * 3


# --- after a loss without standbys: members say which copies of state they have on their disks


@pytest.fixture
def owners() -> dict[str, Worker]:
    """Three workers; m1 owns everything of the first operator, and m0 everything of the second."""
    found = {f"m{number}": Worker(number) for number in range(3)}
    for worker in found.values():
        worker.shared.offer(placement(1, [("w1",)] * 6, [("w0",)] * 6))
    rejoin(found, leader="m0")
    return found


def test_orphans_go_to_members_with_a_copy_of_that_operator(owners: dict[str, Worker]) -> None:
    owners["m0"].shared.copies = (Copy(FIRST, 1, 70), Copy(FIRST, 4, 70))
    owners["m2"].shared.copies = (Copy(FIRST, 4, 90), Copy(SECOND, 0, 5), Copy(FIRST, 0, 5))
    del owners["m1"]

    rejoin(owners, leader="m2")

    owned = {name: worker.owns("in") for name, worker in owners.items()}
    assert 1 in owned["m0"]
    assert {0, 4} <= set(owned["m2"])
    assert [len(each) for each in owned.values()] == [3, 3]
    assert owners["m0"].owns("mid") == [0, 1, 2, 3, 4, 5], "what has an owner stays"


@pytest.mark.parametrize("said", [{"o": ["first"], "p": [1]}, {"o": ["first"], "p": [-1], "n": [5]}, [1], {"p": "x"}])
def test_copies_that_are_nonsense_are_counted_and_the_group_goes_on(
    owners: dict[str, Worker], said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_agent.engines.faust.group.assignor.write_copies", lambda _: said)
    del owners["m1"]

    rejoin(owners, leader="m2")

    assert [len(worker.owns("in")) for worker in owners.values()] == [3, 3]
    assert sum(owners["m2"].shared.refused[fault] for fault in (Fault.RANGE, Fault.TYPE, Fault.MISSING)) == 2


# --- a placement in parts, of which members send only the epoch along


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


# --- members whose versions of the app read other topics, or say nothing of what they read


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
