"""Whoever starts first on an empty Kafka waits and says so; in the end the topics and their settings are the same."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from flights.watch import StatusWatch
from tests.paths import ROOT
from tests.waiting import wait_for
from trimtab_protocol.messages.names import topic_settings
from trimtab_protocol.messages.report import WorkerState
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.configuration import BROKER, CONSOLE, CONTROLLER, SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]

LIMIT_S = 180.0
PARTITIONS = 4
AGENT, WORKER = "h0", "w0"
WITHOUT_BROKER = {
    AGENT: "broker away",
    CONTROLLER: "does not answer",
    CONSOLE: "cannot read the topics",
    WORKER: "waiting for Kafka",
}
"""What each says while there is no broker."""
WITHOUT_TOPICS = {CONSOLE: "no topic", WORKER: "missing topics"}
"""And while there is a broker without topics of Trimtab's.  An agent says so only if it has met no trouble before."""
ORDERS = (
    (BROKER, CONTROLLER, AGENT, WORKER, CONSOLE),
    (AGENT, WORKER, BROKER, CONSOLE, CONTROLLER),
    (WORKER, AGENT, BROKER, CONTROLLER, CONSOLE),
    (CONSOLE, CONTROLLER, WORKER, AGENT, BROKER),
    (CONTROLLER, BROKER, CONSOLE, AGENT, WORKER),
)


def until(holds: Callable[[], object], what: str, cluster: SandboxCluster) -> None:
    def running() -> object:
        cluster.check()
        return holds()

    wait_for(running, what)


def start(cluster: SandboxCluster, name: str) -> None:
    if name == BROKER:
        cluster.broker.start()
        cluster._children[BROKER] = cluster.broker.process
        cluster.broker.create_topics([Topic(name="jobs", partitions=PARTITIONS)])
    elif name == AGENT:
        cluster.start_agent(0)
    elif name == WORKER:
        cluster.start_worker(0)
    elif name == CONTROLLER:
        cluster.start_controller(act=True)
    else:
        cluster.start_console()


def told(cluster: SandboxCluster, waits_for: Mapping[str, str], names: list[str]) -> bool:
    logs = {name: (cluster.logs / f"{name}.log").read_text(encoding="utf-8") for name in names if name in waits_for}
    return all(waits_for[name] in log for name, log in logs.items())


def settings_of(broker: Broker, names: list[str]) -> dict[str, tuple[int, dict[str, str]]]:
    admin = AdminClient({"bootstrap.servers": broker.address})
    topics = admin.list_topics(timeout=30).topics
    asked = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name) for name in names])
    return {
        resource.name: (
            len(topics[resource.name].partitions),
            {key: entry.value for key, entry in answer.result(30).items()},
        )
        for resource, answer in asked.items()
    }


@pytest.mark.parametrize("makes_topics", ["true", "false"])
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_whoever_starts_first_nobody_ends_and_the_topics_are_the_same(
    tmp_path: Path, order: tuple[str, ...], makes_topics: str
) -> None:
    settings = SandboxSettings(
        app="tests.e2e.paced_app:app",
        app_folder=ROOT,
        cluster="first",
        workers=1,
        capacity_cores=0.5,
        environment={"PARTITIONS": str(PARTITIONS), "BURN_S": "0.001"},
    )
    with SandboxCluster(settings, tmp_path / "cluster") as cluster:
        defaults = {"auto.create.topics.enable": makes_topics}
        cluster.broker = Broker(tmp_path / "broker", cluster.processes, settings=defaults)
        cluster.broker.start()  # it gets its ports, and stays empty
        cluster.broker.stop()
        begun: list[str] = []
        for name in order:
            start(cluster, name)
            begun.append(name)
            if CONTROLLER not in begun or BROKER not in begun:
                waits_for = WITHOUT_BROKER if BROKER not in begun else WITHOUT_TOPICS
                until(functools.partial(told, cluster, waits_for, begun), f"{begun} say what they wait for", cluster)
        with StatusWatch(cluster.broker.address, cluster.topics) as watch:
            until(
                lambda: (
                    (status := watch.poll()) is not None
                    and [(row.state, row.key_groups) for row in status.nodes] == [(WorkerState.RUNNING, PARTITIONS)]
                    and status.nodes[0].backlog == 0
                ),
                "the worker runs, and its backlog is known",
                cluster,
            )
        wanted = {each.name: each for each in topic_settings(cluster.topics)}
        del wanted[cluster.topics.keys]  # made when hosts get keys
        present = AdminClient({"bootstrap.servers": cluster.broker.address}).list_topics(timeout=30).topics
        assert {name for name in present if name.startswith("trimtab.")} == wanted.keys()
        for name, (partitions, found) in settings_of(cluster.broker, list(wanted)).items():
            assert partitions == wanted[name].partitions
            assert wanted[name].configuration.items() <= found.items()
        assert cluster.child(CONSOLE).alive
