"""The stream's process without a broker: it says what it waits for, and ends when it should."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_for
from trimtab_controller.stream.session import spark_archive
from trimtab_sandbox.broker import free_ports
from trimtab_sandbox.processes import Child, Processes

LIMIT_S = 90.0
"""Importing Spark takes seconds on a busy machine."""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "logs") as running:
        yield running


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    file = tmp_path / "controller.toml"
    file.write_text(
        f'[controller]\ncluster = "c"\n[kafka]\nbootstrap_servers = "127.0.0.1:{free_ports(1)[0]}"\n'
        f'[stream]\ncheckpoint_dir = "{tmp_path}"\n',
        encoding="utf-8",
    )
    return [sys.executable, "-m", "trimtab_controller.stream", "--config", str(file)]


def said(stream: Child, text: str) -> None:
    """Wait until it says so."""
    wait_for(lambda: text in stream.log.read_text(), text, log=stream.log.read_text)


def test_without_a_broker_it_waits_says_so_and_ends_on_sigterm(processes: Processes, command: list[str]) -> None:
    stream = processes.start("stream", command, environment={"SPARK_HOME": "/opt/another-spark"})
    said(stream, "next try in 1 s")  # the second try
    (java,) = psutil.Process(stream.pid).children()
    assert str(spark_archive()) in {each.path for each in java.memory_maps()}, (
        "`make jars` has prepared Spark's classes"
    )
    stream.send(signal.SIGTERM)
    assert stream.wait(60) == 0


def test_it_ends_with_the_process_that_started_it(processes: Processes, command: list[str]) -> None:
    start = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(600)"
    parent = processes.start("parent", [sys.executable, "-c", start, *command, "--with-parent"])
    said(parent, "next try")
    (stream,) = psutil.Process(parent.pid).children()
    parent.kill()
    stream.wait(60)
    assert not stream.is_running()
