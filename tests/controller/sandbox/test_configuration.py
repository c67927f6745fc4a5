from pathlib import Path

import pytest

from trimtab_controller.sandbox.configuration import (
    SandboxSettings,
    agent_configuration,
    controller_configuration,
    in_order_of_end,
    worker_launch,
)

SETTINGS = SandboxSettings(
    app="shop.app:app",
    app_folder=Path("/apps"),
    cluster="c",
    workers=2,
    capacity_cores=(0.5, 0.25),
    environment={"DATABASE": "{data}/x", "ME": "{worker}:{web_port}@{broker}", "JSON": '{"a": {}}'},
    controller={"balance": {"load_distance": 3.0}, "execution": {"attempts": 1}},
)
LAUNCH = worker_launch(
    SETTINGS, 1, python="py", bootstrap="127.0.0.1:9", web_port=7001, socket=Path("/s/h1.sock"), data=Path("/d/w1")
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
        "DATABASE": "/d/w1/x",
        "ME": "w1:7001@127.0.0.1:9",
        "JSON": '{"a": {}}',
    }


def test_an_agent_knows_its_worker_and_how_to_start_it() -> None:
    assert agent_configuration(
        SETTINGS,
        1,
        bootstrap="127.0.0.1:9",
        metrics_port=7002,
        socket=Path("/s/h1.sock"),
        state=Path("/d/h1"),
        launch=LAUNCH,
    ) == {
        "agent": {
            "cluster": "c",
            "host": "h1",
            "interval_s": 1.0,
            "state_dir": Path("/d/h1"),
            "socket": Path("/s/h1.sock"),
        },
        "kafka": {"bootstrap_servers": "127.0.0.1:9"},
        "workers": {
            "w1": {
                "capacity": 0.25,
                "command": list(LAUNCH.command),
                "environment": LAUNCH.environment,
                "data_dir": Path("/d/w1"),
            }
        },
        "metrics": {"listen": "127.0.0.1:7002"},
    }


def test_the_controller_expects_every_host_and_takes_what_was_replaced() -> None:
    table = controller_configuration(SETTINGS, bootstrap="127.0.0.1:9", metrics_port=7003, checkpoints=Path("/d/c"))
    assert table["controller"] == {"cluster": "c"}
    assert table["stream"]["expected_hosts"] == ["h0", "h1"]
    assert table["stream"]["checkpoint_dir"] == Path("/d/c")
    assert table["balance"] == {"min_interval_s": 10.0, "load_distance": 3.0}
    assert table["execution"] == {"attempts": 1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"app": "shop"}, "app: found 'shop', expected module:attribute"),
        ({"workers": 0}, "workers: found 0, expected 1 to 64"),
        ({"capacity_cores": (0.5,)}, "capacity_cores: found 1 values for 4 workers"),
        ({"capacity_cores": 0.0}, "capacity_cores: found 0.0, expected a share of one core"),
        ({"capacity_cores": 1.5}, "capacity_cores: found 1.5, expected a share of one core"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        SandboxSettings(**{"app": "a:b", "app_folder": Path(), **wrong})


def test_who_commands_ends_first_and_the_broker_last() -> None:
    names = ["broker", "h0", "w0", "h1", "w1", "controller"]
    assert in_order_of_end(names) == [["controller"], ["w0", "w1"], ["h0", "h1"], ["broker"]]
