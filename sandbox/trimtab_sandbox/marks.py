"""Finds the processes of a sandbox by a mark in their environment.

Children inherit the environment.  The mark therefore also finds what a child started by itself, in any session, even
after its parent has died.  A process is signalled only after its mark was read, and psutil refuses a process id that
was reused meanwhile.
"""

import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil

VARIABLE = "TRIMTAB_SANDBOX"
"""The marks of all sandboxes of a process, separated by colons: a demo may run inside a test run."""
WORKER = "TRIMTAB_WORKER"
"""Names the worker to its plug-in."""


def with_mark(mark: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with this mark added."""
    outer = environment.get(VARIABLE)
    return {**environment, VARIABLE: f"{outer}:{mark}" if outer else mark}


def marked(mark: str) -> list[psutil.Process]:
    """The running processes with this mark, except the calling one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and mark in process.environ().get(VARIABLE, "").split(":"):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # has ended, is a zombie, or belongs to another user
    return found


def marked_workers(mark: str) -> dict[str, list[int]]:
    """Worker -> the ids of the running processes with this mark and its name, whoever started them."""
    found: dict[str, list[int]] = {}
    for process in marked(mark):
        with suppress(psutil.Error, OSError):
            if name := process.environ().get(WORKER):
                found.setdefault(name, []).append(process.pid)
    return found


def end_marked(mark: str, *, limit_s: float = 10.0) -> int:
    """Kill all processes with this mark, also new ones; returns how many still run after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while (alive := marked(mark)) and time.monotonic() < deadline:
        for process in alive:
            signal_process(process, signal.SIGKILL)
        time.sleep(0.05)
    return len(alive)


def signal_process(process: psutil.Process, number: signal.Signals) -> None:
    """Send the signal, unless the process has ended."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def bound(ports: Iterable[int]) -> list[int]:
    """The ports that are in use on 127.0.0.1."""
    return [port for port in ports if not can_bind(port)]


def can_bind(port: int) -> bool:
    """Whether a server could bind this port on 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
