"""`trimtab sandbox up | status | down` as an operator uses it, with the flights example."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import sync_playwright

from tests.e2e.command_lines import command_lines
from tests.e2e.console_pages import follow_the_link
from tests.programs import find
from tests.waiting import wait_for
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.report import Report, WorkerState
from trimtab_sandbox.marks import bound, end_marked, marked, with_mark
from trimtab_sandbox.state import load_state

COMMAND_EVERY_S = 1.0
"""A command takes a second or two of CPU, which what it asks about needs too."""
PROGRAM = "from trimtab_controller.cli import main; raise SystemExit(main())"


@pytest.fixture
def mark() -> Iterator[str]:
    """Inherited by all that the commands of a test start."""
    mark = f"up-{uuid.uuid4().hex}"
    yield mark
    end_marked(mark)


def sandbox(mark: str, *arguments: str, folder: Path) -> "subprocess.Popen[str]":
    """The command, with Ctrl-C as in a terminal; a shell that runs the tests in the background has it ignored."""
    command = [sys.executable, "-c", PROGRAM, "sandbox", *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=with_mark(mark, os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def hosts_of(mark: str, folder: Path) -> list[dict[str, float]]:
    """The hosts in `trimtab status`; none before the first window."""
    config = str(folder / "controller" / "controller.toml")
    command = [sys.executable, "-c", PROGRAM, "status", "--config", config, "--json"]
    done = subprocess.run(command, env=with_mark(mark, os.environ), capture_output=True, text=True, timeout=60)
    found: list[dict[str, float]] = json.loads(done.stdout)["hosts"]
    return found


def running(bootstrap: str, hosts: int) -> set[str]:
    """The workers that run and are steered, as the agents of so many hosts report them; waits until all do."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    reports = Topics("sandbox").reports
    partitions = consumer.list_topics(reports, timeout=30).topics[reports].partitions
    consumer.assign([TopicPartition(reports, partition, 0) for partition in partitions])
    found: set[str] = set()

    def all_run() -> bool:
        for message in consumer.consume(100, timeout=0.5):
            workers = decoded(message.value(), Report).workers
            found.update(each.worker for each in workers if each.state is WorkerState.RUNNING and each.steering)
        return len(found) == hosts

    wait_for(all_run, f"{hosts} workers run")
    consumer.close()
    return found


def see_the_link_log_in(link: str) -> None:
    """In a browser, where there is one."""
    if (browser_path := find("chromium")) is not None:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            follow_the_link(browser, link)
            browser.close()


def test_up_status_down(mark: str, tmp_path: Path) -> None:
    """As the README has it: in the default folder, which is relative."""
    folder = tmp_path / "out" / "sandbox"
    with sandbox(mark, "up", "--workers", "2", folder=tmp_path) as up:
        output, errors = up.communicate(timeout=120)
    assert (up.returncode, errors) == (0, "")
    assert f"logs in {folder / 'logs'}" in output

    state = load_state(folder)
    assert state is not None
    assert state.alive() == dict.fromkeys(("broker", "h0", "h1", "w0", "w1", "controller", "console", "load"), True)
    assert "load: 20 flights/s for flights.app:app; every 90 s other key groups are the busy ones.\n" in output
    (link,) = re.findall(r"console, as operator: (\S+)", output)
    see_the_link_log_in(link)
    assert running(state.bootstrap_servers, 2) == {"w0", "w1"}
    assert "commands are verified" in (folder / "logs" / "h0.log").read_text()
    assert "placements are not verified" not in (folder / "logs" / "w0.log").read_text()
    shown = ""

    def controller_has_reported() -> bool:
        nonlocal shown
        with sandbox(mark, "status", folder=tmp_path) as status:
            shown, _ = status.communicate(timeout=60)
        assert status.returncode == 0
        return "windows and plans: unknown" not in shown

    wait_for(controller_has_reported, "a status", every_s=COMMAND_EVERY_S)
    assert shown.count(" alive ") == 8
    assert "sandbox  DRY RUN  " in shown
    assert "no plan in flight" in shown
    wait_for(lambda: hosts_of(mark, folder), "hosts", every_s=COMMAND_EVERY_S)
    disk = shutil.disk_usage(folder)
    for host in hosts_of(mark, folder):
        assert host["disk_total_bytes"] == pytest.approx(disk.used + disk.free, rel=0.01)
        assert host["disk_free_bytes"] == pytest.approx(disk.free, rel=0.1)

    with sandbox(mark, "down", folder=tmp_path) as down:
        assert down.communicate(timeout=120) == (f"stopped; data and logs are kept in {folder}\n", "")
    assert down.returncode == 0
    assert marked(mark) == []
    assert bound(port for ports in state.ports.values() for port in ports) == []
    assert (folder / "logs" / "controller.log").exists()


def test_a_worker_that_ends_while_it_starts_is_no_success(mark: str, tmp_path: Path) -> None:
    """It ends some time after it was started, as any app that fails while it is imported."""
    (tmp_path / "shop.py").write_text("import time\ntime.sleep(3)\nraise RuntimeError('no such shop')\n")
    with sandbox(mark, "up", "--workers", "1", "--app", "shop:app", folder=tmp_path) as up:
        output, errors = up.communicate(timeout=120)
    assert up.returncode == 1
    assert "alive" not in output
    assert errors.startswith("trimtab sandbox: w0 ended with exit code 1:\n")
    assert "RuntimeError: no such shop" in errors
    assert marked(mark) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_what_was_started_ends_when_up_is_interrupted(mark: str, tmp_path: Path, number: signal.Signals) -> None:
    with sandbox(mark, "up", "--folder", "sandbox", folder=tmp_path) as up:
        wait_for(lambda: any("kafka.Kafka" in words for words in command_lines(mark).values()), "a broker")
        up.send_signal(number)
        up.communicate(timeout=60)
    assert up.returncode == (130 if number == signal.SIGINT else -number)
    wait_for(lambda: not marked(mark), "the end of all")
