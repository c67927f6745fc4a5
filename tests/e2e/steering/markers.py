"""What must not make an outage of a plan: changelogs that end with what is no record, and events that agents hold."""

import asyncio
import contextlib
import re
from collections.abc import Iterator

from confluent_kafka import Producer

from flights.readback import read_topic
from tests.e2e.steering.app_names import HOLD, MAY_NOT_TELL
from tests.e2e.steering.cluster import Cluster, until
from tests.e2e.steering.run_setup import CHANGELOGS, REGROUP, SOURCE
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.names import KeyGroup, WorkerId

COUNTS = CHANGELOGS[0]
BATCH_S = 6.0
TRIES = 5
WRONG = b"1000000"
"""A count that no key has; who applies it is found by the judge."""


def last_record(cluster: Cluster, partition: int) -> tuple[bytes, bytes]:
    """Key and value of the last record of a changelog partition of the table of counts."""
    *_, last = (row for row in read_topic(cluster.broker.address, COUNTS) if row.partition == partition)
    assert last.key is not None
    assert last.value is not None
    return last.key, last.value


@contextlib.contextmanager
def transaction(cluster: Cluster, name: str) -> Iterator[Producer]:
    """A transaction that is still open in the block, and aborted after it unless the block commits it."""
    tool = Producer({"bootstrap.servers": cluster.broker.address, "transactional.id": name})
    tool.init_transactions(30.0)
    tool.begin_transaction()
    yield tool
    with contextlib.suppress(Exception):
        tool.abort_transaction(30.0)


def mark(cluster: Cluster, partition: int, *, committed: bool) -> None:
    """End the changelog with the marker of a transaction: the last record again, or a wrong one that is aborted."""
    key, value = last_record(cluster, partition)
    with transaction(cluster, f"tool-{partition}") as tool:
        tool.produce(COUNTS, key=key, value=value if committed else WRONG, partition=partition)
        tool.flush(30.0)
        if committed:
            tool.commit_transaction(30.0)


async def marked(cluster: Cluster) -> None:
    """Quiet moves, a restart with an empty disk, a take that cannot succeed, busy moves: all in one generation each."""
    await cluster.settled(150.0)
    await cluster.worked_off()
    first, second = (k for k in sorted(cluster.key_groups) if k.operator == SOURCE and k.partition < 2)
    before = cluster.generations()
    for key_group, committed in ((first, True), (second, False)):
        await asyncio.to_thread(mark, cluster, key_group.partition, committed=committed)
        source = cluster.row(key_group)[0]
        assert await cluster.hand_over((key_group,), source, _other(cluster, source)), "a quiet move"
        await asyncio.to_thread(mark, cluster, key_group.partition, committed=committed)
    await cluster.settled()
    assert cluster.generations() == before

    restarted = cluster.row(first)[0]
    await cluster.terminate(restarted)
    cluster.start(restarted, disk=f"{restarted}-empty")
    await cluster.settled()
    cluster.load.start()
    await asyncio.sleep(1.0)
    await comes_back(cluster, first)
    await cannot_be_told(cluster, second)
    before = cluster.generations()
    for key_group in (first, second):
        assert await moves_in_the_end(cluster, key_group), "a busy move"
    await held(cluster)
    assert cluster.generations() == before


async def moves_in_the_end(cluster: Cluster, key_group: KeyGroup) -> bool:
    """A hand-over that may be refused a few times: on a busy machine an event is in work for longer than the limit."""
    source = cluster.row(key_group)[0]
    for _ in range(TRIES):
        if await cluster.hand_over((key_group,), source, _other(cluster, source)):
            return True
        cluster.place((key_group,), (source,))
        await cluster.publish()
    return False


async def held(cluster: Cluster) -> None:
    """An agent that acknowledges by hand: at its pleasure, then all that it has every few seconds, as a batch does."""
    hold = cluster.folder / HOLD
    key_group = next(k for k in sorted(cluster.key_groups) if k.operator == REGROUP)
    source = cluster.row(key_group)[0]

    def waiting() -> int:
        return sum(each.backlog or 0 for _, said in cluster.agent.statistics.values() for each in said.key_groups)

    hold.write_text("600")
    await asyncio.sleep(5.0)
    few = cluster.setup.rate  # it holds five times as many by now, and more every second
    assert await until(lambda: waiting() < few, 120.0, waiting), "what an agent holds counts as waiting"
    assert not await cluster.hand_over((key_group,), source, _other(cluster, source), took_limit_s=1.0)
    where = re.compile(rf"regrouped/{key_group.partition} offset \d+ is in work for \d+ s, and nobody knows")

    def refused() -> bool:
        told = [ack.detail or "" for ack in cluster.agent.acks if ack.refusal is Refusal.DRAIN_TIMEOUT]
        return any(map(where.search, told))

    assert await until(refused, 60.0), cluster.agent.acks[-3:]
    cluster.place((key_group,), (source,))
    await cluster.publish()
    hold.write_text(f"{BATCH_S}")
    await asyncio.sleep(2.2 * BATCH_S)
    assert await cluster.hand_over((key_group,), source, _other(cluster, source), took_limit_s=15.0)
    assert (cluster.moves[-1].pause_s or 0.0) < BATCH_S - 1.0, "it stood still although the flush was far away"
    hold.unlink()


async def comes_back(cluster: Cluster, key_group: KeyGroup) -> None:
    """While a tool's transaction is open, the target cannot read to the end: the key group goes back to its source."""
    before, source = cluster.generations(), cluster.row(key_group)[0]
    with transaction(cluster, "open") as tool:
        tool.produce(COUNTS, key=b'"nobody"', value=WRONG, partition=key_group.partition)
        tool.flush(30.0)
        assert not await cluster.hand_over((key_group,), source, _other(cluster, source))
        log = cluster.folder / "logs" / f"{source}.log"
        assert await until(lambda: f"gave {key_group} back" in log.read_text(), 60.0)
        assert await until(lambda: cluster.owners()[key_group] == [source], 60.0)
    cluster.place((key_group,), (source,))
    await cluster.publish()
    await asyncio.sleep(5.0)  # longer than the source would wait before it asks for a rebalance
    assert cluster.generations() == before, "the others had a rebalance"


async def cannot_be_told(cluster: Cluster, key_group: KeyGroup) -> None:
    """The worker may not write to the topic of hand-over records, as with an ACL that is missing."""
    before, source = cluster.generations(), cluster.row(key_group)[0]
    (cluster.folder / MAY_NOT_TELL).touch()
    assert not await cluster.hand_over((key_group,), source, _other(cluster, source), took_limit_s=5.0)
    (cluster.folder / MAY_NOT_TELL).unlink()
    assert any("may not write" in (ack.detail or "") for ack in cluster.agent.acks), cluster.agent.acks[-3:]
    assert await until(lambda: cluster.owners()[key_group] == [source], 60.0)
    cluster.place((key_group,), (source,))
    await cluster.publish()
    await asyncio.sleep(5.0)
    assert cluster.generations() == before, "the others had a rebalance"


def _other(cluster: Cluster, source: WorkerId) -> WorkerId:
    return next(name for name in sorted(cluster.alive) if name != source)
