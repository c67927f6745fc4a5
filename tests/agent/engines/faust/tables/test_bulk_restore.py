"""What a table lacks much of, it gets by files, before Faust's recovery or the reader of changelogs goes on."""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import psutil
import pytest
from faust.types import TP

from tests.paths import ROOT
from trimtab_agent.engines import changelog_files
from trimtab_agent.engines.changelog_files import (
    ChangelogPart,
    FilesRequest,
    Gathered,
    Written,
    client_settings,
    write_file,
)
from trimtab_agent.engines.faust.credentials import TLS_FILES
from trimtab_agent.engines.faust.tables import bulk_restore
from trimtab_agent.engines.faust.tables.bulk_restore import (
    MANY_RECORDS,
    FilesFirst,
    Missing,
    Take,
    Wanted,
    take_in,
)
from trimtab_agent.engines.faust.tables.changelog_reader import ChangelogReader
from trimtab_agent.engines.faust.transport.client import NotPlain, as_plain_data
from trimtab_protocol.settings.kafka import Tls

LOG = TP("ks-sums-changelog", 0)
END = 2 * MANY_RECORDS


class Files:
    """In the place of the process: writes what it is told to, as real files."""

    def __init__(self, folder: Path, *lasts: int) -> None:
        self.folder, self.lasts = folder, lasts
        self.asked: list[Mapping[TP, Missing]] = []
        self.taken: list[bool] = []
        self.between = asyncio.Event()

    async def run(self, missing: Mapping[TP, Missing], take: Take, wanted: Wanted) -> None:
        self.asked.append(missing)
        first = missing[LOG].first
        for last in self.lasts:
            name = self.folder / f"{first}-{last}.sst"
            write_file(name, {b"key": b"%d" % last}, b"__faust\0offset__", last)
            written = Written(topic=LOG.topic, partition=0, first=first, last=last, records=1, file=str(name))
            self.taken.append(LOG in wanted() and take(LOG, written))
            first = last + 1
            await asyncio.sleep(0)


class Worker:
    """An app with one table, whose database is open; Faust's recovery is noted, and not done."""

    def __init__(self, folder: Path, *, end: int = END) -> None:
        self.app = app = faust.App("ks", web_enabled=False, store="rocksdb://", datadir=str(folder / "data"))
        self.table = app.Table("sums", partitions=1)
        self.end, self.generation = end, 1
        app.assignor = SimpleNamespace(assigned_actives=lambda: {LOG, TP("inputs", 0)}, _active_tps={LOG})
        app.tables._changelogs[LOG.topic] = self.table
        self.table.data._dbs[0] = self.table.data._open_for_partition(0)
        self.recovered: list[tuple[set[TP], int, int | None]] = []

        async def recover(assigned: Any, revoked: set[TP], newly_assigned: Any, generation_id: int = 0) -> None:
            self.recovered.append((revoked, generation_id, self.table.persisted_offset(LOG)))

        app.tables.recovery.on_rebalance = recover


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker(tmp_path)
    monkeypatch.setattr(type(made.app), "consumer_generation_id", property(lambda _: made.generation))
    return made


async def settled(app: Any) -> None:
    await asyncio.sleep(0.05)
    await asyncio.gather(*app._futures)


def rebalance(worker: Worker, files: Any, *generations: int) -> None:
    async def run() -> None:
        worker.app.loop = asyncio.get_running_loop()
        FilesFirst(worker.app, files, {LOG: worker.end})
        for generation in generations:
            await asyncio.sleep(0)
            worker.generation = generation
            await worker.app.tables.recovery.on_rebalance(
                {LOG}, {TP(f"revoked-by-{generation}", 0)}, {LOG}, generation_id=generation
            )
        await settled(worker.app)

    asyncio.run(run())


def test_faust_recovers_from_where_files_have_brought_its_table(worker: Worker, tmp_path: Path) -> None:
    files = Files(tmp_path, 100, END - 1)
    rebalance(worker, files, 7)
    assert files.asked == [{LOG: Missing(worker.table, 0, END)}]
    assert worker.recovered == [({TP("revoked-by-7", 0)}, 7, END - 1)]
    assert worker.table.data._dbs[0].get(b"key") == b"%d" % (END - 1)


def test_a_little_is_left_to_faust(worker: Worker, tmp_path: Path) -> None:
    worker.end = MANY_RECORDS - 1
    files = Files(tmp_path)
    rebalance(worker, files, 7)
    assert (files.asked, worker.recovered) == ([], [({TP("revoked-by-7", 0)}, 7, None)])


