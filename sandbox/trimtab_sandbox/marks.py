"""Which processes belong to a sandbox: those that carry its mark in their environment.

Children inherit the environment, so the mark also finds what a child started by itself, in whatever session, and
whoever adopted it when its parent died. Ids are never guessed: a process is signalled only after its mark was read, and
psutil refuses an id that was given to another process meanwhile.
"""

import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil

VARIABLE = "TRIMTAB_SANDBOX"
"""Holds the marks of all sandboxes a process belongs to, separated by colons: a demo's inside a test run's."""


def with_mark(mark: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with one more mark in it."""
    outer = environment.get(VARIABLE)
    return {**environment, VARIABLE: f"{outer}:{mark}" if outer else mark}


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that carry the mark, without the calling one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and mark in process.environ().get(VARIABLE, "").split(":"):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, a zombie, or another user's
    return found


def command_lines(mark: str) -> dict[int, list[str]]:
    """Process id -> command line of the living processes that carry the mark."""
    found = {}
    for process in marked(mark):
        with suppress(psutil.Error):  # gone meanwhile, or a zombie
            found[process.pid] = process.cmdline()
    return found


def end_marked(mark: str, *, limit_s: float = 10.0) -> int:
    """Kill all that carries the mark, and what it starts meanwhile; returns how many still live after the limit."""
    deadline = time.monotonic() + limit_s
    while (alive := marked(mark)) and time.monotonic() < deadline:
        for process in alive:
            signal_process(process, signal.SIGKILL)
        time.sleep(0.05)
    return len(alive)


def signal_process(process: psutil.Process, number: signal.Signals) -> None:
    """Send the signal, unless the process is gone."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def bound(ports: Iterable[int]) -> list[int]:
    """Those of the ports on which somebody listens on 127.0.0.1."""
    return [port for port in ports if not can_bind(port)]


def can_bind(port: int) -> bool:
    """Whether a server could take the port on 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
