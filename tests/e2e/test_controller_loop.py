"""The controller as a process on a real broker; workers and agents are played by the test at their Kafka port."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.played_cluster import LIMIT_S, World, host_of, wait_until_it_acts
from trimtab_controller.kafka.chunks import split
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, encode_ack
from trimtab_protocol.messages.names import Epoch, WorkerId
from trimtab_sandbox.broker import Broker, free_ports

pytestmark = pytest.mark.light


def test_bad_input_is_counted_and_nothing_crashes_or_is_planned(world: World) -> None:
    process = world.start()
    wait_until_it_acts(world)
    whole = world.snapshot()
    future = replace(whole, start_ms=whole.start_ms + 3_600_000, end_ms=whole.end_ms + 3_600_000)
    other = replace(whole, cluster="somebody-else")
    hot = [replace(row, cpu=None if row.key_group.partition else 0.4) for row in whole.key_groups]
    topics = world.topics
    headers = split(whole)[0].headers
    command = Command(
        cluster=world.cluster,
        kind=CommandKind.STOP,
        epoch=Epoch(9, 9),
        host=host_of("w0"),
        worker=WorkerId("w0"),
        app=None,
        issued_at=1.0,
        deadline=2.0,
    )
    good = Ack.to(command, Phase.STOPPED, at=time.time())
    acks = [
        b"\xff not json",
        b'{"v":99}',
        encode_ack(good).replace(b'"at":', b'"at":NaN,"x":'),
        encode_ack(replace(good, at=time.time() + 3600)),
        encode_ack(replace(good, cluster="somebody-else")),
        encode_ack(good),  # readable, but nobody asked for it
        b'{"v":1,"detail":"' + b"x" * 900_000 + b'"}',
    ]
    for value in acks:
        world.produce(topics.acks, b"h0", value)
    for key, value in ((b"pause", b"{}"), (b"drain/w1", b'{"v":1,"by":"x","at":1e300,"reason":"r","worker":"w1"}')):
        world.produce(topics.intents, key, value)
    world.produce(topics.snapshots, b"c", b"garbage", headers)
    world.produce(topics.snapshots, b"c", b"no headers")
    for bad in (future, other, replace(whole, key_groups=tuple(hot)), replace(whole, hosts_seen=2)):
        world.send_snapshot(replace(bad, published_ms=bad.published_ms + 1))
    deadline = time.monotonic() + LIMIT_S
    while world.metric("trimtab_controller_rejected_messages_total{") < 12:
        assert time.monotonic() < deadline, world.log_text()
        time.sleep(0.2)
    assert process.poll() is None
    world.follow()
    assert (world.commands, world.placements) == ([], [])
    wanted = {"malformed", "wrong_version", "out_of_range", "future_dated", "other_cluster"}
    world.status_when("all reasons", lambda shown: wanted <= {name.rpartition(".")[2] for name in shown["rejected"]})
    world.next_command(CommandKind.PREPARE, windows=True)  # and after all that it does its work


def test_the_broker_may_be_away_at_the_start(private_broker: Callable[[], Broker], unique: str, tmp_path: Path) -> None:
    broker = private_broker()
    world = World(broker.address, unique, tmp_path, free_ports(1)[0])
    try:
        broker.stop()
        process = world.start()
        wait_until_it_acts(world, "does not answer")
        broker.start()
        world.next_command(CommandKind.PREPARE, windows=True)
        assert process.poll() is None
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    finally:
        world.close()