def test_what_files_do_not_bring_is_left_to_faust(worker: Worker, tmp_path: Path) -> None:
    rebalance(worker, Files(tmp_path, 100), 7)
    assert worker.recovered == [({TP("revoked-by-7", 0)}, 7, 100)]


def test_a_later_generation_begins_anew_and_forgets_nothing_that_was_revoked(worker: Worker, tmp_path: Path) -> None:
    """Faust would wait without end for changelogs that were revoked meanwhile."""
    files = Files(tmp_path, 100, END - 1)
    rebalance(worker, files, 7, 8)
    both = {TP("revoked-by-7", 0), TP("revoked-by-8", 0)}
    assert worker.recovered == [(both, 8, END - 1)]


def test_a_file_that_does_not_follow_is_not_taken(worker: Worker, tmp_path: Path) -> None:
    files = Files(tmp_path, 100, 200, 300)
    worker.table.data.set_persisted_offset(LOG, 49)

    class Torn(Files):
        async def run(self, missing: Mapping[TP, Missing], take: Take, wanted: Wanted) -> None:
            await super().run({LOG: missing[LOG]._replace(first=60)}, take, wanted)

    files = Torn(tmp_path, 100, 200)
    rebalance(worker, files, 7)
    assert (files.taken, worker.recovered[0][2]) == ([False, False], 49)


# ---------------------------------------------------------------------- standbys
def follow(worker: Worker, files: Files, during: Any = lambda reader: None) -> ChangelogReader:
    reader = ChangelogReader({}, files)  # type: ignore[arg-type]
    worker.app.assignor._active_tps = set()

    async def run() -> None:
        reader._loop = asyncio.get_running_loop()
        reader.follow(LOG, worker.table, -1, END)
        restoring = asyncio.ensure_future(reader._restore())
        while not files.taken:
            await asyncio.sleep(0)
        during(reader)
        await asyncio.sleep(0.05)
        restoring.cancel()

    asyncio.run(run())
    return reader


def test_a_standby_is_read_on_from_where_files_have_brought_it(worker: Worker, tmp_path: Path) -> None:
    during: list[Any] = []
    reader = follow(
        worker, Files(tmp_path, 100, END - 1), lambda reader: during.append((reader._read_now(), reader.applied(LOG)))
    )
    assert during == [(frozenset(), 100)]
    assert (reader.applied(LOG), reader.records, reader._read_now()) == (END - 1, 2, {LOG})
    assert worker.table.persisted_offset(LOG) == END - 1


def test_after_a_failure_it_is_read_record_by_record(worker: Worker, tmp_path: Path) -> None:
    reader = follow(worker, Files(tmp_path, 100))
    assert (reader.applied(LOG), reader._read_now()) == (100, {LOG})


def test_what_is_little_is_read_at_once(worker: Worker, tmp_path: Path) -> None:
    """A hand-over may begin then, and would wait for the process."""
    during: list[Any] = []
    reader = follow(worker, Files(tmp_path, END - 40, END - 1), lambda reader: during.append(reader._read_now()))
    assert during == [{LOG}]
    assert reader.applied(LOG) == END - 40


def test_nothing_is_written_to_a_standby_that_was_left(worker: Worker, tmp_path: Path) -> None:
    files = Files(tmp_path, 100, END - 1)
    reader = follow(worker, files, lambda reader: reader.leave([LOG]))
    assert (files.taken, reader.applied(LOG)) == ([True, False], None)
    assert worker.table.persisted_offset(LOG) == 100


def test_a_standby_that_was_left_and_is_followed_again_takes_no_file_of_before(worker: Worker, tmp_path: Path) -> None:
    def again(reader: ChangelogReader) -> None:
        reader.leave([LOG])
        reader.follow(LOG, worker.table, 100, END + 5)

    files = Files(tmp_path, 100, END - 1)
    reader = follow(worker, files, again)
    assert files.taken[:2] == [True, False]
    assert [asked[LOG].first for asked in files.asked] == [0, 101]
    assert reader.applied(LOG) == END - 1


# ---------------------------------------------------------------------- the process
def record(key: bytes | None, value: bytes | None) -> Any:
    return SimpleNamespace(offset=0, key=key, value=value)


