"""The stream's process: its settings, its session, its start and end."""

import logging
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trimtab_controller.jars.fetching import JarError
from trimtab_controller.jars.java import JavaMissingError
from trimtab_controller.stream import __main__ as stream
from trimtab_controller.stream import driver
from trimtab_controller.stream.configuration import StreamConfiguration, StreamSettings, load
from trimtab_controller.stream.outlet import Turns
from trimtab_controller.stream.session import keys_at_start
from trimtab_controller.stream.signatures import Refused, Verdict
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.codec import CONFIGURATION, converted
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.settings.kafka import KafkaSettings


@pytest.mark.parametrize("fault", [JarError("no network"), JavaMissingError("no Java")])
def test_jars_or_a_java_that_cannot_be_had_end_it_with_their_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, fault: Exception
) -> None:
    path = tmp_path / "controller.toml"
    path.write_text(
        f'[controller]\ncluster = "c"\n[kafka]\nbootstrap_servers = "127.0.0.1:9"\n'
        f'[stream]\ncheckpoint_dir = "{tmp_path}"\n'
    )

    def run(*_: object) -> None:
        raise fault

    monkeypatch.setattr(driver, "run", run)
    monkeypatch.setattr(stream, "_stop_signals", threading.Event)
    monkeypatch.setattr(sys, "argv", ["stream", "--config", str(path)])
    assert stream.main() == 1
    assert [(row.levelno, row.getMessage()) for row in caplog.records] == [
        (logging.ERROR, f"Spark does not run: {fault}")
    ]


def test_it_follows_what_the_controller_tells_also_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(told=True, silent_ms=1000)
    heard = []
    monkeypatch.setattr(turns, "lead", lambda: heard.append("lead"))
    monkeypatch.setattr(turns, "stand_by", lambda: heard.append("stand by"))
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "wb", buffering=0) as controller:
        monkeypatch.setattr(sys, "stdin", stdin)
        listening = threading.Thread(target=stream._listen, args=(turns,))
        listening.start()
        for piece in (b"le", b"ad\nstand-by\nof another version\nle", b"ad\n"):
            controller.write(piece)
        controller.close()
        listening.join(60)
    assert heard == ["lead", "stand by", "lead"]


def test_discarded_reports_are_told_with_the_hosts_that_are_known(caplog: pytest.LogCaptureFixture) -> None:
    def refused(fault: Fault, start_ms: int, host: str | None) -> Refused:
        return Refused(host=host, fault=fault, start_ms=start_ms, reports=3, last_ms=start_ms, key=None)

    flood = [refused(Fault.FLOODING, at, "h1") for at in (0, 5000)]
    driver._tell(Verdict(refused=(*flood, refused(Fault.UNKNOWN_KEY, 0, None))))

    assert caplog.messages == [
        "discarded unread, flooding: 6 reports of 'h1'",
        "discarded unread, unknown_key: 3 reports",
    ]


