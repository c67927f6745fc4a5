"""Clauses about the socket: what a worker says of itself, and how it takes what an agent does."""

import asyncio
import time

import psutil

from tests.conformance.agent import INTERVAL_S
from tests.conformance.bench import KEYS, OPERATOR, PARTITIONS, START_LIMIT_S, WORKERS, Bench, expect
from trimtab_agent.plugin_server import check_statistics
from trimtab_protocol.messages.local import PROTOCOL, Statistics
from trimtab_protocol.messages.report import WorkerState


async def hello(bench: Bench) -> None:
    """A worker presents itself with its names, its process, its operators, its version, and that it can be steered."""
    await bench.settled(limit_s=START_LIMIT_S)
    for worker in WORKERS:
        said = bench.connection(worker).hello
        expect((said.app, said.worker) == (bench.run.names.app, worker), f"app and worker {said.app}, {said.worker}")
        processes = psutil.Process(bench.children[worker].pid)
        own = {processes.pid, *(child.pid for child in processes.children(recursive=True))}
        expect(said.pid in own, f"pid {said.pid} of {worker}, expected one of {sorted(own)}")
        expect(dict(said.operators) == {OPERATOR: PARTITIONS}, f"operators {dict(said.operators)}")
        expect(said.steering and said.reason is None, f"steering {said.steering}: {said.reason}")
        expect(said.protocol >= PROTOCOL, f"versions {dict(said.versions)}, expected trimtab-protocol {PROTOCOL}")


async def statistics(bench: Bench) -> None:
    """Statistics come at every multiple of the interval, pass the agent's checks, and are complete in a calm worker."""
    await bench.settled()
    for worker in WORKERS:
        connection = bench.connection(worker)
        before = len(connection.statistics)
        for _ in range(4):
            await bench.fresh(worker)
        said = [one for _, _, one in connection.statistics[before:]]
        for one in said:
            check_statistics(worker, one, time.time())
            expect(one.at_ms % round(INTERVAL_S * 1000) == 0, f"at_ms {one.at_ms} is no multiple of the interval")
            expect(one.state is WorkerState.RUNNING and one.complete, f"state {one.state}, complete {one.complete}")
            expect(one.cpu_s is not None and one.epoch == bench.epoch, f"cpu_s {one.cpu_s}, epoch {one.epoch}")
            expect((one.standbys, one.breaches) == (1, 0), f"standbys {one.standbys}, breaches {one.breaches}")
        dates = [one.at_ms for one in said]
        expect(dates == sorted(set(dates)), f"dates {dates}")


async def load(bench: Bench) -> None:
    """Counts are what was sent.  CPU adds up to at most what the process used; who was busy does not report zero."""
    await bench.settled()
    since = time.time()
    counts = {partition: 200 * (partition + 1) for partition in range(PARTITIONS)}
    await bench.send_counts(counts)
    await bench.counted()
    for worker in WORKERS:
        await bench.fresh(worker)
    said = [s for w in WORKERS for _, _, s in bench.connection(w).statistics if s.at_ms / 1e3 > since]
    for one in said:
        _check_cpu(one)
    samples = [sample for one in said for sample in one.key_groups]
    for partition, sent in counts.items():
        own = [sample for sample in samples if sample.key_group == bench.key_group(partition)]
        volume = sum(len(f"k{partition}-{i % KEYS}") + i % 7 + 1 for i in range(sent))
        sums = [(s.tuples_in, s.bytes_in, s.tuples_out) for s in own]
        expect(all(None not in row for row in sums), f"unknown counts of partition {partition} in a calm worker")
        found = tuple(sum(row[i] or 0 for row in sums) for i in range(3))
        expect(found == (sent, volume, sent), f"(in, bytes in, out) {found}, expected {(sent, volume, sent)}")
        last = own[-1]
        expect(last.state_bytes and last.lag_records, f"state {last.state_bytes} bytes, lag {last.lag_records} records")
        expect(last.backlog == 0, f"backlog {last.backlog} when all is counted")
    expect(not any(one.pairs for one in said), "pairs, although nothing is sent between key groups")


def _check_cpu(one: Statistics) -> None:
    known = [sample.cpu_s for sample in one.key_groups if sample.cpu_s is not None]
    if one.cpu_s is not None:
        expect(sum(known) <= one.cpu_s + 0.02, f"key groups used {sum(known)} s, the process {one.cpu_s} s")
    for sample in one.key_groups:
        expect(
            not sample.tuples_in or sample.cpu_s is None or sample.cpu_s > 0,
            f"{sample.key_group}: no CPU for {sample.tuples_in} tuples; what is not measured is null",
        )
    expect(len(known) == len(one.key_groups) or one.unknown, "CPU of key groups unknown, without a reason in `unknown`")


async def bad_frames(bench: Bench) -> None:
    """What an agent sends wrong is passed over: the connection and the job go on."""
    await bench.settled()
    before = {worker: bench.connection(worker) for worker in WORKERS}
    for worker in WORKERS:
        for line in (
            b"no JSON",
            b"\xff\xfe\x00",
            b"[]",
            b'{"v":1}',
            b'{"v":99,"frame":"command"}',
            b'{"v":1,"frame":"of a later version"}',
            b'{"v":1,"frame":"command","id":"00","kind":"explode"}',
            b'{"v":1,"frame":"welcome","cluster":"c","host":"h0","interval_s":1.0}',
            b"[" * 100_000,
        ):
            bench.agent.send(worker, line + b"\n")
    await bench.send(2)
    for worker in WORKERS:
        await bench.fresh(worker)
    await bench.counted()
    expect(all(bench.connection(w) is before[w] for w in WORKERS), "a connection was given up for a bad frame")


async def agent_restart(bench: Bench) -> None:
    """Without an agent the job goes on; when one is back the worker presents itself, also after a wrong answer."""
    await bench.settled()
    await bench.agent.stop()
    await bench.send(5)
    await bench.counted()
    bench.agent.unwelcoming = 1
    await bench.agent.start()
    await bench.settled()


async def no_bad_frame(bench: Bench) -> None:
    """In the whole run no worker sends a frame that cannot be read, or one at a wrong moment."""
    await asyncio.sleep(0)
    expect(not bench.agent.faults, "; ".join(bench.agent.faults))
