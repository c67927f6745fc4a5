"""The controller as a process on a real broker; workers and agents are played by the test at their Kafka port."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer

from tests.e2e.played_cluster import APP, LIMIT_S, OPERATOR, World, host_of, key_group, wait_until_it_acts
from trimtab_controller.execution.state import HandoverPhase
from trimtab_controller.kafka.chunks import split
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, encode_ack
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import decode_placement, encode_placement
from trimtab_sandbox.broker import Broker, free_ports

pytestmark = pytest.mark.light


def is_measured(status: dict) -> bool:
    return [row["after"] is not None for row in status["rounds"]] == [True]


def test_from_snapshot_to_balanced_cluster(world: World) -> None:
    world.start()
    wait_until_it_acts(world)
    first = world.next_command(CommandKind.PREPARE, windows=True)
    assert world.placements[0].epoch == Epoch(1, 2), "before the first plan: the ownership as it is"
    assert (first.source, first.host) == ("w0", host_of(first.worker))
    world.hand_over(first)
    world.hand_over_rest()
    world.wait("measured round", lambda: "measured" in world.log_text(), windows=True)
    assert sorted(list(world.owners.values()).count(worker) for worker in world.workers) == [4, 4, 4]
    world.check_placements()
    [row] = world.status_when("measured round", is_measured)["rounds"]
    assert (row["migrations"], row["failed"], row["status"]) == (8, 0, "optimal")
    assert (row["after"], row["handovers"]) == (pytest.approx(0.0), {HandoverPhase.DONE: len(row["pauses_s"])})
    assert 0.0 < row["recovery_bound_s"] <= row["recovery_planned_s"]
    assert world.metric("trimtab_controller_recovery_seconds") == row["recovery_s"] > 0.0
    assert world.metric("trimtab_controller_moves_total") == 8
    assert "inside the band" in world.trimtab("plan")


def test_workers_can_read_what_is_published(world: World) -> None:
    async def first_value() -> bytes:
        reader = AIOKafkaConsumer(
            bootstrap_servers=world.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await reader.start()
        try:
            reader.assign([aiokafka.TopicPartition(world.topics.placement, 0)])
            return bytes((await asyncio.wait_for(reader.getone(), LIMIT_S)).value)
        finally:
            await reader.stop()

    world.start()
    wait_until_it_acts(world)
    world.wait("placement", lambda: bool(world.placements), windows=True)
    assert decode_placement(asyncio.run(first_value())) == world.placements[0]


def test_killed_between_all_steps_the_plan_goes_on(world: World) -> None:
    def kill_and_restart() -> None:
        process = world.running[-1]
        process.kill()
        process.wait()
        acting = world.log_text().count("acting as generation")
        world.start()
        world.wait("restart", lambda: world.log_text().count("acting as generation") > acting)

    world.start()
    wait_until_it_acts(world)
    world.wait("first placement", lambda: bool(world.placements), windows=True)
    kill_and_restart()
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    kill_and_restart()  # prepare published, nobody has answered
    world.wait("repeated prepare", lambda: world.commands.count(prepare) == 2)
    world.ack(prepare, Phase.PREPARED, generation=3)
    release = world.next_command(CommandKind.RELEASE)
    kill_and_restart()  # release published
    world.wait("repeated release", lambda: world.commands.count(release) == 2)
    world.running[-1].kill()
    world.take(prepare)  # while no controller lives
    kill_and_restart()
    world.hand_over_rest()
    assert len({command.handover for command in world.commands if command.kind is CommandKind.RELEASE}) >= 2
    kill_and_restart()  # the plan has ended
    world.wait("measured round", lambda: "measured" in world.log_text(), windows=True)
    assert sorted(list(world.owners.values()).count(worker) for worker in world.workers) == [4, 4, 4]
    world.check_placements()
    assert [row["failed"] for row in world.status_when("measured round", is_measured)["rounds"]] == [0]
    generations = {placement.epoch.generation for placement in world.placements}
    assert len(generations) >= 4, "every successor publishes under its own generation"


def test_a_new_key_signs_the_placements_anew_and_forged_ones_are_as_if_not_there(world: World) -> None:
    def restart() -> None:
        world.running[-1].terminate()
        assert world.running[-1].wait(LIMIT_S) == 0
        acting = world.log_text().count("acting as generation")
        world.start()
        world.wait("restart", lambda: world.log_text().count("acting as generation") > acting)

    world.owners = {key_group(p): f"w{p % 3}" for p in range(12)}
    world.start()
    world.wait("placement", lambda: bool(world.placements), windows=True)
    old, true = world.signers[-1], world.placements[-1]
    new = world.keys.begin().public.id
    world.keys.switch()
    refusal = world.trimtab("keys", "rotate", "finish", code=1)
    assert f"found placements signed by an older key, expected key {new}: app (key {old})" in refusal
    restart()
    world.wait("signature of the new key", lambda: world.signers[-1] == new)
    assert f"finish: key {new}" in world.trimtab("keys", "rotate", "finish")
    assert (old != new, world.placements[-1]) == (True, true)

    forged = replace(true, epoch=Epoch(99, 1), owners={OPERATOR: ((WorkerId("w0"),),) * 12})
    world.produce(world.topics.placement, APP.encode(), encode_placement(forged))
    acting = world.log_text().count("acting as generation")
    world.running[-1].kill()
    world.start()
    deadline = time.monotonic() + LIMIT_S
    while world.log_text().count("acting as generation") <= acting:  # not followed: the test itself trusts no forgery
        assert time.monotonic() < deadline, world.log_text()
        world.publish_window()
    assert "refused message 1 of this kind" in world.log_text()
    while "inside the band" not in world.log_text().rpartition("acting as")[2]:
        assert time.monotonic() < deadline, world.log_text()
        world.publish_window()
    unsigned = f"{world.topics.placement}.unsigned"
    while unsigned not in (status := world.status())["rejected"] or not status["epoch"]:
        assert time.monotonic() < deadline, status
        world.publish_window()
    assert status["rejected"][unsigned] == 1
    assert status["epoch"][0] <= 3, "one more than the true one's, not than the forged one's"


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


def test_every_key_group_has_a_standby_also_when_a_worker_is_gone(world: World) -> None:
    def rows() -> dict[KeyGroup, Owners]:
        last = world.placements[-1] if world.placements else None
        return {each: last.of(each.operator, each.partition) if last else () for each in world.owners}

    def complete() -> bool:
        return all(len(row) == 2 and set(row) <= set(world.workers) for row in rows().values())

    world.config.write_text(world.config.read_text().replace("[balance]\n", "[balance]\nlost_worker_s = 3.0\n"))
    world.standbys = 1
    world.owners = {key_group(p): f"w{p % 3}" for p in range(12)}
    world.start()
    wait_until_it_acts(world)
    world.wait("standbys", complete, windows=True)
    assert [placement.epoch for placement in world.placements] == [Epoch(1, 2)], "with the first placement"
    assert Counter(rows().values()) == dict.fromkeys(permutations(world.workers, 2), 2), "orphans would be spread"

    world.workers.remove("w2")
    planned = {each: row[1] for each, row in rows().items() if row[0] == "w2"}
    world.owners.update(planned)
    world.wait("standbys of all again", complete, windows=True)
    world.check_placements()
    assert Counter(rows().values()) == {("w0", "w1"): 6, ("w1", "w0"): 6}
    world.publish_window()
    world.status_when("none is missing", lambda shown: [row["missing_standbys"] for row in shown["apps"]] == [0])
    assert world.metric("trimtab_controller_key_groups_without_standby") == 0
    ratio, bound = (world.metric(f"trimtab_controller_n_minus_1_{name}ratio") for name in ("", "bound_"))
    assert 0 < bound == pytest.approx(ratio), "the other worker takes all"
    world.status_when(
        "N-1", lambda shown: [set(row["n_minus_1_lost"]) < {"w0", "w1"} for row in shown["apps"]] == [True]
    )
    assert f"N-1: {100 * ratio:.0f} %" in world.trimtab("status")


def test_the_placement_follows_renamed_operators_and_the_cluster_is_balanced_again(world: World) -> None:
    renamed = OperatorId("totals")
    world.operators = {OPERATOR: 12}
    world.start()
    wait_until_it_acts(world)
    world.wait("first placement", lambda: bool(world.placements), windows=True)
    world.next_command(CommandKind.PREPARE, windows=True)
    world.hand_over_rest()

    whole, owners = world.snapshot(), dict(world.owners)
    world.owners = {KeyGroup(APP, renamed, at): owners[key_group(at)] for at in range(12)}
    world.operators = {renamed: 12}
    first, *others = world.snapshot().nodes
    mixed = (replace(first, operators={OPERATOR: 12}), *others)
    deadline = time.monotonic() + LIMIT_S
    while "w0: sums with 12 key groups; w1, w2: totals with 12 key groups" not in world.log_text():
        assert time.monotonic() < deadline, world.log_text()
        world.publish_window(nodes=mixed, key_groups=whole.key_groups)
    world.status_when("reason", lambda shown: shown["runbook"] == "operators_differ")
    world.wait("adoption", lambda: list(world.placements[-1].owners) == [renamed], windows=True)
    assert "operators gone: sums; new: totals: the placement follows the reports" in world.log_text()
    world.check_placements()
    world.wait("calm", lambda: world.log_text().rstrip().endswith("inside the band of 5.0 pp"), windows=True)


def test_the_broker_may_be_away_at_start_and_later(
    private_broker: Callable[[], Broker], unique: str, tmp_path: Path
) -> None:
    broker = private_broker()
    world = World(broker.address, unique, tmp_path, free_ports(1)[0])
    try:
        broker.stop()
        process = world.start()
        wait_until_it_acts(world, "does not answer")
        broker.start()
        wait_until_it_acts(world)
        prepare = world.next_command(CommandKind.PREPARE, windows=True)
        broker.kill()
        time.sleep(1.0)
        broker.start()
        world.hand_over(prepare)
        world.hand_over_rest()
        world.check_placements()
        assert process.poll() is None
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    finally:
        world.close()
