"""What a join, a leave, a restart, a kill -9 and a slow member cost each key group: in place, and as stock Faust joins.

    PYTHONPATH=examples python -m benchmarks.membership [--workers 3 6] [--key-groups 128] [--rate 640] [--modes on off]

Each mode has a broker and workers of its own, with the job of the steering tests and a warm standby for each key group.
For every key group of its source operator it takes the longest time without a processed event, from the event on until
all is settled again, and says the median and the longest of those: of key groups that stay with their worker, and of
those that move.  *calm* is the same while nothing happens.  At the end everything is read back from Kafka, and judged.

- *join*: one more worker.  *leave*: it goes, and has no key groups.
- *slow member*: it joins once more, while another worker is stopped for 2.2 s.
- *rolling restart*: of all workers, one after the other, each by SIGTERM; of every key group the longest time.
- *SIGTERM*, *kill -9*: of a worker with its key groups, without a hand-over.
"""

import argparse
import asyncio
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.run_setup import SOURCE, Setup
from tests.e2e.steering.scenarios import begin
from tests.e2e.steering.verdict import Verdict, _processed, judge
from trimtab_protocol.messages.names import WorkerId
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes

SESSION_S, HEARTBEAT_S = 6.0, 1.0
CALM_S, SLOW_S = 5.0, 2.2
SETTLE_S = 3.0
"""How long an event is watched at least."""

ALL_TOGETHER = ("calm", "rolling restart")

Owners = dict[int, WorkerId]
Watched = tuple[str, float, float, Owners, Owners]
"""An event, when it began and all was settled, and who owned which partition before and after."""


def owners(cluster: Cluster) -> Owners:
    """Who owns which partition of the source operator."""
    return {key.partition: names[0] for key, names in cluster.owners().items() if key.operator == SOURCE}


async def place_standbys(cluster: Cluster) -> None:
    """Let the next worker in turn keep a standby of each key group."""
    names = list(cluster.alive)
    for key_group in cluster.key_groups:
        owner = cluster.row(key_group)[0]
        cluster.place([key_group], (owner, names[(names.index(owner) + 1) % len(names)]))
    await cluster.publish()


async def play(cluster: Cluster) -> list[Watched]:
    """All events, one after another."""
    watched: list[Watched] = []
    await begin(cluster)
    await place_standbys(cluster)
    await asyncio.sleep(1.0)

    async def watch(name: str, act: Callable[[], None], wait_s: float = 0.0) -> None:
        before, began = owners(cluster), time.time()
        act()
        await asyncio.sleep(wait_s + SETTLE_S)
        await cluster.settled(120.0)
        await asyncio.sleep(1.0)
        watched.append((name, began, time.time(), before, owners(cluster)))

    def end(name: WorkerId, by: signal.Signals) -> None:
        if by is signal.SIGKILL:
            cluster.stop(name)  # noted as a fault
        cluster.alive.pop(name).send(by)
        cluster.agent.statistics.pop(name, None)

    def start_beside_a_slow_one() -> None:
        slow = cluster.alive[worker(1)]
        slow.send(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(SLOW_S, slow.send, signal.SIGCONT)
        cluster.start(new)

    new, last = worker(cluster.setup.workers), worker(cluster.setup.workers - 1)
    await watch("calm", lambda: None, CALM_S)
    cluster.start(new)
    joined = time.time()
    before = owners(cluster)
    assert await until(lambda: new in cluster.agent.statistics, 90.0)
    await cluster.settled(120.0)
    watched.append(("join", joined, time.time() + 1.0, before, owners(cluster)))
    await asyncio.sleep(1.0)
    await watch("leave", lambda: end(new, signal.SIGTERM), 2.0)
    await watch("slow member", start_beside_a_slow_one, 10.0)
    began, before = time.time(), owners(cluster)
    for name in list(cluster.alive):
        assert await cluster.terminate(name) == 0
        cluster.start(name)
        await asyncio.sleep(2.0)
        await cluster.settled(120.0)
    watched.append(("rolling restart", began, time.time(), before, before))
    await watch("SIGTERM", lambda: end(last, signal.SIGTERM), 2.0)
    await watch("kill -9", lambda: end(worker(0), signal.SIGKILL), SESSION_S)
    return watched


def longest_gaps(times: dict[int, list[float]], began: float, ended: float) -> dict[int, float]:
    """Partition -> longest time without one of its events in this span."""
    found = {}
    for partition, seen in times.items():
        steps = [min(b, ended) - max(a, began) for a, b in pairwise(seen) if b >= began and a <= ended]
        found[partition] = max(steps, default=ended - began)
    return found


def row(name: str, gaps: list[float]) -> str:
    """One line of the table."""
    if not gaps:
        return f"{name:24s} -"
    return f"{name:24s} median {statistics.median(gaps):.3f}, longest {max(gaps):.3f} s ({len(gaps)})"


async def run(setup: Setup, folder: Path) -> tuple[list[str], Verdict]:
    """One mode: its table, and what became of the inputs."""
    with Processes(folder / "broker-logs") as processes, Broker(folder / "broker", processes) as broker:
        async with Cluster(setup, folder / "run", broker) as cluster:
            watched = await play(cluster)
            await cluster.load.stop()
            verdict = await judge(cluster)
        times = _processed(cluster.folder)
    lines = []
    for name, began, ended, before, after in watched:
        gaps = longest_gaps(times, began, ended)
        stay = [gap for partition, gap in gaps.items() if before.get(partition) == after.get(partition)]
        moved = [gap for partition, gap in gaps.items() if before.get(partition) != after.get(partition)]
        lines.append(row(name if name in ALL_TOGETHER else f"{name}, stay", stay))
        if moved:
            lines.append(row(f"{name}, moved", moved))
    return lines, verdict


def main() -> None:
    """Play all modes and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[3, 6])
    parser.add_argument("--key-groups", type=int, default=128)
    parser.add_argument("--rate", type=float, default=640.0, help="events per second")
    parser.add_argument("--modes", nargs="+", default=["on", "off"], choices=["on", "off"])
    asked = parser.parse_args()
    for workers in asked.workers:
        for mode in asked.modes:
            setup = Setup(
                workers=workers, partitions=asked.key_groups, keys=asked.key_groups, rate=asked.rate, preload=0,
                session_s=SESSION_S, heartbeat_s=HEARTBEAT_S, in_place=mode,
            )  # fmt: skip
            folder = Path(tempfile.mkdtemp(prefix="membership-"))
            print(f"\n{workers} workers, {asked.key_groups} key groups, in place: {mode}; logs: {folder}", flush=True)
            lines, verdict = asyncio.run(run(setup, folder))
            print("\n".join(lines))
            print(
                f"{verdict.sent} inputs: lost {sum(verdict.lost.values())}, "
                f"repeated {sum(verdict.duplicated.values())}, set back {sum(verdict.stepped_back.values())}",
                flush=True,
            )


if __name__ == "__main__":
    main()
