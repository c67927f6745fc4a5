"""Log lines: one line each, whatever is in them."""

import logging
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from trimtab_process.health import LIVE, READY, HealthVerdict, ask
from trimtab_process.logs import KeyValueFormatter, PlainFormatter, fields
from trimtab_process.metrics_port import MetricsServer, serve_metrics
from trimtab_process.service_manager import INTERVAL_S, ServiceManager
from trimtab_protocol.settings.listen import Listen


def line(message: str, **extra: object) -> str:
    record = logging.LogRecord("agent", logging.WARNING, __file__, 1, message, (), None)
    record.created, record.msecs = 1_700_000_000.25, 250
    record.__dict__.update(fields(**extra)["extra"])
    return KeyValueFormatter().format(record)


def test_plain_values_stand_as_they_are_and_others_are_quoted() -> None:
    found = line(
        "worker connected", worker="w0", cores=0.5, text='a "b"\nc', empty="", pair="a=b", steering=True, absent=None
    )

    assert found == (
        'ts=2023-11-14T22:13:20.250Z level=warning event="worker connected" worker=w0 cores=0.5 '
        'text="a \\"b\\"\\nc" empty="" pair="a=b" steering=true'
    )


def test_a_traceback_stays_on_the_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("agent", logging.ERROR, __file__, 1, "fault", (), sys.exc_info())

    assert "\n" not in KeyValueFormatter().format(record)
    assert "ValueError: two\\nlines" in KeyValueFormatter().format(record)


def test_nothing_that_is_logged_begins_another_line() -> None:
    evil = "a\n2026 WARNING b\u2028c\x85d\x9b2J\u202e"
    try:
        raise ValueError(evil)
    except ValueError:
        record = logging.LogRecord("controller", logging.ERROR, __file__, 1, evil, (), sys.exc_info())
    lines = PlainFormatter().format(record).splitlines()
    assert lines[0].endswith(r" ERROR a\u000a2026 WARNING b\u2028c\u0085d\u009b2J\u202e")
    assert all(line.startswith("  ") for line in lines[1:])
    assert len(KeyValueFormatter().format(record).splitlines()) == 1


# ---- what systemd is told, by a socket of the test's own


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def heard(manager: socket.socket) -> list[str]:
    lines = []
    try:
        while True:
            lines.append(manager.recv(4096).decode())
    except BlockingIOError:
        return lines


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_is_told_at_once_and_then_four_times_per_watchdog_time(manager: socket.socket) -> None:
    clock = Clock()
    watched = {"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}
    environment = {"NOTIFY_SOCKET": manager.getsockname(), **watched, "HOME": "/"}
    told = ServiceManager(environment, clock)
    assert environment == {"HOME": "/"}, "children are not to speak for the daemon"
    assert told.interval_s == 5.0
    told.tell(lambda: "leads")
    told.tell(lambda: "leads")
    clock.now += 5.0
    told.tell(lambda: "stands by")
    assert heard(manager) == ["READY=1\nWATCHDOG=1\nSTATUS=leads", "READY=1\nWATCHDOG=1\nSTATUS=stands by"]


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "?"}])
def test_without_a_watchdog_of_this_process_it_is_told_now_and_then(watchdog: dict[str, str]) -> None:
    assert ServiceManager(watchdog).interval_s == INTERVAL_S


def test_nobody_is_told_without_a_manager_and_one_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    def asked() -> str:
        raise AssertionError

    ServiceManager({}).tell(asked)
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell(lambda: "well")


# ---- the health of a daemon over its metrics port


@pytest.fixture
def verdicts() -> dict[str, HealthVerdict]:
    return {LIVE: HealthVerdict(True, "turns"), READY: HealthVerdict(False, "no window has come yet")}


@pytest.fixture
def server(verdicts: dict[str, HealthVerdict]) -> Iterator[MetricsServer]:
    registry = CollectorRegistry()
    Gauge("answer", "All there is.", registry=registry).set(42)
    checks = {path: lambda path=path: verdicts[path] for path in verdicts}
    made = serve_metrics(Listen(address="127.0.0.1", port=0), registry, {}, checks)
    yield made
    made.shutdown()
    made.server_close()


def port_of(server: MetricsServer) -> int:
    return int(server.server_address[1])


def test_metrics_are_served_on_every_other_path(server: MetricsServer) -> None:
    for path in ("/metrics", "/", "/healthz2"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(server)}{path}", timeout=10) as page:
            assert b"answer 42.0" in page.read()


@pytest.mark.parametrize("address", ["0.0.0.0", "localhost"])
def test_a_daemon_that_listens_everywhere_is_asked_on_this_host(server: MetricsServer, address: str) -> None:
    assert ask(Listen(address=address, port=port_of(server)), LIVE).well


def test_no_answer_names_the_place(server: MetricsServer) -> None:
    port = port_of(server)
    server.shutdown()
    server.server_close()
    found = ask(Listen(address="127.0.0.1", port=port), READY)
    assert found == HealthVerdict(False, f"not ok: no answer on 127.0.0.1:{port}: [Errno 111] Connection refused")


def test_another_server_is_no_health() -> None:
    bare = serve_metrics(Listen(address="127.0.0.1", port=0), CollectorRegistry(), {})
    with_metrics_only = ask(Listen(address="127.0.0.1", port=port_of(bare)), READY)
    bare.shutdown()
    bare.server_close()
    assert with_metrics_only.text.endswith("answers 200 and no verdict: an agent or controller?")
    assert not with_metrics_only.well
