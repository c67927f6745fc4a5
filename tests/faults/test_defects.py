"""Two real workers with planted defects: what is recorded of them from a real broker betrays each defect."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from flights.dataset import read_flights
from flights.producer import FlightProducer
from flights.steered_run import topics_of_the_job
from flights.wire import APP, DELAYS, SOURCE
from tests.faults.recorded.check import check
from tests.faults.recorded.dump import dump
from tests.faults.recorded.history import read_history
from tests.faults.recorded.verdict import Bounds, Broken
from tests.paths import EXAMPLES, ROOT
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import SandboxSettings

KEY_GROUPS = 4
ELSEWHERE = "flights-elsewhere"
RATE = 100.0
FLIGHTS = 1200
LIMIT_S = 120.0


@pytest.mark.e2e
def test_the_defects_of_running_workers_are_found(tmp_path: Path) -> None:
    settings = SandboxSettings(
        app="tests.faults.recorded.defective:app",
        app_folder=ROOT,
        cluster="faults",
        workers=2,
        environment={
            **FLIGHTS_ENVIRONMENT,
            "PYTHONPATH": str(EXAMPLES),
            "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS),
            "FLIGHTS_ELSEWHERE": ELSEWHERE,
            "FLIGHTS_SESSION_S": "10",
        },
    )
    with SandboxCluster(settings, tmp_path / "sandbox") as cluster:
        cluster.start_broker()
        cluster.broker.create_topics([*topics_of_the_job(KEY_GROUPS), Topic(name=ELSEWHERE, partitions=KEY_GROUPS)])
        for index in range(settings.workers):
            cluster.start_worker(index)
        await_members(cluster, settings.workers)  # with one owner of all nothing can be written that is another's
        process(cluster)
        dump(cluster.broker.address, settings.cluster, tmp_path / "history")

    verdict = check(read_history(settings.cluster, tmp_path / "history"), Bounds(commit_s=1.0, session_s=10.0))

    assert {violation.broken for violation in verdict.violations} >= {
        Broken.LOST,
        Broken.REPEATED,
        Broken.TWO_OWNERS,
        Broken.STALE_STATE,
        Broken.COMMIT_AHEAD,
        Broken.WRONG_SUM,
    }


def await_members(cluster: SandboxCluster, wanted: int) -> None:
    """Wait until so many workers share the key groups."""
    admin = AdminClient({"bootstrap.servers": cluster.broker.address})
    deadline = time.monotonic() + LIMIT_S
    while not share_key_groups(admin, wanted):
        assert time.monotonic() < deadline, f"not all of {wanted} workers are in the group"
        cluster.check()
        time.sleep(0.5)


def share_key_groups(admin: AdminClient, wanted: int) -> bool:
    """Whether the group has so many members, and has agreed."""
    try:
        group = admin.describe_consumer_groups([APP], request_timeout=5)[APP].result()
    except KafkaException:
        return False  # a fresh broker has no coordinator yet
    return group.state is ConsumerGroupState.STABLE and len(group.members) == wanted


def process(cluster: SandboxCluster) -> None:
    """Send flights and wait until the workers have done with them whatever they do."""
    bootstrap = cluster.broker.address
    flights = list(read_flights(limit=FLIGHTS))
    # As a member of the group by name alone: it asks what is committed and never joins.
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": APP})
    places = [TopicPartition(topic, partition) for topic in (SOURCE, DELAYS) for partition in range(KEY_GROUPS)]
    deadline = time.monotonic() + LIMIT_S
    with closing(group), FlightProducer(bootstrap, flights, key_groups=KEY_GROUPS, rate=RATE) as producer:
        while not producer.finished or behind(group, places) > 0:
            assert time.monotonic() < deadline, "the workers are not done"
            cluster.check()
            time.sleep(0.5)
        producer.stop()


def behind(group: Consumer, places: list[TopicPartition]) -> int:
    """Records that are not committed."""
    committed = {(row.topic, row.partition): row.offset for row in group.committed(places, timeout=10)}
    ends = {(row.topic, row.partition): group.get_watermark_offsets(row, timeout=10)[1] for row in places}
    return sum(max(0, end - max(0, committed[place])) for place, end in ends.items())
