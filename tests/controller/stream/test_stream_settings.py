from pathlib import Path
from typing import Any

import pytest

from trimtab_controller.stream.configuration import StreamConfiguration, StreamSettings, load, read_stream_settings
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.settings.kafka import KafkaSettings


def test_only_the_checkpoint_folder_is_needed() -> None:
    assert read_stream_settings({"checkpoint_dir": "/var/x"}, "stream") == StreamSettings(
        checkpoint_dir="/var/x",
        window_s=10.0,
        watermark_s=5.0,
        patience_s=0.3,
        expected_hosts=None,
        embedded=True,
        warm_standby=True,
        spark={},
    )


def test_everything_given() -> None:
    section = {
        "checkpoint_dir": "hdfs://n/x",
        "window_s": 60,
        "watermark_s": 2.5,
        "patience_s": 1,
        "expected_hosts": ["h0", "h1"],
        "embedded": False,
        "warm_standby": False,
        "spark": {"spark.master": "local[2]", "spark.sql.shuffle.partitions": 64, "spark.ui.enabled": True},
    }
    found = read_stream_settings(section, "stream")
    assert (found.window_ms, found.watermark_ms, found.patience_ms) == (60_000, 2_500, 1_000)
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
            "stream.expected_hosts[0]: found 7, expected the name of a host",
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
        read_stream_settings(section, "stream")
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
    with pytest.raises(BadMessage):
        load(file)
