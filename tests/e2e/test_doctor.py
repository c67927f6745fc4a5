"""`trimtab doctor` on a real cluster: nothing to say while it is healthy, and the right fault for what is broken.

The console is looked at beside the same cluster.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from flights.wire import APP
from tests.e2e.console_pages import check_pages
from tests.e2e.played_cluster import PROGRAM
from tests.waiting import wait_for
from trimtab_protocol.messages.names import Topics
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import SandboxSettings

HOSTS, POOL = 2, 1
START_LIMIT_S = 120.0

Findings = dict[str, list[tuple[str, str]]]
"""Check -> (level, text) of what was found."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCluster]:
    settings = SandboxSettings(
        app="flights.app:app", app_folder=EXAMPLES, workers=HOSTS, pool=POOL, app_id=APP,
        environment=dict(FLIGHTS_ENVIRONMENT),
    )  # fmt: skip
    with SandboxCluster(settings, tmp_path_factory.mktemp("doctor") / "sandbox") as made:
        made.start(
            [
                Topic(name="flights", partitions=64),
                Topic(name="flights-delays", partitions=64),
                Topic(name="flights-totals", partitions=4),
            ],
            act=True,
        )
        deadline = time.monotonic() + START_LIMIT_S
        while {"ok"} != {level for check in ("agents", "leader") for level, _ in doctor(made)[1][check]}:
            made.check()
            assert time.monotonic() < deadline, doctor(made)
            time.sleep(1.0)  # the cluster needs the CPU to start
        yield made


def doctor(cluster: SandboxCluster, path: Path | None = None, **environment: str) -> tuple[int, Findings]:
    command = [*PROGRAM, "doctor", "--json", "--config", str(path or cluster.controller_toml)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, check=False
    )
    assert done.stderr == ""
    found: Findings = {}
    for row in json.loads(done.stdout)["findings"]:
        assert row["remedy"] or row["level"] not in ("warning", "fault"), row
        found.setdefault(row["check"], []).append((row["level"], row["text"]))
    return done.returncode, found


def faults(found: Findings) -> dict[str, list[str]]:
    rows = {check: [text for level, text in told if level == "fault"] for check, told in found.items()}
    return {check: texts for check, texts in rows.items() if texts}


def alter(cluster: SandboxCluster, topic: str, settings: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.broker.address})
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)


def unwell(found: Findings) -> Findings:
    return {check: told for check, told in found.items() if any(level != "ok" for level, _ in told)}


def test_a_healthy_cluster_is_all_right(cluster: SandboxCluster) -> None:
    code, found = doctor(cluster)
    deadline = time.monotonic() + START_LIMIT_S
    while unwell(found) and time.monotonic() < deadline:  # on a busy machine a report may just be late
        code, found = doctor(cluster)
    assert unwell(found) == {}
    assert code == 0
    assert list(found) == [
        "configuration", "java", "jars", "broker", "rights", "topics", "clocks", "agents", "changelogs", "signing",
        "checkpoint", "metrics", "leader",
    ]  # fmt: skip
    text = "this client may do everything: the brokers have no authorizer, or it is a super user"
    assert found["rights"] == [("ok", text)]
    assert found["agents"][0][1].startswith("2 hosts report")


@pytest.mark.timeout(1500)
def test_the_console_shows_it_in_a_browser(cluster: SandboxCluster) -> None:
    """Here because the cluster is up."""
    check_pages(cluster)


def test_a_broker_that_is_not_there_leaves_the_rest_unchecked(cluster: SandboxCluster, tmp_path: Path) -> None:
    path = tmp_path / "controller.toml"
    path.write_text(cluster.controller_toml.read_text().replace(cluster.broker.address, "127.0.0.1:9"))
    code, found = doctor(cluster, path)
    assert (code, set(faults(found))) == (1, {"broker"}), found
    assert "127.0.0.1:9 (Connection refused)" in found["broker"][0][1]
    unseen = {check for check, told in found.items() if [level for level, _ in told] == ["not checked"]}
    assert unseen == {"rights", "topics", "clocks", "agents", "changelogs", "leader"}


def test_topics_that_are_wrong_or_missing(cluster: SandboxCluster) -> None:
    """The last test: what it breaks stays broken."""
    topics = Topics(cluster.settings.cluster)
    alter(cluster, topics.journal, {"cleanup.policy": "delete"})
    admin = AdminClient({"bootstrap.servers": cluster.broker.address})
    changelog = min(name for name in admin.list_topics(timeout=10).topics if name.endswith("-changelog"))
    alter(cluster, changelog, {"cleanup.policy": "delete"})
    admin.delete_topics([topics.intents])[topics.intents].result(30)
    wait_for(lambda: topics.intents not in admin.list_topics(timeout=10).topics, "the topic is deleted")
    code, found = doctor(cluster)
    told: Any = faults(found)
    assert (code, set(told)) == (1, {"topics", "changelogs"}), found
    [text] = told["changelogs"]
    assert text.startswith(f"{changelog}: cleanup.policy is delete: values older than its retention are deleted")
    assert told["topics"][0] == f"missing: {topics.intents}"
    assert told["topics"][1:] == [f"{topics.journal}: cleanup.policy is delete, expected compact"]
