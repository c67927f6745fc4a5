"""Clauses about workers that stop: one that is held up beyond its session, one that ends in order."""

import asyncio
import signal

from tests.conformance.bench import KEYS, LIMIT_S, PARTITIONS, W0, W1, Bench, expect


async def self_fence(bench: Bench) -> None:
    """A worker that was stopped beyond its session does nothing of what it had begun when it goes on."""
    await bench.settled()
    before = await bench.counted()
    own = [p for p, row in enumerate(bench.rows) if row[0] == W0]
    await bench.send(100, own)  # a backlog: some of it is fetched, begun, buffered
    bench.signal(W0, signal.SIGSTOP)
    try:
        for partition in range(PARTITIONS):
            bench.rows[partition] = (W1, W0)
        await bench.publish()
        await bench.settled([W1], limit_s=bench.run.session_s + LIMIT_S)
        await bench.counted(exactly=False)
    finally:
        bench.signal(W0, signal.SIGCONT)
    await bench.settled()
    await bench.send(1)
    await asyncio.sleep(1.0)  # for what a worker without a fence would still write
    after = await bench.counted(exactly=False)
    for key in (f"k{p}-{i}" for p in own for i in range(KEYS)):
        _check_writers(key, after[key][len(before[key]) :])


def _check_writers(key: str, rows: list[tuple[int, str]]) -> None:
    """(count, worker) of each output since the stop: from its first one on the new owner is alone, and counts on."""
    writers = [worker for _, worker in rows]
    expect(W1 in writers, f"key {key}: nothing of the new owner")
    first = writers.index(W1)
    late = [(at, count) for at, (count, worker) in enumerate(rows) if at > first and worker == W0]
    expect(
        not late,
        f"key {key}: {len(late)} of {len(rows)} outputs are of the stopped worker and behind the first of the new one,"
        f" number {first} with count {rows[first][0]}: (number, count) {late[:10]}",
    )
    counts = [count for count, _ in rows[first:]]
    expect(
        counts == list(range(counts[0], counts[0] + len(counts))),
        f"key {key}: counts {counts[-10:]} of the new owner: its state was overwritten",
    )


async def stop(bench: Bench) -> None:
    """SIGTERM under load: the worker finishes, commits, leaves the group, exits with 0; its standby goes on exactly."""
    await bench.settled()
    await bench.send(1)
    before = await bench.counted(exactly=False)
    own = [p for p, row in enumerate(bench.rows) if row[0] == W1]
    await bench.send(100, own)
    code = await bench.terminate(W1)
    members = await asyncio.to_thread(bench.kafka.members)
    expect(code == 0, f"exit code {code}")
    expect(members == 1, f"{members} members of the group after the exit of one of two: it has not left")
    await bench.settled([W0])
    await bench.send(1)
    after = await bench.counted(exactly=False)
    for key, rows in before.items():
        counts = [count for count, _ in after[key][len(rows) - 1 :]]
        expected = list(range(counts[0], counts[0] + len(counts)))
        expect(counts == expected, f"key {key}: {len(counts)} counts from {counts[0]} to {counts[-1]}, not one by one")
