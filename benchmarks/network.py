"""What a hand-over costs over a real network: every client of the broker sits behind a cable with a round trip.

    PYTHONPATH=examples python -m benchmarks.network [--round-trips-ms 0 30 100] [--mbit 0] [--moves 20]

The job, the workers and the tiny controller are those of the steering tests; all of them, and what produces the load,
reach the broker through a proxy on 127.0.0.1 that delays both directions, and carries `--mbit` megabits per second in
each (0 = no limit).  Single key groups move one after another: *light* ones, and *heavy* ones, each of which writes
1,500 changelog records per second.  A pause is the longest time without a processed event within 2 s of the move, for
the key groups that move, for the others, and in calm time; *as the target reports* is from the source's last event to
the target's first.  In round trips: the median that the target reports, less that without a delay, by the round trip.
At the end everything is read back from Kafka, and judged.

*loop* is a sandbox with agents, Spark and a controller, each of them, as the workers, at the end of such a cable: the
seconds that `trimtab status` and `trimtab move` take, from the command until the status says that the plan has ended,
and the pause of what it moved.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from flights.steered_run import SteeredRun
from flights.wire import APP, SUMS
from tests.brokers import Detour, MemberBroker, WiredCluster
from tests.e2e.proxy import Proxy
from tests.e2e.steering.cluster import Cluster
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.scenarios import moves
from tests.e2e.steering.verdict import COMMIT_TAKES_S, Pauses, judge, pauses, summary
from trimtab_protocol.messages.status import RoundStatus, Status
from trimtab_sandbox.broker import Broker, free_ports
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import CONTROLLER, SandboxSettings, host_name, worker_name
from trimtab_sandbox.parser import FLIGHTS_APP
from trimtab_sandbox.processes import Processes

CALM_S = 10.0
LOOP = "loop"
KEY_GROUPS = 12
PLAN_LIMIT_S = 120.0
REPORTED = "as the target reports"
SETUPS = {
    "light": Setup(workers=2, partitions=8, rate=160.0, session_s=20.0, took_limit_s=10.0),
    # 20 events/s and 75 table writes for each make 1,500 changelog records/s of a key group.
    "heavy": Setup(workers=2, partitions=2, rate=40.0, keys=100, writes=75, session_s=20.0, took_limit_s=10.0),
}


class DistantBroker(MemberBroker):
    """A broker that all clients reach by the first of its detours."""

    @property
    def address(self) -> str:
        """Of its proxy."""
        return f"127.0.0.1:{self.detours[0].proxy}"


@contextmanager
def distant_broker(folder: Path, round_trip_s: float, bytes_s: float | None) -> Iterator[DistantBroker]:
    """A broker at the other end of such a cable."""
    [behind] = free_ports(1)
    proxy = Proxy(behind, delay_s=round_trip_s / 2, bytes_s=bytes_s)
    try:
        detour = Detour(proxy=proxy.port, behind=behind)
        with (
            Processes(folder / "broker-logs") as processes,
            DistantBroker(folder / "broker", processes, detours=[detour]) as broker,
        ):
            yield broker
    finally:
        proxy.close()


async def measure(setup: Setup, folder: Path, broker: Broker, count: int) -> tuple[dict[str, Pauses], list[str]]:
    """One run: its pauses, and what is not as promised."""
    async with Cluster(setup, folder / "run", broker) as cluster:
        await moves(count, 0, calm_s=CALM_S, rest_s=2.0)(cluster)
        await cluster.load.stop()
        verdict = await judge(cluster)
        found = pauses(cluster)
        found[REPORTED] = summary(move.pause_s for move in cluster.moves if move.pause_s is not None)
    return found, verdict.complaints(setup.commit_interval_s + COMMIT_TAKES_S, setup.rate, 0)


class Unseen:
    """Shows nothing of a run."""

    def phase(self, seconds: float, text: str) -> None:
        """A new part of the run begins."""

    def show(self, status: Status | None, seconds: float, sent: int) -> None:
        """The present state."""


def measure_loop(folder: Path, round_trip_s: float, bytes_s: float | None, count: int) -> dict[str, Pauses]:
    """A sandbox of two workers in which key groups move by command, to and fro."""
    settings = SandboxSettings(
        app=FLIGHTS_APP,
        app_folder=EXAMPLES,
        workers=2,
        environment={**FLIGHTS_ENVIRONMENT, "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS)},
        controller={"stream": {"window_s": 5.0, "watermark_s": 2.0}, "balance": {"load_distance": 100.0}},
    )
    with ExitStack() as stack:
        detours: dict[str, list[Detour]] = {}
        for name in (CONTROLLER, *map(host_name, range(settings.workers))):
            [behind] = free_ports(1)
            cable = Proxy(behind, delay_s=round_trip_s / 2, bytes_s=bytes_s)
            stack.callback(cable.close)
            detours[name] = [Detour(proxy=cable.port, behind=behind)]
        cluster = stack.enter_context(WiredCluster(settings, folder, detours=detours))
        run = stack.enter_context(SteeredRun(cluster, key_groups=KEY_GROUPS, rate=40.0, view=Unseen()))
        run.trimtab("resume")
        found: dict[str, list[float]] = defaultdict(list)
        for number in range(count):
            began = time.monotonic()
            run.trimtab("status")
            found["trimtab status"].append(time.monotonic() - began)
            source = worker_name(number % 2)
            key_group = run.key_groups_of(source)[-1]
            reason, began = f"move {number}", time.monotonic()
            run.trimtab("move", f"{APP}/{SUMS}/{key_group}", worker_name(1 - number % 2), "--reason", reason)
            found["trimtab move"].append(time.monotonic() - began)

            def ended(reason: str = reason) -> RoundStatus | None:
                rounds = () if run.watch.last is None else run.watch.last.rounds
                return next((row for row in rounds if reason in row.reason and row.ended_at is not None), None)

            run.until(lambda: ended() is not None, PLAN_LIMIT_S, reason)
            row = ended()
            assert row is not None
            assert (row.migrations, row.failed) == (1, 0), row
            found["until the plan ends"].append(time.monotonic() - began)
            found["pause"] += row.pauses_s
        run.finish()
    return {name: summary(values) for name, values in found.items()}


def main() -> int:
    """Play all, print a table; 1 if something was lost or done twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trips-ms", type=float, nargs="+", default=[0.0, 30.0, 100.0])
    parser.add_argument("--mbit", type=float, default=0.0)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--only", choices=[*SETUPS, LOOP], nargs="+", default=[*SETUPS, LOOP])
    given = parser.parse_args()
    bytes_s = given.mbit * 1e6 / 8 or None
    complaints: list[str] = []
    if LOOP in given.only:
        for trip_ms in sorted(given.round_trips_ms):
            with tempfile.TemporaryDirectory() as place:
                rows = measure_loop(Path(place), trip_ms / 1e3, bytes_s, given.moves)
            print(f"{LOOP}, round trip {trip_ms:.0f} ms")
            for row, values in rows.items():
                print(f"  {row:22s} {values}", flush=True)
    for name in (each for each in given.only if each != LOOP):
        near: float | None = None
        for trip_ms in sorted(given.round_trips_ms):
            trip_s = trip_ms / 1e3
            # A client that is far away waits for its own requests, too.
            setup = replace(SETUPS[name], took_limit_s=SETUPS[name].took_limit_s + 20 * trip_s)
            with tempfile.TemporaryDirectory() as place, distant_broker(Path(place), trip_s, bytes_s) as broker:
                found, wrong = asyncio.run(measure(setup, Path(place), broker, given.moves))
            complaints += wrong
            print(f"{name}, round trip {trip_ms:.0f} ms: " + ("as promised" if not wrong else "; ".join(wrong)))
            for row, values in found.items():
                print(f"  {row:22s} {values}", flush=True)
            reported = found[REPORTED].median
            near = reported if near is None else near
            if trip_s:
                print(f"  in round trips         {(reported - near) / trip_s:.1f}", flush=True)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
