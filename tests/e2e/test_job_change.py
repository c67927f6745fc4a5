"""A job changed worker by worker under the real controller: operators named otherwise and back, another app id."""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from flights.readback import read_topic
from flights.watch import StatusWatch, read_snapshots
from tests.paths import ROOT
from trimtab_controller.cli import main
from trimtab_controller.cli.status_view import Seen
from trimtab_protocol.messages.status import AppStatus, Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import Cluster
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = pytest.mark.timeout(600)  # windows come late on a busy machine, and each change waits for some

LIMIT_S = 240.0
WORKERS = 2
PARTITIONS = 4
RATE = 60.0
"""Orders per second."""

DIFFER = "workers differ in their topics, tables or operators"

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


def changelog(bootstrap: str, table: str, app: str = "orders") -> tuple[Sums, int]:
    """What a table holds in the end, and how many of its records count less than one before of the same key."""
    topic = f"{app}-{table}-changelog"
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


def said(reason: str | None) -> str | None:
    """What a worker says, without the names of the others."""
    return reason and reason.split(":")[0]


def upgrade(cluster: Cluster, index: int, **environment: str) -> None:
    name = f"w{index}"
    assert cluster.stop(name) == 0
    cluster.environments[name] = environment
    cluster.start_worker(index)


def wait_for(cluster: Cluster, watch: StatusWatch, what: str, condition: Callable[[Status], bool]) -> None:
    """Until the status is like this; no process may fail meanwhile."""
    deadline = time.monotonic() + LIMIT_S
    while (status := watch.poll()) is None or not condition(status):
        assert time.monotonic() < deadline, f"{what}: {status}"
        cluster.check()


def lack(app: AppStatus) -> str | None:
    """Why an app is not ready, in a word."""
    return app.not_ready and app.not_ready.split(":")[0]


ROLLED = (("named", 2 * PARTITIONS, {"customers", "countries"}), ("unnamed", PARTITIONS, {"all"}))
"""Version of the app, and then the number of its key groups and its operators."""


@pytest.mark.parametrize(
    "versions",
    [pytest.param(ROLLED[:1], id="to named"), pytest.param(ROLLED, id="and back", marks=pytest.mark.scenario)],
)
def test_operators_that_are_named_in_a_rolling_upgrade(
    cluster: Cluster, versions: Sequence[tuple[str, int, set[str]]]
) -> None:
    cluster.start([Topic(name="orders", partitions=PARTITIONS)], act=True)
    bootstrap = cluster.broker.address
    orders = Orders(bootstrap)
    with StatusWatch(bootstrap, cluster.topics) as watch:
        wait = partial(wait_for, cluster, watch)

        def settled(key_groups: int) -> Callable[[Status], bool]:
            return lambda status: [(app.key_groups, app.not_ready) for app in status.apps] == [(key_groups, None)]

        def operators() -> set[str]:
            return {row.key_group.operator for row in read_snapshots(bootstrap, cluster.topics)[-1].key_groups}

        wait("first placement", settled(PARTITIONS))
        assert operators() == {"all"}
        for version, key_groups, names in versions:
            upgrade(cluster, 0, OPERATORS=version)
            wait("half upgraded", lambda status: "operators_differ" in str([app.not_ready for app in status.apps]))
            wait("why both only report", lambda status: [said(row.reason) for row in status.nodes] == [DIFFER, DIFFER])
            upgrade(cluster, 1, OPERATORS=version)
            wait(f"all {version}", settled(key_groups))
            wait("nothing to say", lambda status: [row.reason for row in status.nodes] == [None, None])
            assert operators() == names

    orders.end()
    check_sums(bootstrap, orders, "orders")
    check_logs(cluster)


def check_sums(bootstrap: str, orders: Orders, app: str) -> None:
    """Each order counts once in the tables of this app, sooner or later, and no sum has stepped back."""
    wanted = {"customers": (orders.customers, 0), "countries": (orders.countries, 0)}
    deadline = time.monotonic() + LIMIT_S
    while (found := {table: changelog(bootstrap, table, app) for table in wanted}) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(1.0)


def check_logs(cluster: Cluster) -> None:
    for name in ("w0", "w1", "h0", "h1", "controller"):
        log = (cluster.logs / f"{name}.log").read_text()
        assert "Traceback" not in log, name


def committed(bootstrap: str, group: str, topic: str, field: str) -> Sums:
    """What the inputs sum up to that a group has committed."""
    places = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [answer] = admin.list_consumer_group_offsets([places]).values()
    upto = {row.partition: row.offset for row in answer.result(30.0).topic_partitions}
    sums: Sums = defaultdict(lambda: [0, 0])
    for record in read_topic(bootstrap, topic):
        if record.offset < upto[record.partition]:
            order = json.loads(record.value or b"")
            sums[order[field]][0] += 1
            sums[order[field]][1] += order["cents"]
    return sums