def test_a_file_has_the_last_value_of_each_key_and_the_offset(worker: Worker, tmp_path: Path) -> None:
    part = ChangelogPart(
        topic=LOG.topic,
        partition=0,
        first=0,
        end=9,
        folder=str(tmp_path),
        offset_key=worker.table.data.offset_key.decode(),
    )
    gathered = Gathered.of(part)
    database = worker.table.data._dbs[0]
    database[b"gone"] = database[b"kept"] = b"before"
    gathered.add([record(b"a", b"1"), record(None, b"no state"), record(b"gone", None), record(b"a", b"2")])
    gathered.last = 8  # the rest were no records
    written = gathered.write()
    assert (written.first, written.last, written.records) == (0, 8, 3)
    take_in(worker.table, LOG, written)
    assert [database.get(key) for key in (b"a", b"gone", b"kept")] == [b"2", None, b"before"]
    assert worker.table.persisted_offset(LOG) == 8
    assert (gathered.first, gathered.entries, gathered.bytes) == (9, {}, 0)
    assert [each.name for each in tmp_path.glob("*.part")] == []


async def test_no_tracer_makes_a_span_of_each_record_of_a_restore(tmp_path: Path) -> None:
    """The process is started with the environment of the worker, in which OpenTelemetry may wrap `getmany`."""

    async def getmany(**_: object) -> dict[Any, Any]:
        return {}

    @functools.wraps(getmany)
    async def trace(**_: object) -> dict[Any, Any]:
        pytest.fail("traced")

    async def position(_: object) -> int:
        return 3

    consumer = SimpleNamespace(assign=print, seek=print, pause=print, getmany=trace, position=position)
    told = list[Written]()
    part = ChangelogPart(topic="t", partition=0, first=0, end=3, folder=str(tmp_path), offset_key="offset")

    await changelog_files.write_files(consumer, [part], told.append)

    assert [each.last for each in told] == [2]


def test_a_request_and_an_answer_are_lines() -> None:
    part = ChangelogPart(topic="t", partition=1, first=2, end=3, folder="f", offset_key="__faust\0offset__")
    request = FilesRequest(connection={"bootstrap_servers": ["b:1"]}, parts=(part,))
    assert FilesRequest.decode(request.encode()) == request
    assert b"\n" not in request.encode()
    written = Written(topic="t", partition=1, first=2, last=3, records=4, file="f")
    assert Written.decode(written.encode().encode()) == written


def test_files_of_tls_go_to_the_process_and_a_context_of_the_app_does_not() -> None:
    class Tokens:
        async def token(self) -> str:
            return "t0k3n"

        def extensions(self) -> dict[str, str]:
            return {"logicalCluster": "lkc"}

    context = ssl.create_default_context()
    TLS_FILES[context] = Tls(ca=None, certificate=None, key=None)
    settings = {"bootstrap_servers": ["b:1"], "ssl_context": context, "sasl_oauth_token_provider": Tokens()}
    plain = asyncio.run(as_plain_data(settings))
    assert plain == {
        "bootstrap_servers": ["b:1"],
        "tls": {"ca": None, "certificate": None, "key": None},
        "token": {"value": "t0k3n", "extensions": {"logicalCluster": "lkc"}},
    }
    made = client_settings(plain)
    assert isinstance(made["ssl_context"], ssl.SSLContext)
    assert asyncio.run(made["sasl_oauth_token_provider"].token()) == "t0k3n"
    with pytest.raises(NotPlain, match="the app has made its TLS context itself"):
        asyncio.run(as_plain_data({"ssl_context": ssl.create_default_context()}))


def test_an_agent_does_not_take_the_process_for_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may outlive the worker for a moment."""
    monkeypatch.setenv("TRIMTAB_WORKER", "w0")
    monkeypatch.setenv("TRIMTAB_CLUSTER", "demo")

    async def names() -> dict[str, str]:
        async with bulk_restore._started(FilesRequest(connection={}, parts=())) as process:
            while not (found := psutil.Process(process.pid).environ()):  # the kernel is about to start it
                await asyncio.sleep(0.001)
            return found

    found = asyncio.run(names())
    assert found["TRIMTAB_CLUSTER"] == "demo"
    assert "TRIMTAB_WORKER" not in found


def test_where_memory_is_short_no_process_is_started(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel might end the worker for it."""
    monkeypatch.setattr(bulk_restore, "_free_memory", lambda: 200e6)
    missing = {LOG: Missing(worker.table, 0, END)}
    asyncio.run(bulk_restore.BulkRestore({}).run(missing, lambda *_: pytest.fail("a file"), lambda: missing))
    assert "1 changelogs are restored record by record: MemoryError('200 MB of memory are free" in caplog.text


def test_the_process_loads_no_faust() -> None:
    """It is started when somebody waits for it."""
    text = Path(changelog_files.__file__).read_text()
    assert Path(changelog_files.__file__).is_relative_to(ROOT)
    assert "import faust" not in text
    assert "from faust" not in text
    assert "engines.faust" not in text
