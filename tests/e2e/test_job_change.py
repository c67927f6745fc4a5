"""A job changed worker by worker under the real controller: operators named otherwise, another app id."""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from flights.readback import read_topic
from flights.watch import StatusWatch, read_snapshots
from tests.e2e.confirmed import ConfirmedProducer
from tests.paths import ROOT
from trimtab_controller.cli import main
from trimtab_controller.seen import Seen
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.status import AppStatus, Status
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = pytest.mark.timeout(1800)  # windows come late on a busy machine, and each change waits for some

LIMIT_S = 600.0
WORKERS = 2
PARTITIONS = 4
RATE = 60.0
"""Orders per second."""

Sums = dict[str, list[int]]
"""Customer or country -> number of orders, cents."""


class Orders:
    """Sends orders until it is ended, or the tests are, and knows what the sums must be."""

    def __init__(self, bootstrap: str) -> None:
        self.sums = no_sums()
        self._producer = ConfirmedProducer(bootstrap, lambda sent: add(self.sums, sent.value))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()
        self._producer.close()

    def _send(self) -> None:
        draw = random.Random(7)
        while not self._end.wait(1 / RATE):
            number, cents = draw.randrange(50), draw.randrange(1, 10_000)
            customer, country = f"customer-{number}", f"country-{number % 7}"
            order = {"customer": customer, "country": country, "cents": cents}
            self._producer.send("orders", json.dumps(order), customer)
            self._producer.poll()


def no_sums() -> dict[str, Sums]:
    """Sums by table."""
    return {"customers": defaultdict(lambda: [0, 0]), "countries": defaultdict(lambda: [0, 0])}


def add(sums: dict[str, Sums], value: str | bytes) -> None:
    order = json.loads(value)
    for each in (sums["customers"][order["customer"]], sums["countries"][order["country"]]):
        each[0] += 1
        each[1] += order["cents"]


def ordered(bootstrap: str) -> dict[str, Sums]:
    """What the tables must hold by the orders on the topic."""
    sums = no_sums()
    for row in read_topic(bootstrap, "orders"):
        assert row.value is not None
        add(sums, row.value)
    return sums


def changelog(bootstrap: str, table: str, app: str = "orders") -> tuple[Sums, int]:
    """What a table holds in the end, and how many of its records count less than one before of the same key."""
    found: Sums = {}
    back = 0
    for row in read_topic(bootstrap, f"{app}-{table}-changelog"):
        key, value = json.loads(row.key or b""), json.loads(row.value or b"")
        back += value[0] < found.get(key, value)[0]
        found[key] = value
    return found, back


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SandboxCluster]:
    settings = SandboxSettings(
        app="tests.e2e.job_change_app:app",
        app_folder=ROOT,
        workers=WORKERS,
        capacity_cores=0.5,
        environment={"PARTITIONS": str(PARTITIONS)},
        controller={"stream": {"window_s": 2.0, "watermark_s": 1.0}},
    )
    with SandboxCluster(settings, tmp_path / "sandbox") as started:
        yield started
    assert started.left_over().nothing


def said(reason: str | None) -> str | None:
    """What a worker says, without the names of the others."""
    return reason and reason.split(":")[0]


def upgrade(cluster: SandboxCluster, index: int, **environment: str) -> None:
    name = f"w{index}"
    assert cluster.stop(name) == 0
    cluster.environments[name] = environment
    cluster.start_worker(index)


def wait_for(cluster: SandboxCluster, watch: StatusWatch, what: str, condition: Callable[[Status], bool]) -> None:
    """Until the status is like this; no process may fail meanwhile."""
    deadline = time.monotonic() + LIMIT_S
    while (status := watch.poll()) is None or not condition(status):
        assert time.monotonic() < deadline, f"{what}: {status}"
        cluster.check()


def lack(app: AppStatus) -> str | None:
    """Why an app is not ready, in a word."""
    return app.not_ready and app.not_ready.split(":")[0]


NAMED = (2 * PARTITIONS, {"customers", "countries"})
UNNAMED = (PARTITIONS, {"all"})
"""The number of key groups of a version of the app, and its operators."""


