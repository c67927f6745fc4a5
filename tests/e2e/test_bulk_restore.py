"""Tables are restored by files on a real broker: what is in them is what the changelog says, whenever it ends."""

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import faust
import psutil
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from faust.stores.rocksdb import Store
from faust.types import TP

from trimtab_agent.engines import changelog_files
from trimtab_agent.engines.changelog_files import ChangelogPart, Written
from trimtab_agent.engines.faust.tables import bulk_restore
from trimtab_agent.engines.faust.tables.bulk_restore import BulkRestore, Missing, take_in
from trimtab_sandbox.broker import Broker, Topic

pytestmark = pytest.mark.light

RECORDS, KEYS = 30_000, 4_000
PARTITIONS = 2


def fill(broker: Broker, topic: str) -> dict[TP, list[tuple[bytes, bytes | None] | None]]:
    """Updates, deletions, an aborted transaction, and the marker of a transaction at the end; by offset."""
    settings = {"bootstrap.servers": broker.address, "transactional.id": topic, "linger.ms": 20}
    producer = Producer(settings)
    producer.init_transactions(30.0)
    logs: dict[TP, list[tuple[bytes, bytes | None] | None]] = {}
    for partition in range(PARTITIONS):
        log = logs[TP(topic, partition)] = []
        for first, last, kept in (
            (0, RECORDS // 2, True),
            (RECORDS // 2, RECORDS // 2 + 500, False),
            (RECORDS // 2 + 500, RECORDS, True),
        ):
            producer.begin_transaction()
            for number in range(first, last):
                key = b"key-%d" % (number * 7 % KEYS)
                value = None if number % 11 == 0 else b"%d of %d" % (number, partition) * 5
                producer.produce(topic, value, key, partition)
                log.append((key, value) if kept else None)
                if number % 5_000 == 0:
                    producer.poll(0)
            producer.flush(60.0)
            (producer.commit_transaction if kept else producer.abort_transaction)(30.0)
            log.append(None)  # the marker
    return logs


def state(log: list[tuple[bytes, bytes | None] | None], offset: int) -> dict[bytes, bytes]:
    """What a table has when it has its changelog up to this offset."""
    values = dict(row for row in log[: offset + 1] if row is not None)
    return {key: value for key, value in values.items() if value is not None}


class Table:
    """The part of a Faust table that a restore needs, on a real store."""

    def __init__(self, topic: str, folder: Path) -> None:
        app = faust.App("restored", datadir=folder, store="rocksdb://", web_enabled=False)
        self.data = Store("rocksdb://", app, app.Table("state", partitions=PARTITIONS), driver="rocksdict")
        self.data.on_changelog_sent = lambda *_: None
        self.topic = topic
        for partition in range(PARTITIONS):
            self.data._db_for_partition(partition)

    def apply_changelog_batch(self, batch: Any) -> None:
        assert [event.message.key for event in batch] == [self.data.offset_key]

    def offset(self, tp: TP) -> int:
        found = self.data.persisted_offset(tp)
        return -1 if found is None else found

    def rows(self, tp: TP) -> dict[bytes, bytes]:
        return dict(self.data._visible_items(self.data._dbs[tp.partition]))


Filled = tuple[dict[TP, list[Any]], Table]


@pytest.fixture
def filled(broker: Broker, unique: str, tmp_path: Path) -> Filled:
    broker.create_topics([Topic(name=unique, partitions=PARTITIONS)])
    logs = fill(broker, unique)
    path = tmp_path / "data"
    (path / "v1" / "tables").mkdir(parents=True)
    return logs, Table(unique, path)


def restore(
    broker: Broker,
    table: Table,
    ends: Mapping[TP, int],
    after_file: Callable[[TP], bool] = lambda _: True,
    wanted: Callable[[], Collection[TP]] | None = None,
) -> list[Written]:
    """Run it once; the files that were taken in."""
    missing = {tp: Missing(table, table.offset(tp) + 1, end) for tp, end in ends.items()}
    taken: list[Written] = []

    def take(tp: TP, written: Written) -> bool:
        assert written.first == table.offset(tp) + 1
        take_in(table, tp, written)
        taken.append(written)
        return after_file(tp)

    asyncio.run(BulkRestore({"bootstrap_servers": broker.address}).run(missing, take, wanted or (lambda: missing)))
    return taken


def children() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [each for each in found if "changelog_files" in " ".join(each.cmdline())]


def test_what_is_restored_is_what_the_changelog_says(broker: Broker, filled: Filled) -> None:
    logs, table = filled
    ends = {tp: len(log) for tp, log in logs.items()}

    taken = restore(broker, table, ends)

    assert {TP(each.topic, each.partition) for each in taken} == set(ends)
    for tp, log in logs.items():
        assert table.offset(tp) == len(log) - 1, "the marker at the end counts"
        assert table.rows(tp) == state(log, len(log) - 1)
        assert not bulk_restore._folder(table, tp).exists()
    assert children() == []


def test_a_database_that_has_some_of_it_gets_the_rest(broker: Broker, filled: Filled) -> None:
    logs, table = filled
    (tp, log), *_ = logs.items()
    half = RECORDS // 2 - 700
    for key, value in state(log, half).items():
        table.data._dbs[tp.partition][key] = value
    table.data.set_persisted_offset(tp, half)

    restore(broker, table, {tp: len(log)})

    assert table.offset(tp) == len(log) - 1
    assert table.rows(tp) == state(log, len(log) - 1)


def test_killed_amid_it_the_database_is_the_changelog_up_to_its_offset(broker: Broker, filled: Filled) -> None:
    logs, table = filled
    ends = {tp: len(log) for tp, log in logs.items()}

    def kill(_: TP) -> bool:
        for each in children():
            os.kill(each.pid, signal.SIGKILL)
        return True

    taken = restore(broker, table, ends, kill)

    assert len(taken) > 0
    assert sum(table.offset(tp) + 1 < len(log) for tp, log in logs.items()) > 0, "it was killed before its end"
    for tp, log in logs.items():
        assert table.rows(tp) == state(log, table.offset(tp))
    restore(broker, table, ends)
    for tp, log in logs.items():
        assert table.rows(tp) == state(log, len(log) - 1)


def test_a_changelog_larger_than_the_budget_comes_in_several_files(
    broker: Broker, filled: Filled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(changelog_files, "BUDGET_BYTES", 200_000)
    monkeypatch.setattr(changelog_files, "READ_AT_ONCE", 2_000)
    logs, table = filled
    seen: list[Written] = []

    def tell(written: Written) -> None:
        tp = TP(written.topic, written.partition)
        assert written.first == table.offset(tp) + 1
        take_in(table, tp, written)
        assert table.offset(tp) == written.last
        assert table.rows(tp) == state(logs[tp], written.last)
        seen.append(written)

    async def read() -> None:
        key, folder = table.data.offset_key.decode(), str(tmp_path)
        parts = [
            ChangelogPart(topic=tp.topic, partition=tp.partition, first=0, end=len(log), folder=folder, offset_key=key)
            for tp, log in logs.items()
        ]
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(bootstrap_servers=broker.address, **settings) as consumer:
            await changelog_files.write_files(consumer, parts, tell)

    asyncio.run(read())
    assert len(seen) > 2 * PARTITIONS


def test_without_a_broker_it_says_so_and_leaves_the_rest_to_others(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    logs, table = filled
    missing = {tp: Missing(table, 0, len(log)) for tp, log in logs.items()}
    run = BulkRestore({"bootstrap_servers": "127.0.0.1:1", "request_timeout_ms": 2000}).run
    asyncio.run(run(missing, lambda *_: pytest.fail("there is no file"), lambda: missing))
    assert "2 changelogs are restored record by record: ChildProcessError" in caplog.text
    assert "KafkaConnectionError" in caplog.text
