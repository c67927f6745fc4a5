"""CPU seconds per part of a sandbox, including processes that have ended."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Self

import psutil

from trimtab_sandbox.configuration import BROKER, CONSOLE, CONTROLLER, LOAD


class Part(StrEnum):
    """Parts that CPU seconds are counted for."""

    BROKER = "broker"
    WORKERS = "workers"
    AGENTS = "agents"
    DECIDER = "decider"
    SPARK = "spark"
    CONSOLE = "console"


STREAM_MODULE = "trimtab_controller.stream"
"""On the command line of the controller's child process that runs Spark; the Java process below it is Spark's."""


class CpuMeter:
    """Samples the CPU time of a sandbox's processes and all their descendants, while the context is open.

    It misses what a process used after its last sample, at most one interval.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]], interval_s: float = 0.5) -> None:
        """`pids`: the process ids of those that run now, by name."""
        self._pids, self._interval_s = pids, interval_s
        self._parts: dict[psutil.Process, Part] = {}
        self._used_s: dict[psutil.Process, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.sample()

    def seconds(self) -> dict[Part, float]:
        """User and system seconds per part so far."""
        self.sample()
        totals = dict.fromkeys(Part, 0.0)
        with self._lock:
            for process, used_s in self._used_s.items():
                totals[self._parts[process]] += used_s
        return totals

    def sample(self) -> None:
        """Read the CPU time of every process, and find new ones."""
        with self._lock:
            for name, pid in self._pids().items():
                if part := _part_of(name):
                    with suppress(psutil.NoSuchProcess):
                        self._parts.setdefault(psutil.Process(pid), part)
            self._find_descendants()
            for process in self._parts:
                try:
                    times = process.cpu_times()
                except psutil.Error:
                    continue  # ended: keep its last sample
                self._used_s[process] = max(self._used_s.get(process, 0.0), times.user + times.system)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.sample()

    def _find_descendants(self) -> None:
        """Find children by their parent; a known child stays known when its parent dies and it is re-parented."""
        children = defaultdict(list)
        for process in psutil.process_iter(["ppid"]):
            children[process.info["ppid"]].append(process)
        to_visit = [process for process in self._parts if process.is_running()]
        while to_visit:
            parent = to_visit.pop()
            for child in children[parent.pid]:
                # Checked again while it counts as the decider: between fork and exec a child looks like its parent.
                known = self._parts.get(child)
                if known is None or known is Part.DECIDER:
                    self._parts[child] = _part_of_child(self._parts[parent], child)
                if known is None:
                    to_visit.append(child)


def _part_of(name: str) -> Part | None:
    """None = not a part: what sends the input."""
    if name.startswith(BROKER):
        return Part.BROKER
    if name.startswith(CONTROLLER):
        return Part.DECIDER
    if name in (CONSOLE, LOAD):
        return Part.CONSOLE if name == CONSOLE else None
    return Part.WORKERS if name.startswith("w") else Part.AGENTS


def _part_of_child(parent: Part, child: psutil.Process) -> Part:
    if parent is Part.AGENTS:
        return Part.WORKERS  # an agent only starts workers
    if parent is Part.DECIDER:
        try:
            command = child.cmdline()
        except psutil.Error:
            return parent
        return Part.SPARK if any(STREAM_MODULE in word for word in command) else parent
    return parent
