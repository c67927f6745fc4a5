"""What systemd is told, by a socket of the test's own."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab_process.service_manager import INTERVAL_S, ServiceManager


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
