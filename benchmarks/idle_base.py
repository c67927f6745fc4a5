"""Measures the CPU of an idle worker by its number of key groups, and the difference of the two CPU clocks.

    PYTHONPATH=examples python -m benchmarks.idle_base [--key-groups 8 64 256] [--interval-s 1] [--seconds 40]

First it runs a worker of the flights job without flights, and prints median and largest of its seconds once it is
settled.  Then, in this process, it measures steps of one thread by the thread clock, while other threads work too, and
compares them with the process clock over the same interval.  The sum of the steps should never exceed the latter; it
prints by how much it does at most.
"""

import argparse
import threading
import time
from statistics import mean, median

import psutil

from benchmarks.plugin_overhead import one_worker
from flights.wire import partitions
from trimtab_sandbox.configuration import worker_name

SETTLE_S = 15.0
INTERVAL_S = 0.2
STEP = 2_000


def idle_cores(key_groups: int, interval_s: float, seconds: float) -> list[float]:
    """CPU of the process in each second, in cores."""
    with one_worker(plugin=True, key_groups=key_groups, interval_s=interval_s) as cluster:
        worker = psutil.Process(cluster.pids[worker_name(0)])
        time.sleep(SETTLE_S)
        found = []
        for _ in range(int(seconds)):
            before, began = sum(worker.cpu_times()[:2]), time.monotonic()
            time.sleep(1.0)
            found.append((sum(worker.cpu_times()[:2]) - before) / (time.monotonic() - began))
        return found


def excess_s(seconds: float) -> float:
    """Largest excess of this thread's steps over the CPU time of the process."""
    ending = threading.Event()
    others = [threading.Thread(target=_work_until, args=(ending,)) for _ in range(3)]
    for other in others:
        other.start()
    worst, until = -1.0, time.monotonic() + seconds
    while time.monotonic() < until:
        steps, process, end = 0, time.process_time_ns(), time.monotonic() + INTERVAL_S
        while time.monotonic() < end:
            began = time.thread_time_ns()
            sum(range(STEP))
            steps += time.thread_time_ns() - began
        worst = max(worst, (steps - (time.process_time_ns() - process)) / 1e9)
    ending.set()
    for other in others:
        other.join()
    return worst


def _work_until(ending: threading.Event) -> None:
    while not ending.is_set():
        sum(range(STEP))
        time.sleep(0.0005)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-groups", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--interval-s", type=float, default=1.0, help="of the agent: its statistics cost CPU, too")
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    print(f"steps exceed the process by {1e6 * excess_s(given.seconds):.1f} us at most in {INTERVAL_S:g} s")
    for key_groups in given.key_groups:
        found = idle_cores(key_groups, given.interval_s, given.seconds)
        count = sum(partitions(key_groups).values())
        text = f"median {median(found):.4f}, mean {mean(found):.4f}, largest {max(found):.4f} cores"
        print(f"{key_groups} per operator, {count} partitions: {text}", flush=True)


if __name__ == "__main__":
    main()