def test_another_app_id_is_another_app_and_the_old_one_is_not_waited_for(cluster: Cluster) -> None:
    """As the README has it: the old app works on until its last worker is started again with the new id."""
    cluster.start([Topic(name="orders", partitions=PARTITIONS)], act=True)
    bootstrap, steered, gone = cluster.broker.address, (PARTITIONS, None), (None, "no_workers")
    orders = Orders(bootstrap)
    with StatusWatch(bootstrap, cluster.topics) as watch:

        def wait(what: str, wanted: dict[str, tuple[int | None, str | None]]) -> None:
            """Until the status has these apps: key groups, or the reason why they are not ready."""
            wait_for(
                cluster, watch, what, lambda status: {r.app: (r.key_groups, lack(r)) for r in status.apps} == wanted
            )

        wait("first placement", {"orders": steered})
        for index, old in enumerate((steered, gone)):
            data = cluster.folder / f"w{index}" / "orders-2"
            upgrade(cluster, index, APP_ID="orders-2", APP_DATADIR=str(data))
            wait(f"w{index} has the new app", {"orders": old, "orders-2": steered})
        command = ["forget", "orders", "--reason", "it is orders-2 now", "--config", str(cluster.controller_toml)]
        assert main(command) == 0
        wait("the old app is forgotten", {"orders-2": steered})

    orders.end()
    check_sums(bootstrap, orders, "orders-2")
    assert changelog(bootstrap, "customers") == (committed(bootstrap, "orders", "orders", "customer"), 0)
    repartitioned = "per_country-orders-Order.country-repartition"
    assert changelog(bootstrap, "countries") == (committed(bootstrap, "orders", repartitioned, "country"), 0)
    check_logs(cluster)


def test_two_workers_of_one_name_on_two_hosts_are_named_until_one_is_stopped(cluster: Cluster) -> None:
    """As when a host was cloned: its worker starts under the other one's name, and its agent does not know better."""
    cluster.start([Topic(name="orders", partitions=PARTITIONS)], act=True)
    bootstrap = cluster.broker.address
    orders = Orders(bootstrap)
    with StatusWatch(bootstrap, cluster.topics) as watch:
        wait = partial(wait_for, cluster, watch)

        def lacks(reason: str | None) -> Callable[[Status], bool]:
            return lambda status: [lack(app) for app in status.apps] == [reason]

        wait("first placement", lacks(None))
        upgrade(cluster, 1, TRIMTAB_WORKER="w0")
        wait("both are seen", lacks("worker_twice"))
        status = watch.poll()
        assert status is not None
        assert [app.not_ready for app in status.apps] == [
            "worker_twice: workers that run on several hosts under one name: w0 (h0, h1)"
        ]
        wait("it is the decision", lambda status: status.decisions[-1].reason == "worker_twice")
        assert Seen(status=watch.last or status, controllers=None, now=time.time()).runbook == "worker_twice"
        assert watch.rounds == {}, "nothing is planned meanwhile"

        assert cluster.stop("w1") == 0
        wait("one is left", lambda status: [lack(app) for app in status.apps] != ["worker_twice"])
        cluster.environments["w1"] = {}
        cluster.start_worker(1)
        wait("each has its own name", lacks(None))
        wait("both are steered", lambda status: {r.worker for r in status.nodes if r.steering} == {"w0", "w1"})

    orders.end()
    check_sums(bootstrap, orders, "orders")
    check_logs(cluster)


def test_a_topic_that_is_missing_is_told_though_the_workers_run(cluster: Cluster) -> None:
    cluster.start(act=True)
    bootstrap = cluster.broker.address
    with StatusWatch(bootstrap, cluster.topics) as watch:
        wait = partial(wait_for, cluster, watch)

        def all_say(reason: str | None) -> Callable[[Status], bool]:
            return lambda status: [(row.steering, row.reason) for row in status.nodes] == [(True, reason)] * WORKERS

        wait("both tell it", all_say("the broker does not know these topics: orders"))
        cluster.broker.create_topics([Topic(name="orders", partitions=PARTITIONS)])
        orders = Orders(bootstrap)
        wait("nothing is missing", all_say(None))
        wait(
            "the app is steered", lambda status: [(a.key_groups, lack(a)) for a in status.apps] == [(PARTITIONS, None)]
        )

    orders.end()
    check_sums(bootstrap, orders, "orders")
