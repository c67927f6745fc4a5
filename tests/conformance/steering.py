"""Clauses about placements and commands: what is followed, what is refused."""

import asyncio
import dataclasses
from collections.abc import Callable

from tests.conformance.bench import PARTITIONS, W0, W1, WORKERS, Bench, expect
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement_parts import records_of


async def first_placement(bench: Bench) -> None:
    """A placement that was there before the workers is what the first assignment follows."""
    await bench.settled()
    for worker in WORKERS:
        found = await bench.fresh(worker)
        expect(found.epoch == bench.epoch, f"{worker} works under epoch {found.epoch}, expected {bench.epoch}")


async def placement_in_parts(bench: Bench) -> None:
    """A placement in parts is followed like one in one record."""
    await bench.settled()
    bench.number += 1
    placement = dataclasses.replace(bench.placement(bench.rows, bench.epoch), part_size=PARTITIONS // 2)
    for key, value in records_of(placement, None):
        await asyncio.to_thread(bench.kafka.write_placement, value or b"", key=key)
    for worker in WORKERS:
        found = await bench.fresh(worker)
        expect(found.epoch == bench.epoch, f"{worker} knows epoch {found.epoch}, expected {bench.epoch}")
    await bench.settled()


async def refused_commands(bench: Bench) -> None:
    """A command that does not fit the worker is refused with the reason of the contract, and changes nothing."""
    await bench.settled()
    generation, prepare = bench.generation() or 0, CommandKind.PREPARE
    foreign = AppId("another-app")
    cases = [
        (bench.step(prepare, [0], W0, WorkerId("w7")), Refusal.UNKNOWN_WORKER),
        (
            bench.step(prepare, [0], W0, W1, app=foreign, key_groups=(KeyGroup(foreign, OperatorId("count"), 0),)),
            Refusal.UNKNOWN_WORKER,
        ),
        (bench.step(prepare, [1], W0, W1), Refusal.PRECONDITION),  # owned by the target
        (bench.step(prepare, [PARTITIONS], W0, W1), Refusal.PRECONDITION),  # no such key group
        (bench.step(CommandKind.RELEASE, [0], W1, W0, generation=generation), Refusal.PRECONDITION),  # not the owner
        (bench.step(CommandKind.RELEASE, [0], W0, W1, generation=generation + 1), Refusal.GENERATION),
        (bench.step(CommandKind.RELEASE, [2], W0, W1, generation=generation), Refusal.PRECONDITION),  # not placed there
        (bench.command(CommandKind.START, W1), Refusal.FAILED),
    ]
    for command, expected in cases:
        await bench.refusal(command, expected, to=W1 if command.worker not in WORKERS else None)
    await bench.settled()
    expect(bench.generation() == generation, "the group has rebalanced for a refused command")


async def refused_records(bench: Bench) -> None:
    """Records that are unsigned, old, broken or of another cluster are counted by reason, and not followed."""
    await bench.settled()
    later, swapped = Epoch(1, bench.number + 1000), [(b, a) for a, b in bench.rows]
    wrong = bench.placement(swapped, later)
    foreign = dataclasses.replace(wrong, cluster="another-cluster")
    record = HandoverRecord(
        kind=HandoverKind.RELEASED,
        cluster="another-cluster",
        app=bench.run.names.app,
        handover="handover-of-nobody",
        epoch=later,
        generation=bench.generation() or 0,
        source=W0,
        target=W1,
        key_groups=(bench.key_group(0),),
    )
    controller = bench.kafka
    cases = [
        ("unsigned", lambda: controller.place(wrong, sign=False)),
        ("wrong_signature", lambda: controller.place(wrong, signed_as=foreign)),
        ("old_epoch", lambda: controller.place(bench.placement(swapped, Epoch(0, 1)))),
        ("malformed", lambda: controller.write_placement(b"{")),
        ("wrong_version", lambda: controller.write_placement(encoded(wrong).replace(b'"v":1', b'"v":99'))),
        ("other_cluster", lambda: controller.place(foreign)),
        ("missing_field", lambda: controller.write_handover(b'{"v":1}')),
        ("other_cluster", lambda: controller.write_handover(encoded(record))),
    ]
    for reason, write in cases:
        await _expect_one_more(bench, reason, write)
    await asyncio.to_thread(controller.write_placement, encoded(wrong), key=b"another-app")
    await bench.settled()
    found = await bench.fresh(W0)
    expect(found.epoch == bench.epoch, f"epoch {found.epoch}, expected {bench.epoch}")


async def _expect_one_more(bench: Bench, reason: str, write: Callable[[], None]) -> None:
    """Each worker must count the record that is written once."""

    def counts() -> list[int]:
        return [bench.refused(worker, reason) for worker in WORKERS]

    wanted = [count + 1 for count in counts()]
    await asyncio.to_thread(write)
    await bench.until(lambda: counts() == wanted, 10.0)
    expect(counts() == wanted, f"refused as `{reason}`: {counts()}, expected {wanted}")


async def rejoin(bench: Bench) -> None:
    """`rejoin` brings a rebalance, after which the group has the placement; nothing is lost or counted twice by it."""
    await bench.settled()
    generation = bench.generation() or 0
    bench.rows = [(b, a) for a, b in bench.rows]
    await bench.publish()
    await bench.send(5)
    command = bench.command(CommandKind.REJOIN, W1)
    ack = (await bench.answers(command, Phase.REJOINED))[-1]
    expect(ack.phase is Phase.REJOINED, f"refused: {ack.refusal} {ack.detail}")
    expect((ack.generation or 0) > generation, f"generation {ack.generation}, expected one above {generation}")
    await bench.settled()
    await bench.send(5)
    await bench.counted()
    again = (await bench.answers(command, Phase.REJOINED))[-1]
    expect(again.generation == ack.generation, "a repeat has brought another rebalance")
