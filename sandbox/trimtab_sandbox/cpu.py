"""CPU seconds of each part of a sandbox, over all processes it ever had, also those that have ended."""

import threading
from collections import defaultdict
from enum import StrEnum
from typing import Self

import psutil


class Part(StrEnum):
    """What CPU seconds are booked on."""

    BROKER = "broker"
    WORKERS = "workers"
    AGENTS = "agents"
    DECIDER = "decider"
    SPARK = "spark"


STREAM_MODULE = "trimtab_controller.stream"
"""Named on the command line of the controller's child that runs Spark; the Java below it is Spark's."""


class CpuMeter:
    """Samples the processes it was given and all their descendants.

    What a process used after its last sample is missed: at most one interval's worth.
    """

    def __init__(self, interval_s: float = 0.5) -> None:
        self._interval_s = interval_s
        self._parts: dict[psutil.Process, Part] = {}
        self._used_s: dict[psutil.Process, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-meter", daemon=True)

    def start(self) -> Self:
        """Begin to sample, in a thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Sample a last time and end; may be called again, also when it was never started."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.sample()

    def add(self, pid: int, part: Part) -> None:
        """Measure this process from now on."""
        try:
            process = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return
        with self._lock:
            self._parts[process] = part

    def seconds(self) -> dict[Part, float]:
        """User and system seconds of each part up to now."""
        self.sample()
        totals = dict.fromkeys(Part, 0.0)
        with self._lock:
            for process, used_s in self._used_s.items():
                totals[self._parts[process]] += used_s
        return totals

    def sample(self) -> None:
        """Read the present use of every process, and find new descendants."""
        with self._lock:
            self._find_descendants()
            for process in self._parts:
                try:
                    times = process.cpu_times()
                except psutil.Error:
                    continue  # ended: what it had used stays booked
                self._used_s[process] = max(self._used_s.get(process, 0.0), times.user + times.system)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.sample()

    def _find_descendants(self) -> None:
        """Children are found by their parent; once known, they stay so when it dies and another adopts them."""
        children = defaultdict(list)
        for process in psutil.process_iter(["ppid"]):
            children[process.info["ppid"]].append(process)
        to_visit = [process for process in self._parts if process.is_running()]
        while to_visit:
            parent = to_visit.pop()
            for child in children[parent.pid]:
                # Asked anew while the answer is "decider": between fork and exec a child looks like its parent.
                known = self._parts.get(child)
                if known is None or known is Part.DECIDER:
                    self._parts[child] = _part_of_child(self._parts[parent], child)
                if known is None:
                    to_visit.append(child)


def _part_of_child(parent: Part, child: psutil.Process) -> Part:
    if parent is Part.AGENTS:
        return Part.WORKERS  # an agent starts nothing else
    if parent is Part.DECIDER:
        try:
            command = child.cmdline()
        except psutil.Error:
            return parent
        return Part.SPARK if any(STREAM_MODULE in word for word in command) else parent
    return parent