class Job:
    """The job on a running cluster.  Its methods change it as its owners would, and wait until the status says so."""

    def __init__(self, cluster: SandboxCluster, watch: StatusWatch) -> None:
        self.cluster = cluster
        self.watch = watch
        self.bootstrap = cluster.broker.address
        self.wait = partial(wait_for, cluster, watch)

    def operators(self) -> set[str]:
        return {row.key_group.operator for row in read_snapshots(self.bootstrap, self.cluster.topics)[-1].key_groups}

    def is_steered(self, what: str, version: tuple[int, set[str]]) -> None:
        key_groups, names = version
        self.wait(what, lambda status: [(app.key_groups, app.not_ready) for app in status.apps] == [(key_groups, None)])
        self.wait(what, lambda status: [row.reason for row in status.nodes] == [None] * WORKERS)
        assert self.operators() == names

    def all_miss(self, topic: str) -> None:
        told = (True, f"the broker does not know these topics: {topic}")
        self.wait("both tell it", lambda status: [(r.steering, r.reason) for r in status.nodes] == [told] * WORKERS)

    def roll(self, environment: dict[str, str], version: tuple[int, set[str]]) -> None:
        """Upgrade one worker after the other to a version with other operators."""
        upgrade(self.cluster, 0, **environment)
        self.wait("half upgraded", lambda status: "operators_differ" in str([app.not_ready for app in status.apps]))
        self.wait("why both only report", lambda s: [said(row.reason) for row in s.nodes] == [WORKERS_DIFFER] * WORKERS)
        upgrade(self.cluster, 1, **environment)
        self.is_steered("all upgraded", version)

    def clone(self, environment: dict[str, str]) -> None:
        """Start the second worker under the first one's name for a while.  Its agent knows no such worker."""
        upgrade(self.cluster, 1, **environment, TRIMTAB_WORKER="w0")
        self.wait("both are seen", lambda status: [lack(app) for app in status.apps] == ["worker_not_steering"])
        rounds = len(self.watch.rounds)
        status = self.watch.poll()
        assert status is not None
        assert "several processes are called w0: each needs a name of its own" in str(status.apps[0].not_ready)
        self.wait("it is the decision", lambda status: status.decisions[-1].reason == "worker_not_steering")
        seen = Seen(status=self.watch.last or status, controllers=None, now=time.time())
        assert seen.runbook == "worker_not_steering"
        assert len(self.watch.rounds) == rounds, "nothing is planned meanwhile"

        assert self.cluster.stop("w1") == 0
        self.wait("one is left", lambda status: [lack(app) for app in status.apps] != ["worker_not_steering"])
        self.cluster.environments["w1"] = environment
        self.cluster.start_worker(1)
        self.wait("each has its own name", lambda status: [lack(app) for app in status.apps] == [None])
        self.wait("both are steered", lambda status: {r.worker for r in status.nodes if r.steering} == {"w0", "w1"})

    def become(self, app: str, environment: dict[str, str], key_groups: int) -> None:
        """Give the app another id: the old one works on until its last worker is started again with the new id."""

        def wait(what: str, wanted: dict[str, tuple[int | None, str | None]]) -> None:
            """Until the status has these apps: key groups, or the reason why they are not ready."""
            self.wait(what, lambda status: {r.app: (r.key_groups, lack(r)) for r in status.apps} == wanted)

        steered, gone = (key_groups, None), (None, "no_workers")
        for index, old in enumerate((steered, gone)):
            data = self.cluster.folder / f"w{index}" / app
            upgrade(self.cluster, index, **environment, APP_ID=app, APP_DATADIR=str(data))
            wait(f"w{index} has the new app", {"orders": old, app: steered})
        command = ["forget", "orders", "--reason", f"it is {app} now", "--config", str(self.cluster.controller_toml)]
        assert main(command) == 0
        wait("the old app is forgotten", {app: steered})


def test_a_job_whose_topic_is_missing_and_whose_operators_are_named_is_told_what_it_lacks(
    cluster: SandboxCluster,
) -> None:
    """And loses nothing."""
    cluster.start(act=True)
    bootstrap = cluster.broker.address
    with StatusWatch(bootstrap, cluster.topics) as watch:
        job = Job(cluster, watch)
        job.all_miss("orders")
        cluster.broker.create_topics([Topic(name="orders", partitions=PARTITIONS)])
        orders = Orders(bootstrap)
        job.is_steered("nothing is missing", UNNAMED)
        job.roll({"OPERATORS": "named"}, NAMED)

    orders.end()
    check_sums(bootstrap, orders, "orders")
    check_logs(cluster)


@pytest.mark.scenario
def test_a_host_is_cloned_and_the_app_gets_another_id(cluster: SandboxCluster) -> None:
    cluster.start([Topic(name="orders", partitions=PARTITIONS)], act=True)
    bootstrap = cluster.broker.address
    orders = Orders(bootstrap)
    named = {"OPERATORS": "named"}
    with StatusWatch(bootstrap, cluster.topics) as watch:
        job = Job(cluster, watch)
        job.is_steered("first placement", UNNAMED)
        job.roll(named, NAMED)
        job.clone(named)
        job.become("orders-2", named, NAMED[0])

    orders.end()
    check_sums(bootstrap, orders, "orders-2")
    assert changelog(bootstrap, "customers") == (committed(bootstrap, "orders", "orders", "customer"), 0)
    repartitioned = "per_country-orders-Order.country-repartition"
    assert changelog(bootstrap, "countries") == (committed(bootstrap, "orders", repartitioned, "country"), 0)
    check_logs(cluster)


def check_sums(bootstrap: str, orders: Orders, app: str) -> None:
    """Each order counts once in the tables of this app, sooner or later, and no sum has stepped back."""
    assert ordered(bootstrap) == orders.sums, "the topic has what was confirmed"
    wanted = {table: (sums, 0) for table, sums in orders.sums.items()}
    deadline = time.monotonic() + LIMIT_S
    while (found := {table: changelog(bootstrap, table, app) for table in wanted}) != wanted:
        off = {
            table: {key: (sums.get(key), rest.get(key)) for key in sums.keys() | rest if sums.get(key) != rest.get(key)}
            for table, ((sums, _), (rest, _)) in ((table, (found[table], wanted[table])) for table in wanted)
        }
        assert time.monotonic() < deadline, {"found and wanted": off, "back": [back for _, back in found.values()]}
        time.sleep(1.0)


def check_logs(cluster: SandboxCluster) -> None:
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
