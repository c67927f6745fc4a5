"""Holds processes to a share of one core, as the quota of a cgroup would: stops them, and lets them go on.

Over a few seconds each process gets exactly its share, if the machine has it to give.
"""

import os
import signal
import threading
import time
from collections.abc import Collection
from typing import Self

import psutil

TICK_S = 0.01
BURST_S = 0.05
"""CPU seconds that an idle process saves up at most."""


class Throttle:
    """Throttles these processes to `cores` each, while the context is open."""

    def __init__(self, pids: Collection[int], cores: float) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._cores = cores
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="throttle", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        left = dict.fromkeys(self._processes, BURST_S)
        used = {process: _cpu_s(process) for process in left}
        stopped: set[psutil.Process] = set()
        at = time.monotonic()
        try:
            while not self._ending.wait(TICK_S):
                before, at = at, time.monotonic()
                for process in self._processes:
                    now_s = _cpu_s(process)
                    left[process] = min(BURST_S, left[process] + self._cores * (at - before) - (now_s - used[process]))
                    used[process] = now_s
                    if left[process] < 0.0 and process not in stopped:
                        stopped.add(process)
                        os.kill(process.pid, signal.SIGSTOP)
                    elif left[process] >= 0.0 and process in stopped:
                        stopped.remove(process)
                        os.kill(process.pid, signal.SIGCONT)
        finally:
            for process in stopped:
                os.kill(process.pid, signal.SIGCONT)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
