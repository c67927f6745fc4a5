import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trimtab_agent.configuration
import trimtab_controller.configuration
from trimtab_controller.security.keys import KeyFiles
from trimtab_protocol.messages.names import WorkerId
from trimtab_sandbox.configuration import (
    SandboxSettings,
    Table,
    agent_configuration,
    controller_configuration,
    shutdown_order,
    to_toml,
    worker_launch,
)

SETTINGS = SandboxSettings(
    app="shop.app:app",
    app_folder=Path("/apps"),
    cluster="c",
    workers=2,
    capacity_cores=(0.5, 0.25),
    environment={"DATABASE": "{data}/x", "ME": "{worker}:{web_port}@{broker}", "JSON": '{"a": {}}'},
    controller={"balance": {"load_distance": 3.0}, "execution": {"handovers_in_flight": 1}},
)
KEYS = KeyFiles(key=Path("/k/key"), trust=Path("/k/trust"))
LAUNCH = worker_launch(
    SETTINGS,
    1,
    python="py",
    bootstrap="127.0.0.1:9",
    web_port=7001,
    socket=Path("/s/h1.sock"),
    trust=KEYS.trust,
    data=Path("/d/w1"),
)


def test_a_worker_is_given_its_identity_its_broker_and_what_was_asked_for() -> None:
    assert LAUNCH.command == (
        *("py", "-m", "faust", "-A", "shop.app:app"),
        *("worker", "--without-web", "--web-port", "7001", "--loglevel", "info"),
    )
    assert LAUNCH.folder == Path("/apps")
    assert LAUNCH.environment == {
        "BROKER_URL": "kafka://127.0.0.1:9",
        "APP_DATADIR": "/d/w1",
        "PYTHONUNBUFFERED": "1",
        "TRIMTAB_CLUSTER": "c",
        "TRIMTAB_WORKER": "w1",
        "TRIMTAB_SOCKET": "/s/h1.sock",
        "TRIMTAB_TRUST": "/k/trust",
        "DATABASE": "/d/w1/x",
        "ME": "w1:7001@127.0.0.1:9",
        "JSON": '{"a": {}}',
    }


def test_the_agent_reads_what_is_written_for_it() -> None:
    table = agent_configuration(
        SETTINGS,
        1,
        bootstrap="127.0.0.1:9",
        metrics_port=7002,
        socket=Path("/s/h1.sock"),
        trust=KEYS.trust,
        state=Path("/d/h1"),
        launch=LAUNCH,
    )
    read = trimtab_agent.configuration.read_configuration(tomllib.loads(to_toml(table)))
    assert (read.cluster, read.host, read.interval_s, read.kafka.bootstrap_servers) == ("c", "h1", 1.0, "127.0.0.1:9")
    assert (read.socket, read.state_dir, read.trust) == (Path("/s/h1.sock"), Path("/d/h1"), KEYS.trust)
    worker = read.workers[WorkerId("w1")]
    assert (worker.capacity, worker.command, worker.data_dir) == (0.25, LAUNCH.command, Path("/d/w1"))
    assert (worker.environment, worker.app) == (LAUNCH.environment, None)
    assert read.metrics is not None
    assert read.metrics.port == 7002


def test_the_last_workers_are_the_pool() -> None:
    pooled = replace(SETTINGS, pool=1, app_id="shop")
    assert list(pooled.started) == [0]
    apps = []
    for index in range(2):
        places = {"bootstrap": "127.0.0.1:9", "socket": Path("/s"), "trust": KEYS.trust, "state": Path("/d")}
        table = agent_configuration(pooled, index, metrics_port=7002, launch=LAUNCH, **places)
        read = trimtab_agent.configuration.read_configuration(tomllib.loads(to_toml(table)))
        apps += [worker.app for worker in read.workers.values()]
    assert apps == [None, "shop"]


def test_the_controller_reads_what_is_written_for_it_with_what_was_replaced() -> None:
    table = controller_configuration(
        SETTINGS, bootstrap="127.0.0.1:9", metrics_port=7003, keys=KEYS, checkpoints=Path("/d/c")
    )
    read = trimtab_controller.configuration.decode(tomllib.loads(to_toml(table)))
    assert (read.cluster, read.kafka.bootstrap_servers, read.signing) == ("c", "127.0.0.1:9", KEYS)
    assert (read.stream.expected_hosts, read.stream.checkpoint_dir) == ({"h0", "h1"}, "/d/c")
    assert (read.balance.min_interval_s, read.balance.load_distance) == (10.0, 3.0)
    assert read.execution.handovers_in_flight == 1
    assert read.metrics is not None
    assert read.metrics.port == 7003


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"app": "shop"}, "app: found 'shop', expected module:attribute"),
        ({"workers": 0}, "workers: found 0, expected 1 to 64"),
        ({"capacity_cores": (0.5,)}, "capacity_cores: found 1 values for 4 workers"),
        ({"capacity_cores": 0.0}, "capacity_cores: found 0.0, expected a share of one core"),
        ({"pool": 4, "app_id": "shop"}, "pool: found 4 of app 'shop', expected fewer than all"),
        ({"pool": 1}, "pool: found 1 of app '', expected fewer than all, and an app's id"),
        ({"capacity_cores": 1.5}, "capacity_cores: found 1.5, expected a share of one core"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        SandboxSettings(**{"app": "a:b", "app_folder": Path(), **wrong})


def test_who_commands_ends_first_and_the_broker_last() -> None:
    names = ["broker", "broker-2", "h0", "w0", "h1", "w1", "controller", "controller-2", "console"]
    commanding, brokers = ["controller", "controller-2", "console"], ["broker", "broker-2"]
    assert shutdown_order(names) == [commanding, ["w0", "w1"], ["h0", "h1"], brokers]


def test_the_agent_of_a_pod_cannot_start_its_worker_and_no_pod_is_expected_by_name() -> None:
    pods = replace(SETTINGS, pods=True)
    agent = agent_configuration(
        pods, 1, bootstrap="127.0.0.1:9", metrics_port=1, socket=Path("/s"), trust=KEYS.trust, state=Path("/t"),
        launch=LAUNCH,
    )  # fmt: skip
    assert agent["workers"] == {"w1": {"capacity": 0.25, "data_dir": Path("/d/w1")}}
    controller = controller_configuration(
        pods, bootstrap="127.0.0.1:9", metrics_port=1, keys=KEYS, checkpoints=Path("/c")
    )
    stream = controller["stream"]
    assert isinstance(stream, dict)
    assert "expected_hosts" not in stream


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(TEXT, st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.lists(TEXT))
TABLES = st.recursive(
    st.dictionaries(TEXT, VALUES), lambda inner: st.dictionaries(TEXT, st.one_of(VALUES, inner)), max_leaves=10
)


@given(TABLES)
def test_what_is_written_is_read_back(table: Table) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_a_section_in_a_section_and_a_path() -> None:
    table: Table = {"agent": {"state_dir": Path("/a b"), "workers": {"w.0": {"capacity": 0.25}}}, "x": 1}
    assert to_toml(table) == '"x" = 1\n["agent"]\n"state_dir" = "/a b"\n["agent"."workers"]\n' + (
        '["agent"."workers"."w.0"]\n"capacity" = 0.25\n'
    )
