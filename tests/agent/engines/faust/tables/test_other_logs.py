"""A worker that comes back with the disk of an app that was reset meanwhile does not go on with the old state."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka.errors import KafkaConnectionError
from faust.types import TP

from trimtab_agent.engines.faust.tables.other_logs import SKEW_S, watch

LOG, OTHER = TP("ks-sums-changelog", 0), TP("ks-other-changelog", 0)
OFFSET = 7


class Broker:
    """Answers which record is the first since a time; `fault` instead, if there is one."""

    def __init__(self, first: int | None, fault: Exception | None = None) -> None:
        self.first, self.fault = first, fault
        self.asked: list[Mapping[TP, float]] = []

    async def offsets_since(self, times: Mapping[TP, float], limit_s: float) -> dict[TP, int]:
        self.asked.append(times)
        if self.fault is not None:
            raise self.fault
        return {} if self.first is None else dict.fromkeys(times, self.first)


def a_worker(folder: Path, broker: Broker) -> Any:
    """The store of a table whose worker has just started."""
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder))
    table = app.Table("sums", partitions=1)
    app._consumer = SimpleNamespace(thread=broker)
    app._assignor = SimpleNamespace(assigned_standbys=set, _active_tps=set())
    watch(app)
    return table.data


async def assigned(store: Any) -> None:
    await store.on_rebalance({LOG, OTHER}, set(), {LOG, OTHER}, generation_id=1)


def with_state(folder: Path) -> Path:
    """What a worker leaves on its disk; returns the folder of its database."""
    store = a_worker(folder, Broker(None))

    async def work() -> None:
        await assigned(store)
        store._dbs[0].put(b"key", b"old")
        store.set_persisted_offset(LOG, OFFSET)
        store._dbs.pop(0).close()

    asyncio.run(work())
    path: Path = store.partition_path(0)
    return path


@pytest.mark.parametrize(
    ("broker", "kept"),
    [
        pytest.param(Broker(OFFSET + 1), True, id="its changelog went on"),
        pytest.param(Broker(None), True, id="nothing was written since"),
        pytest.param(Broker(0), False, id="a changelog that is longer than the old one"),
        pytest.param(Broker(OFFSET), False, id="the offset was written since"),
        pytest.param(Broker(0, KafkaConnectionError()), True, id="the broker does not answer"),
        pytest.param(Broker(0, TimeoutError()), True, id="the broker takes too long"),
    ],
)
def test_state_of_another_changelog_is_not_used(tmp_path: Path, broker: Broker, kept: bool) -> None:
    path = with_state(tmp_path)
    last = max(each.stat().st_mtime for each in path.iterdir())
    store = a_worker(tmp_path, broker)

    asyncio.run(assigned(store))

    assert store.persisted_offset(LOG) == (OFFSET if kept else None)
    assert store._dbs[0].get(b"key") == (b"old" if kept else None)
    assert broker.asked == [{LOG: pytest.approx(last + SKEW_S, abs=1.0)}]
    store._dbs.pop(0).close()


def test_a_new_disk_and_an_open_database_are_not_asked_about(tmp_path: Path) -> None:
    broker = Broker(0)
    store = a_worker(tmp_path, broker)

    async def twice() -> None:
        await assigned(store)
        store.set_persisted_offset(LOG, OFFSET)
        await assigned(store)

    asyncio.run(twice())

    assert broker.asked == []
    assert store.persisted_offset(LOG) == OFFSET
    store._dbs.pop(0).close()
