"""Each window of each key and partition is closed once, by its owner, under moves there and back and a restart."""

import asyncio
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from rocksdict import AccessType, Options, Rdict

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.run_setup import APP, Setup
from tests.e2e.steering.scenarios import begin, hand_overs
from tests.e2e.steering.windows_app import WINDOWS, closed, expected
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes

OFFSET = b"__faust\0offset__"


async def rows_in_changelogs(broker: Broker, partitions: int) -> int:
    """Keys whose last record is no tombstone."""
    tps = [TopicPartition(f"{APP}-{table}-changelog", p) for table in WINDOWS for p in range(partitions)]
    async with AIOKafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as reader:
        reader.assign(tps)
        ends, last = await reader.end_offsets(tps), {}
        await reader.seek_to_beginning(*tps)
        while any([await reader.position(tp) < end for tp, end in ends.items()]):
            for tp, records in (await reader.getmany(timeout_ms=200)).items():
                last.update({(tp, record.key): record.value for record in records})
    return sum(value is not None for value in last.values())


def rows_on_disk(folder: Path) -> int:
    """Rows in the databases that have their whole changelog: of owners and standbys, not what nobody follows."""
    options, found = Options(raw_mode=True), defaultdict(list)
    for path in folder.glob("w*/**/*.db"):
        database = Rdict(str(path), options=options, access_type=AccessType.read_only())
        rows = sum(key != OFFSET for key in database.keys())  # noqa: SIM118
        found[path.name].append((int(database.get(OFFSET) or -1), rows))
        database.close()
    return sum(rows for copies in found.values() for offset, rows in copies if offset == max(copies)[0])


@pytest.mark.e2e
@pytest.mark.light
def test_each_window_is_closed_once_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time() // 10 * 10
    monkeypatch.setenv("WINDOWS_BEGAN", str(began))
    setup = Setup(
        program="tests.e2e.steering.windows_app",
        workers=2,
        partitions=4,
        rate=60.0,
        preload=0,
        features=(Feature.UNNAMED,),
    )

    async def play(broker: Broker) -> None:
        async with Cluster(setup, tmp_path / "run", broker) as cluster:
            await begin(cluster)
            moved, source, target = cluster.pick()
            assert await cluster.hand_over(moved, source, target)
            assert await cluster.hand_over(moved, target, source)
            again = worker(1)
            assert await cluster.terminate(again) == 0
            cluster.start(again)
            await cluster.settled()
            assert await hand_overs(cluster, 2) == 2
            await cluster.load.stop()
            await cluster.worked_off()
            sent = [(n, at, setup.source_partition(n)) for n, (_, at) in enumerate(cluster.load.sent)]
            windows = expected(sent, began)
            await until(lambda: len(closed(cluster.folder)) >= len(windows), 120.0, lambda: len(closed(cluster.folder)))
            await asyncio.sleep(1.5)  # whatever is closed twice

            found = closed(cluster.folder)
            assert {this: times for this, times in Counter(this for this, _ in found).items() if times != 1} == {}
            assert dict(found) == windows
            assert await rows_in_changelogs(broker, setup.partitions) == 0
        assert rows_on_disk(tmp_path / "run") == 0

    with Processes(tmp_path / "logs") as processes, Broker(tmp_path / "broker", processes) as broker:
        asyncio.run(play(broker))