def test_a_clock_that_is_set_back_ends_the_query_that_has_begun_with_windows_of_the_future(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter([32_400_000, 32_401_000, 32_395_000, 1_000])
    monkeypatch.setattr(driver, "_now_ms", lambda: next(clock))
    query: Any = SimpleNamespace(awaitTermination=lambda _: False)
    outlet: Any = SimpleNamespace(is_due=False)

    driver.watch(query, cast(Any, None), outlet, lambda: False, window_ms=10_000)

    assert caplog.messages == ["this host's clock was set back by 32400 s: beginning again"]


# --- stream settings --------------------------------------------------------------------------------------------------


def test_everything_given() -> None:
    section = {
        "checkpoint_dir": "hdfs://n/x",
        "window_s": 60,
        "watermark_s": 2.5,
        "expected_hosts": ["h0", "h1"],
        "embedded": False,
        "warm_standby": False,
        "spark": {"spark.master": "local[2]", "spark.sql.shuffle.partitions": 64, "spark.ui.enabled": True},
    }
    found = converted(section, StreamSettings, "stream", CONFIGURATION)
    assert (found.window_ms, found.watermark_ms, found.patience_ms) == (60_000, 2_500, 1_800)
    assert (found.expected_hosts, found.embedded, found.warm_standby) == (frozenset({"h0", "h1"}), False, False)
    assert dict(found.spark) == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "64",
        "spark.ui.enabled": "true",
    }


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({}, "stream.checkpoint_dir: missing, expected a string"),
        ({"checkpoint_dir": "x", "window": 5}, "stream.window: found a whole number, expected no such field"),
        ({"checkpoint_dir": "x", "window_s": 0}, "stream.window_s: found 0, expected a finite number, 0.1 to 3600"),
        ({"checkpoint_dir": "x", "expected_hosts": []}, "stream.expected_hosts: found [], expected at least one host"),
        (
            {"checkpoint_dir": "x", "expected_hosts": [7]},
            "stream.expected_hosts[0]: found a whole number, expected a string",
        ),
        (
            {"checkpoint_dir": "x", "expected_hosts": ["h"] * 20_001},
            "stream.expected_hosts: found '20001 elements', expected at most 20000",
        ),
        (
            {"checkpoint_dir": "x", "spark": {"master": "y"}},
            "stream.spark.master: found 'master', expected a key that begins",
        ),
        (
            {"checkpoint_dir": "x", "spark": {"spark.x": []}},
            "stream.spark.spark.x: found an array, expected a text",
        ),
        ({"checkpoint_dir": "x", "embedded": 1}, "stream.embedded: found a whole number, expected true or false"),
    ],
)
def test_a_bad_section_is_refused_with_key_found_and_expected(section: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadMessage) as refused:
        converted(section, StreamSettings, "stream", CONFIGURATION)
    assert str(refused.value).startswith(complaint)


def test_the_file_with_the_deciders_sections(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text(
        '[controller]\ncluster = "demo"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[stream]\ncheckpoint_dir = "x"\n'
        "[balance]\nmax_migrations = 5\n",
        encoding="utf-8",
    )
    assert load(file) == StreamConfiguration(
        cluster="demo",
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        stream=StreamSettings(checkpoint_dir="x"),
    )


@pytest.mark.parametrize("text", ["[controller", "\x00", '[controller]\ncluster = "a b"\n', "controller = 1\n", ""])
def test_a_bad_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "controller.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadConfiguration):
        load(file)


# --- session ----------------------------------------------------------------------------------------------------------


QUICK = "-XX:TieredStopAtLevel=1"


@pytest.mark.parametrize(
    ("master", "small", "quick"),
    [("local[2]", True, True), ("local[2]", False, False), ("spark://127.0.0.1:7077", True, False)],
)
def test_only_the_jvm_of_a_small_fleet_does_without_the_optimising_compiler(
    master: str, small: bool, quick: bool
) -> None:
    keys = keys_at_start({"spark.master": master, "spark.jars": ""}, ["-XX:SharedArchiveFile=a b"], small=small)
    options = keys["spark.driver.extraJavaOptions"]
    assert (QUICK in options) is quick
    assert '"-XX:SharedArchiveFile=a b"' in options
    assert "-Xss16m" in options


def test_the_jvm_of_a_local_master_needs_no_name_of_the_machine() -> None:
    local = keys_at_start({"spark.master": "local[1]", "spark.jars": ""}, [], small=True)
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.authenticate"] == "true", "other users of the machine reach its ports"
    assert "spark.driver.host" not in keys_at_start({"spark.master": "yarn", "spark.jars": ""}, [], small=True)


def test_the_users_jars_replace_those_of_the_connector() -> None:
    assert "spark.jars" not in keys_at_start({"spark.master": "yarn", "spark.jars.packages": "a:b:1"}, [], small=True)
