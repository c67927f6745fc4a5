"""Whom Faust's router asks for a key: real apps, joined by hand, and the hand-over records that they read."""

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from faust.stores.rocksdb import Store
from faust.types import TP
from faust.web.exceptions import ServiceUnavailable

from tests.agent.engines.faust.group.test_assignor import FIRST, Worker, placement, rejoin
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.safety.placed_keys import MAX_OTHERS, PlacedKeys
from trimtab_agent.engines.faust.steering import handover_receiver
from trimtab_agent.engines.faust.steering.handover_receiver import HandoverReceiver
from trimtab_agent.engines.faust.steering.pending_handovers import PendingHandovers
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId

MOVED, KEPT, SOURCE = TP("ks-counts-changelog", 0), TP("ks-counts-changelog", 1), TP("in", 0)
GROUP = {MOVED, SOURCE}
URLS = [f"http://w{number}:6066" for number in range(3)]
BEFORE, AFTER = placement(1, [("w0",)] * 6, [("w1",)] * 6), placement(2, [("w2", "w0"), *[("w0",)] * 5], [("w1",)] * 6)


class Asked(Worker):
    """A worker whose router is asked, and that reads hand-over records."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.routes = self.assignor.routes
        self.handover = SimpleNamespace(generation=3)
        ownership = SimpleNamespace(
            known=lambda key_groups: all(each.operator == FIRST for each in key_groups),
            moved=lambda key_groups, *how: self.routes.moved(GROUP if key_groups else (), *how),
        )
        app = self.assignor.app
        app.producer = SimpleNamespace(key_partition=lambda topic, key: TP(topic, key[-1] % 6))
        app.transport = SimpleNamespace(guard=SimpleNamespace(placed=defaultdict(PlacedKeys)))
        self.placed = app.transport.guard.placed[MOVED.topic]
        parts: Any = SimpleNamespace(
            shared=self.shared, handover=self.handover, ownership=ownership, pending=PendingHandovers()
        )
        self.receiver = HandoverReceiver(parts)

    def joined(self, generation: int, *, stable: bool = True) -> None:
        self.assignor.app.consumer_generation_id = self.handover.generation = generation
        self.routes.rebalancing()
        if stable:
            self.routes.stable(self.assignor.assigned_actives())

    def asks(self, tp: TP = MOVED) -> str | None:
        """Which address is asked; None: 503."""
        try:
            return str(
                self.assignor.external_key_store(tp.topic, bytes([tp.partition]))
                if tp == SOURCE
                else self.assignor.routes.address(tp, self.assignor._tps_url)
            )
        except KeyError:
            return None

    def asks_for(self, key: bytes) -> str:
        """Which address is asked for a key of the first table, or why none is."""
        try:
            return str(self.assignor.key_store(MOVED.topic, key))
        except ServiceUnavailable as told:
            return told.detail

    def reads(self, **changed: Any) -> None:
        fields: dict[str, Any] = {
            "kind": HandoverKind.TOOK,
            "cluster": "c",
            "app": AppId("ks"),
            "handover": "h",
            "epoch": Epoch(1, 2),
            "generation": 3,
            "source": WorkerId("w0"),
            "target": WorkerId("w2"),
            "key_groups": (KeyGroup(AppId("ks"), FIRST, 0),),
        }
        asyncio.run(self.receiver.receive(HandoverRecord(**{**fields, **changed}), 0.0))


@pytest.fixture
def workers() -> list[Asked]:
    """Three of them; w0 owns all key groups of the first operator, w1 those of the second."""
    found = [Asked(number) for number in range(3)]
    found[0].shared.offer(BEFORE)
    rejoin({f"m{number}": worker for number, worker in enumerate(found)}, leader="m0")
    for worker in found:
        worker.joined(3)
    return found


def give(workers: list[Asked]) -> None:
    """W0 gives the key group away, and w2 takes it."""
    for worker, own in ((workers[0], False), (workers[2], True)):
        active = worker.assignor._active_tps
        worker.assignor._active_tps = active | GROUP if own else active - GROUP
    workers[0].routes.given(GROUP)
    workers[2].routes.taken(GROUP)


def test_all_ask_the_new_owner_as_soon_as_it_says_so_and_the_old_one_never_answers(workers: list[Asked]) -> None:
    assert [worker.asks() for worker in workers] == [URLS[0]] * 3

    give(workers)
    assert [worker.asks() for worker in workers] == [None, URLS[0], URLS[2]]

    for worker in workers:
        worker.shared.offer(AFTER)
        worker.reads()
    assert [worker.asks() for worker in workers] == [URLS[2]] * 3
    assert [worker.asks(SOURCE) for worker in workers] == [URLS[2]] * 3
    assert [worker.asks(KEPT) for worker in workers] == [URLS[0]] * 3
    views = [worker.assignor.changelog_distribution for worker in workers]
    assert [view[URLS[2]][MOVED.topic] for view in views] == [[0]] * 3
    assert [view[URLS[0]][MOVED.topic] for view in views] == [[1, 2, 3, 4, 5]] * 3


@pytest.mark.parametrize(
    "forged", [{"target": WorkerId("w9")}, {"target": WorkerId("w1")}, {"generation": 2}, {"generation": 4}]
)
def test_a_record_that_placement_or_group_do_not_confirm_changes_nothing(
    workers: list[Asked], forged: dict[str, Any]
) -> None:
    for worker in workers:
        worker.shared.offer(AFTER)
        worker.reads(**forged)

    assert [worker.asks() for worker in workers] == [URLS[0]] * 3


def test_a_record_waits_for_its_placement_and_many_of_them_are_dropped(
    workers: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover_receiver, "MAX_UNCONFIRMED", 20)
    many = tuple(KeyGroup(AppId("ks"), FIRST, partition) for partition in range(6))
    for number in range(60):
        invented = {"handover": f"invented-{number}", "target": WorkerId("w9"), "key_groups": many}
        workers[1].reads(offsets=((MOVED.topic, 0, 1),) * 1_000, ends=((MOVED.topic, 0, 1),), **invented)
    workers[1].reads()
    assert workers[1].asks() == URLS[0]
    waiting = workers[1].receiver._unconfirmed
    assert sum(len(record.key_groups) for record in waiting) <= 20, "a record may have ten thousand"
    assert {(record.offsets, record.ends) for record in waiting} == {((), ())}, "and megabytes of offsets"

    workers[1].shared.offer(AFTER)
    workers[1].receiver.confirm()

    assert workers[1].asks() == URLS[2]


def test_an_owner_asks_itself_whatever_a_record_says(workers: list[Asked]) -> None:
    for worker in workers:
        worker.shared.offer(AFTER)
        worker.reads()  # before w2 has taken it

    assert [worker.asks() for worker in workers] == [URLS[0], URLS[2], URLS[0]]


def test_the_next_rebalance_decides_and_state_is_restored_before_it_is_asked_for(workers: list[Asked]) -> None:
    give(workers)
    workers[1].shared.offer(placement(3, [("w1",), *[("w0",)] * 5], [("w1",)] * 6))

    rejoin({f"m{number}": worker for number, worker in enumerate(workers)}, leader="m0")
    for worker in workers:
        worker.joined(4, stable=False)

    assert [worker.asks() for worker in workers] == [URLS[1], None, URLS[1]]
    assert [worker.asks(KEPT) for worker in workers] == [URLS[0]] * 3, "who keeps it has its state"
    workers[1].joined(4)
    assert workers[1].asks() == URLS[1]
    workers[0].joined(6, stable=False)
    assert workers[0].asks(KEPT) is None, "another worker may have owned it in generation 5"


def test_a_worker_that_stood_still_beyond_its_session_answers_for_nothing(workers: list[Asked]) -> None:
    fence = Fence(10.0)
    workers[0].assignor.app._consumer = SimpleNamespace(fence=fence)
    fence.heard(0.0)  # when the machine started

    assert (workers[0].asks(), workers[1].asks()) == (None, URLS[0])


# ---- which bytes place a table's key

SPREAD = placement(1, [("w0",), ("w2",)] * 3, [("w1",)] * 6)


@pytest.fixture
def spread() -> list[Asked]:
    """Three workers; w0 owns the even partitions of the first operator, w2 the odd ones."""
    found = [Asked(number) for number in range(3)]
    found[0].shared.offer(SPREAD)
    rejoin({f"m{number}": worker for number, worker in enumerate(found)}, leader="m0")
    for worker in found:
        worker.joined(3)
        store = Store.__new__(Store)  # opens no database
        store._dbs = {}
        worker.assignor.app.tables["counts"]._data = store
    return found


def where(key: bytes) -> str:
    """The owner of the partition to which an event with this key is sent."""
    return URLS[(0, 2)[key[-1] % 6 % 2]]


@pytest.mark.parametrize(
    ("event", "table", "asked"),
    [
        (b"de", b'"de"', b'"de"'),
        (b"7", b"7", b'"7"'),
        (b"7", b"7", b"7"),
        (b"de", b"de", b'"de"'),
        (b'"de"', b'"de"', b'"de"'),
        (b'"de"', b"de", b"de"),
        (b'"d\\u00e9"', b'"d\\u00e9"', b'"d\\u00e9"'),
        (b'{"a":1}', b'{"a":1}', b'{"a":1}'),
        ("dé".encode(), b'"d\\u00e9"', b'"d\\u00e9"'),
        (b"\xff\xfe", b"\xff\xfe", b"\xff\xfe"),
    ],
)
def test_a_key_is_asked_where_its_events_are(spread: list[Asked], event: bytes, table: bytes, asked: bytes) -> None:
    worker = spread[0]
    worker.placed.written(table, event, event[-1] % 6, windowed=False)
    assert worker.asks_for(asked) == where(event)


def test_a_windowed_key_is_placed_without_its_window(spread: list[Asked]) -> None:
    spread[0].placed.written(b'["de",[0.0,9.9]]', b"de", b"e"[0] % 6, windowed=True)
    assert spread[0].asks_for(b'"de"') == where(b"de")


def test_nothing_is_guessed_before_an_event_has_shown_it(spread: list[Asked]) -> None:
    """Who owns nothing of the table asks somebody who does."""
    assert "no event has shown" in spread[0].asks_for(b'"de"')
    assert spread[1].asks_for(b'"de"') == URLS[0]


@pytest.mark.parametrize(
    ("serializers", "rows", "found"),
    [
        ((None, "raw"), [], b"de"),
        (("json",), [], b'"de"'),
        ((None, "json"), [], "no event has shown"),
        (("pickle",), [], "no event has shown"),
        ((None,), [b'"c4"'], "no event has shown"),
    ],
    ids=["as they are", "JSON", "both", "another one", "a row says otherwise"],
)
def test_before_it_does_keys_are_believed_to_be_as_agents_read_them(
    spread: list[Asked], serializers: tuple[str | None, ...], rows: list[bytes], found: bytes | str
) -> None:
    app = spread[0].assignor.app
    for number, serializer in enumerate(serializers):
        topic = app.topic(f"read-{number}", key_serializer=serializer)
        app.agents[topic.get_topic_name()] = SimpleNamespace(channel=topic)
    app.tables["counts"].data._dbs, app.tables["counts"].data._visible_keys = {0: rows}, iter
    told = spread[0].asks_for(b'"de"')
    assert told == where(found) if isinstance(found, bytes) else found in told


@pytest.mark.parametrize("event", [b"42", None, b'"d\xc3\xa9"'])
def test_a_key_that_events_of_other_keys_write_is_nobodys(spread: list[Asked], event: bytes | None) -> None:
    worker = spread[0]
    worker.placed.written(b'"de"', b"de", 101 % 6, windowed=False)
    worker.placed.written(b'"d\\u00e9"', event, 0, windowed=False)
    assert "events of other keys" in worker.asks_for(b'"d\\u00e9"')
    assert worker.asks_for(b'"de"') == where(b"de")


def test_of_a_table_with_many_such_keys_nobody_knows_any(spread: list[Asked]) -> None:
    worker = spread[0]
    worker.placed.written(b'"de"', b"de", 101 % 6, windowed=False)
    for number in range(3 * MAX_OTHERS):
        worker.placed.written(b'"%d"' % number, b"other", 0, windowed=False)
    assert "events of other keys" in worker.asks_for(b'"de"')
    assert len(worker.placed.others) == MAX_OTHERS + 1


def test_events_that_another_partitioner_has_placed_are_not_found(spread: list[Asked]) -> None:
    spread[0].placed.written(b'"de"', b"de", 0, windowed=False)
    assert "another partitioner" in spread[0].asks_for(b'"de"')


@pytest.mark.parametrize(
    ("rows", "asked", "found"),
    [
        ([b'"a0"', b'"b2"', b'"c4"'], b'"d0"', b"d0"),
        ([b'"a0"'], b'"d0"', "no event has shown"),
        ([b'"a0"', b'"b1"', b'"c4"'], b'"d0"', "no event has shown"),
    ],
    ids=["enough of them", "too few", "one that is elsewhere"],
)
def test_rows_show_how_keys_are_placed_until_an_event_does(
    spread: list[Asked], rows: list[bytes], asked: bytes, found: bytes | str
) -> None:
    worker = spread[0]
    databases = {0: [row for row in rows if row[2] % 6 == 0], 2: [row for row in rows if row[2] % 6 == 2]}
    databases[4] = [row for row in rows if row not in databases[0] and row not in databases[2]]
    store = worker.assignor.app.tables["counts"].data
    store._dbs, store._visible_keys = databases, iter
    told = worker.asks_for(asked)
    assert told == where(found) if isinstance(found, bytes) else found in told
