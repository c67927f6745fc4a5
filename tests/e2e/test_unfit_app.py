"""A job that Trimtab cannot steer, and whose standbys Faust keeps: they have all of their changelogs."""

import json
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from rocksdict import AccessType, Options, Rdict

from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

pytestmark = pytest.mark.light
PARTITIONS, KEYS = 4, 4_000
LIMIT_S = 120.0
OFFSET = b"__faust\0offset__"
"""The key under which Faust keeps the offset of the last record that it has applied."""


def create(broker: Broker, name: str) -> None:
    """The topics of the job, and a changelog of KEYS records in each partition."""
    changelog = f"{name}-counts-changelog"
    broker.create_topics(
        [
            Topic(name=f"{name}-events", partitions=PARTITIONS),
            Topic(name=f"{name}-others", partitions=PARTITIONS - 1),
            Topic(name=changelog, partitions=PARTITIONS, settings={"cleanup.policy": "compact"}),
        ]
    )
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50})
    for number in range(KEYS):
        for partition in range(PARTITIONS):
            producer.produce(changelog, b"1", json.dumps(f"{partition}-{number}").encode(), partition)
        producer.poll(0)
    assert producer.flush(30.0) == 0


def start(processes: Processes, broker: Broker, name: str, worker: str, folder: Path) -> Child:
    command = ["-m", "faust", "-A", "tests.e2e.unfit_app:app", "worker", "--without-web", "--loglevel", "info"]
    environment = {
        "UNFIT_NAME": name,
        "UNFIT_BROKER": f"kafka://{broker.address}",
        "UNFIT_DATA": str(folder / worker),
        "TRIMTAB_CLUSTER": name,
        "TRIMTAB_WORKER": worker,
    }
    return processes.start(worker, [sys.executable, *command], environment=environment)


def wait_for(child: Child, words: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while words not in child.log.read_text():
        if not child.alive or time.monotonic() > deadline:
            pytest.fail(f"no {words!r}:\n{child.log.read_text()[-3000:]}")
        time.sleep(0.2)


def stored(folder: Path, partition: int) -> tuple[int, int]:
    """The offset of the last changelog record that a worker has applied to a partition, and the number of its keys."""
    path = folder / "v1" / "tables" / f"counts-{partition}.db"
    database = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    keys = [key for key in database.keys() if not key.startswith(b"__faust")]  # noqa: SIM118
    offset = int(database[OFFSET])
    database.close()
    return offset, len(keys)


def test_a_standby_of_faust_lacks_no_record_of_its_changelog(broker: Broker, unique: str, tmp_path: Path) -> None:
    create(broker, unique)
    with Processes(tmp_path / "logs") as processes:
        first = start(processes, broker, unique, "w0", tmp_path)
        wait_for(first, "Worker ready")
        second = start(processes, broker, unique, "w1", tmp_path)
        wait_for(second, "standbys: 2, lacking 0")
        assert "not steered: operator 'all': partition counts differ" in second.log.read_text()
        for child in (first, second):
            child.stop()

    for worker in ("w0", "w1"):
        found = [stored(tmp_path / worker, partition) for partition in range(PARTITIONS)]
        assert found == [(KEYS - 1, KEYS)] * PARTITIONS, f"{worker}: {found}"
