"""A job that names its operators differently, upgraded worker by worker and back, under the real controller."""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from flights.watch import StatusWatch, read_snapshots
from tests.paths import ROOT
from trimtab_protocol.messages.status import Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import Cluster
from trimtab_sandbox.configuration import SandboxSettings

LIMIT_S = 90.0
WORKERS = 2
PARTITIONS = 4
RATE = 60.0
"""Orders per second."""

Sums = dict[str, list[int]]
"""Customer or country -> number of orders, cents."""


class Orders:
    """Sends orders until it is ended, and knows what the sums must be."""

    def __init__(self, bootstrap: str) -> None:
        self.customers: Sums = defaultdict(lambda: [0, 0])
        self.countries: Sums = defaultdict(lambda: [0, 0])
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _send(self) -> None:
        draw = random.Random(7)
        while not self._end.wait(1 / RATE):
            number, cents = draw.randrange(50), draw.randrange(1, 10_000)
            customer, country = f"customer-{number}", f"country-{number % 7}"
            order = {"customer": customer, "country": country, "cents": cents}
            self._producer.produce("orders", json.dumps(order).encode(), customer.encode())
            self._producer.poll(0)
            for sums in (self.customers[customer], self.countries[country]):
                sums[0] += 1
                sums[1] += cents


def changelog(bootstrap: str, table: str) -> tuple[Sums, int]:
    """What a table holds in the end, and how many of its records count less than one before of the same key."""
    topic = f"orders-{table}-changelog"
    options = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: Sums = {}
    back = ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(1000, 0.5):
            if message.error():
                ended += 1
                continue
            key, value = json.loads(message.key()), json.loads(message.value())
            back += value[0] < found.get(key, value)[0]
            found[key] = value
    consumer.close()
    return found, back


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = SandboxSettings(
        app="tests.e2e.job_change_app:app",
        app_folder=ROOT,
        workers=WORKERS,
        capacity_cores=0.5,
        environment={"PARTITIONS": str(PARTITIONS)},
        controller={"stream": {"window_s": 2.0, "watermark_s": 1.0}},
    )
    with Cluster(settings, tmp_path / "sandbox") as started:
        yield started
    assert started.left_over().nothing


def upgrade(cluster: Cluster, index: int, operators: str) -> None:
    name = f"w{index}"
    assert cluster.stop(name) == 0
    cluster.environments[name] = {"OPERATORS": operators}
    cluster.start_worker(index)


def test_operators_that_are_named_in_a_rolling_upgrade_and_back(cluster: Cluster) -> None:
    cluster.start([Topic(name="orders", partitions=PARTITIONS)], act=True)
    bootstrap = cluster.broker.address
    orders = Orders(bootstrap)
    with StatusWatch(bootstrap, cluster.topics) as watch:

        def wait(what: str, condition: Callable[[Status], bool]) -> None:
            deadline = time.monotonic() + LIMIT_S
            while (status := watch.poll()) is None or not condition(status):
                assert time.monotonic() < deadline, f"{what}: {status}"
                cluster.check()

        def settled(key_groups: int) -> Callable[[Status], bool]:
            return lambda status: [(app.key_groups, app.not_ready) for app in status.apps] == [(key_groups, None)]

        def operators() -> set[str]:
            return {row.key_group.operator for row in read_snapshots(bootstrap, cluster.topics)[-1].key_groups}

        wait("first placement", settled(PARTITIONS))
        assert operators() == {"all"}
        for version, key_groups, names in (
            ("named", 2 * PARTITIONS, {"customers", "countries"}),
            ("unnamed", PARTITIONS, {"all"}),
        ):
            upgrade(cluster, 0, version)
            wait("half upgraded", lambda status: "operators_differ" in str([app.not_ready for app in status.apps]))
            upgrade(cluster, 1, version)
            wait(f"all {version}", settled(key_groups))
            assert operators() == names

    orders.end()
    wanted = {"customers": orders.customers, "countries": orders.countries}
    deadline = time.monotonic() + LIMIT_S
    while (found := {table: changelog(bootstrap, table) for table in wanted}) != {t: (s, 0) for t, s in wanted.items()}:
        assert time.monotonic() < deadline, found
        time.sleep(1.0)
    for name in ("w0", "w1", "h0", "h1", "controller"):
        log = (cluster.logs / f"{name}.log").read_text()
        assert "Traceback" not in log, name
