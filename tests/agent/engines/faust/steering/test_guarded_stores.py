"""A table that cannot be written: nothing of the worker counts from then on, and it ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import faust
import pytest
from faust.types import TP

from trimtab_agent.engines.faust.fence import Fence
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer
from trimtab_agent.engines.faust.transport.steered import SteeredTransport

SOURCE = TP("events", 0)


class FullDisk:
    """A database that takes nothing more."""

    def delete(self, key: bytes) -> None:
        raise OSError(f"No space left on device: while deleting {key!r}")


class BadApp:
    """A database that is written by an app which must not."""

    def delete(self, key: bytes) -> None:
        raise AssertionError(f"no event, but {key!r}")


def worker(folder: Path, database: object) -> tuple[faust.App, SteeredConsumer, Callable[[], None]]:
    """An app, its consumer, and the writing of its table."""
    app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder))
    table = app.Table("sums", partitions=1)
    transport = SteeredTransport(app, fence=Fence(10.0), settings=SteeringSettings(), watcher=None)  # type: ignore[arg-type]

    async def nothing(*_: object) -> None: ...

    store = table.data
    store._dbs_for_key = lambda _: [database]
    consumer = transport.create_consumer(
        callback=nothing, on_partitions_revoked=nothing, on_partitions_assigned=nothing
    )
    return app, consumer, lambda: store._del(b"n14228")


def test_nothing_is_committed_after_a_write_that_failed_and_the_worker_ends(tmp_path: Path) -> None:
    async def fail() -> None:
        app, consumer, write = worker(tmp_path, FullDisk())
        consumer.start_at({SOURCE: 10})
        consumer._note_delivery(SOURCE, 10)
        consumer._note_delivery(SOURCE, 11)
        consumer._acked_index[SOURCE].add(10)
        assert consumer._new_offset(SOURCE) == 11
        consumer._acked_index[SOURCE].add(11)

        with pytest.raises(OSError, match="No space left"):
            write()
        await asyncio.sleep(0.1)

        assert consumer._new_offset(SOURCE) is None
        assert consumer.fence.over
        assert not consumer.fence.lets_through()
        assert app.crashed

    asyncio.run(fail())


def test_a_new_generation_does_not_mend_the_state(tmp_path: Path) -> None:
    async def fail() -> None:
        _, consumer, write = worker(tmp_path, FullDisk())
        with pytest.raises(OSError, match="No space left"):
            write()
        consumer.fence.renew()
        assert not consumer.fence.lets_through()

    asyncio.run(fail())


def test_an_error_of_the_app_is_its_own(tmp_path: Path) -> None:
    async def fail() -> None:
        app, consumer, write = worker(tmp_path, BadApp())
        with pytest.raises(AssertionError, match="no event"):
            write()
        await asyncio.sleep(0.1)
        assert not consumer.fence.over
        assert not app.crashed

    asyncio.run(fail())
