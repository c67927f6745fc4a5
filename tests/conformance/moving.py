"""Clauses about hand-overs: prepare, release, the records between the workers, and what is repeated or goes wrong."""

import asyncio
import time

from tests.conformance.bench import LIMIT_S, W0, W1, Bench, expect
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import WorkerId


async def prepare_and_abandon(bench: Bench) -> None:
    """A prepare changes no ownership; what is prepared can be abandoned; both are answered once more when repeated."""
    await bench.settled()
    generation = bench.generation()
    await bench.publish()
    prepare = bench.step(CommandKind.PREPARE, [0], W0, W1)
    ack = (await bench.answers(prepare, Phase.PREPARED))[-1]
    expect(ack.phase is Phase.PREPARED, f"refused: {ack.refusal} {ack.detail}")
    expect(ack.generation == generation, f"prepared in generation {ack.generation}, expected {generation}")
    expect(ack.lag_records is not None, "no lag_records")
    abandon = bench.step(CommandKind.ABANDON, [0], W0, W1)
    for times in (1, 2):
        acks = await bench.answers(abandon, Phase.ABANDONED)
        expect([a.phase for a in acks] == [Phase.ABANDONED] * times, f"answers {[a.phase for a in acks]}")
    await bench.settled()
    expect(bench.generation() == generation, "the group has rebalanced")


async def hand_over(bench: Bench) -> None:
    """Key groups change owner inside the generation, under load: nothing lost, nothing twice; repeats do nothing."""
    await bench.settled()
    generation, moved = bench.generation(), [p for p, row in enumerate(bench.rows) if row[0] == W0]
    known = len(await records(bench))
    load = asyncio.create_task(_load(bench))
    await bench.publish()
    prepare = bench.step(CommandKind.PREPARE, moved, W0, W1)
    prepared = (await bench.answers(prepare, Phase.PREPARED))[-1]
    expect(prepared.phase is Phase.PREPARED, f"refused: {prepared.refusal} {prepared.detail}")
    await bench.move(moved, (W1, W0))
    release = bench.step(CommandKind.RELEASE, moved, W0, W1, handover=prepare.handover, generation=prepared.generation)
    released = (await bench.answers(release, Phase.RELEASED))[-1]
    expect(released.phase is Phase.RELEASED, f"refused: {released.refusal} {released.detail}")
    committed = await asyncio.to_thread(bench.kafka.committed)  # at once: a later commit of the target proves nothing
    took = (await bench.awaited(prepare, Phase.TOOK))[-1]
    expect(took.phase is Phase.TOOK and took.pause_s is not None, f"answer {took.phase}, pause {took.pause_s}")
    await load
    await bench.settled()
    await bench.counted()
    expect(bench.generation() == generation, "the group has rebalanced")
    _check_records((await records(bench))[known:], moved, prepare.handover or "", generation or 0)
    await _check_offsets(bench, (await records(bench))[known], moved, committed)
    await _repeat(bench, prepare, release)


async def _load(bench: Bench) -> None:
    for _ in range(20):
        await bench.send(2)
        await asyncio.sleep(0.05)


def _check_records(found: list[HandoverRecord], moved: list[int], handover: str, generation: int) -> None:
    kinds = [record.kind for record in found]
    expect(kinds == [HandoverKind.RELEASED, HandoverKind.TOOK], f"hand-over records {kinds}, expected released, took")
    for record in found:
        expect(record.handover == handover, f"hand-over {record.handover}, expected {handover}")
        expect(record.generation == generation, f"generation {record.generation}, expected {generation}")
        expect((record.source, record.target) == (W0, W1), f"from {record.source} to {record.target}")
        partitions = sorted(key_group.partition for key_group in record.key_groups)
        expect(partitions == moved, f"partitions {partitions}, expected {moved}")
    took = found[1]
    expect(not took.offsets and not took.ends, "`took` repeats offsets")


async def _check_offsets(bench: Bench, released: HandoverRecord, moved: list[int], committed: dict[int, int]) -> None:
    """They are of exactly the key groups' partitions, committed, and no further than the logs."""
    offsets = {partition: offset for topic, partition, offset in released.offsets if topic == bench.run.names.input}
    expect(sorted(offsets) == moved and len(released.offsets) == len(moved), f"offsets {released.offsets}")
    for partition, offset in offsets.items():
        end = await asyncio.to_thread(bench.kafka.end, bench.run.names.input, partition)
        expect(
            0 < offset <= committed[partition] <= end, f"offset {offset}, committed {committed[partition]}, end {end}"
        )
    expect(sorted(row[1] for row in released.ends) == moved, f"ends {released.ends}")
    for topic, partition, end in released.ends:
        now = await asyncio.to_thread(bench.kafka.end, topic, partition)
        expect(0 < end <= now, f"end {end} of {topic}/{partition}, which has {now}")
    expect(0 < released.held_s < LIMIT_S, f"held_s {released.held_s}")


async def _repeat(bench: Bench, prepare: Command, release: Command) -> None:
    """The same commands again, as from an agent that restarted: all answers come again, and nothing is done."""
    known, owners = len(await records(bench)), bench.owners()
    for command, last in ((prepare, Phase.TOOK), (release, Phase.RELEASED)):
        before = _told(bench, command)
        await bench.answers(command, last)
        again = _told(bench, command)[len(before) :]
        expect(again == before, f"a repeated {command.kind} is answered {again}, at first {before}")
    expect(bench.owners() == owners, "a repeat has changed the owners")
    expect(len(await records(bench)) == known, "a repeat has written a hand-over record")


def _told(bench: Bench, command: Command) -> list[tuple[Phase, int | None, float | None]]:
    return [(ack.phase, ack.generation, ack.pause_s) for ack in bench.agent.acks if ack.command_id == command.id]


async def not_taken(bench: Bench) -> None:
    """Released and not taken: the source asks for a rebalance, and the placement decides."""
    await bench.settled()
    generation, nobody = bench.generation() or 0, WorkerId("w7")
    owner, standby = bench.rows[0]
    await bench.move([0], (nobody, owner))
    release = bench.step(CommandKind.RELEASE, [0], owner, nobody, generation=generation)
    began = time.monotonic()
    ack = (await bench.answers(release, Phase.RELEASED))[-1]
    expect(ack.phase is Phase.RELEASED, f"refused: {ack.refusal} {ack.detail}")
    await bench.send(5)
    rebalanced = await bench.until(lambda: (bench.generation() or 0) > generation, LIMIT_S)
    expect(rebalanced, f"no rebalance {time.monotonic() - began:.1f} s after a release that nobody took")
    await bench.settled()
    await bench.counted()
    await bench.move([0], (owner, standby))
    stale = bench.step(CommandKind.RELEASE, [0], owner, standby, generation=generation)
    await bench.refusal(stale, Refusal.GENERATION)


async def records(bench: Bench) -> list[HandoverRecord]:
    """The hand-over records of this app, without those that the test itself has written."""
    found = await asyncio.to_thread(bench.kafka.handovers)
    return [decoded(message.value(), HandoverRecord) for message in found if _is_of_workers(message.value())]


def _is_of_workers(value: bytes) -> bool:
    return b"another-cluster" not in value and value != b'{"v":1}'
