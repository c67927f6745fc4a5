"""Placements in parts, on a real broker: taken over amid a plan, signed anew, and compacted."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from flights.readback import read_topic
from tests.e2e.played_cluster import APP, LIMIT_S, OPERATOR, World, key_group, wait_until_it_acts
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.channel import Channel
from trimtab_controller.kafka.connection import Connection, ensure_topics
from trimtab_controller.kafka.publisher import Publisher
from trimtab_controller.loop.publications import placement_records
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.names import Epoch, KeyGroup, Topics, WorkerId
from trimtab_protocol.messages.owner_rows import PART_SIZE
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import decode_record, part_key
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes

pytestmark = pytest.mark.light

PARTS = 3
EVERYTHING = [key_group(partition) for partition in range(PARTS * PART_SIZE)]
LOADED = [each for each in EVERYTHING if each.partition % PART_SIZE < 4]


@pytest.fixture
def parted(world: World) -> World:
    """Three parts with four key groups each that have any load; all are on w0."""
    world.owners = dict.fromkeys(EVERYTHING, "w0")
    world.idle = frozenset(EVERYTHING).difference(LOADED)
    return world


def is_measured(status: dict) -> bool:
    return [row["after"] is not None for row in status["rounds"]] == [True]


def test_killed_between_all_steps_the_plan_goes_on(parted: World) -> None:
    world = parted
    world.start()
    wait_until_it_acts(world)
    world.wait("first placement", lambda: bool(world.placements), windows=True)
    world.restart()
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    world.restart()  # prepare published, nobody has answered
    world.wait("repeated prepare", lambda: world.commands.count(prepare) == 2)
    world.ack(prepare, Phase.PREPARED, generation=3)
    release = world.next_command(CommandKind.RELEASE)
    world.restart()  # release published
    world.wait("repeated release", lambda: world.commands.count(release) == 2)
    world.running[-1].kill()
    world.take(prepare)  # while no controller lives
    world.restart()
    world.hand_over_rest()
    assert len({command.handover for command in world.commands if command.kind is CommandKind.RELEASE}) >= 2
    world.restart()  # the plan has ended
    world.wait("measured round", lambda: "measured" in world.log_text(), windows=True)
    assert sorted(Counter(world.owners[each] for each in LOADED).values()) == [4, 4, 4]
    world.check_placements()
    assert [row["failed"] for row in world.status_when("measured round", is_measured)["rounds"]] == [0]
    generations = {placement.epoch.generation for placement in world.placements}
    assert len(generations) > 1, "successors publish, if they are not killed before"
    check_form(world)
    assert fresh(world).newest == world.placements[-1]


def test_a_new_key_signs_the_placements_anew_and_forged_ones_are_as_if_not_there(parted: World) -> None:
    world = parted
    world.owners = {each: f"w{each.partition % 3}" for each in EVERYTHING}
    world.start()
    world.wait("placement", lambda: bool(world.placements), windows=True)
    old, true = world.signers[-1], world.placements[-1]
    new = world.keys.begin().public.id
    world.keys.switch()
    refusal = world.trimtab("keys", "rotate", "finish", code=1)
    assert f"found placements signed by an older key, expected key {new}: app (key {old})" in refusal
    world.restart(kill=False)
    world.wait("signature of the new key", lambda: world.signers[-1] == new)
    assert f"finish: key {new}" in world.trimtab("keys", "rotate", "finish")
    assert (old != new, world.placements[-1]) == (True, true)

    forged = replace(true, epoch=Epoch(99, 1), owners={OPERATOR: ((WorkerId("w0"),),) * len(EVERYTHING)})
    world.produce(world.topics.placement, APP.encode(), encoded(forged))
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
    check_form(world)
    assert world.keys_written[PARTS + 1 : 2 * (PARTS + 1)] == world.keys_written[: PARTS + 1]


def check_form(world: World) -> None:
    assert {placement.part_size for placement in world.placements} == {PART_SIZE}
    assert world.keys_written[: PARTS + 1] == [*(part_key(APP, OPERATOR, part) for part in range(PARTS)), b"app"]


def fresh(world: World) -> PlacementLog:
    """What a reader has that begins now."""
    log = PlacementLog()
    for key, value in records(world.bootstrap, world.topics).items():
        log.take(decode_record(key, value))
    log.settle()
    return log


def records(bootstrap: str, topics: Topics) -> Mapping[bytes, bytes]:
    """The last record of each key."""
    found = {row.key: row.value for row in read_topic(bootstrap, topics.placement)}
    return {key: value for key, value in found.items() if key is not None and value is not None}


# --- readers that start at any time, on a topic that is compacted all the time


@pytest.fixture
def compacting(tmp_path: Path) -> Iterator[Broker]:
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.001"}
    with (
        Processes(tmp_path / "logs") as processes,
        Broker(tmp_path / "broker", processes, settings=settings) as broker,
    ):
        yield broker


STEPS, KEY_GROUPS, SMALL_PART = 250, 60, 4


@pytest.mark.timeout(240)
def test_readers_that_start_while_the_topic_is_compacted_have_only_what_was_published(compacting: Broker) -> None:
    topics, connection = Topics("t"), Connection(kafka=compacting.kafka)
    admin = AdminClient({"bootstrap.servers": compacting.address})
    ensure_topics(admin, topics)
    often = {"min.cleanable.dirty.ratio": "0.0", "segment.ms": "100", "delete.retention.ms": "0"}
    change = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in often.items()]
    resource = ConfigResource(ResourceType.TOPIC, topics.placement, incremental_configs=change)
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)
    published: dict[Epoch, Placement] = {}
    followed: list[tuple[int, Placement]] = []
    chance = random.Random(7)
    publisher = Publisher(connection, "trimtab.t.controller", lambda: False)

    def publish(before: Placement | None, after: Placement) -> Placement:
        published[after.epoch] = after
        publisher.publish(placement_records(after, before, topics))
        return after

    async def reader(number: int) -> PluginState:
        shared = PluginState(cluster="t", app=APP, worker=WorkerId("w0"))
        channel = Channel(
            shared,
            {"bootstrap_servers": compacting.address},
            on_placement=lambda: followed.append((number, shared.placement)),  # type: ignore[arg-type]
            on_handover=lambda *_: None,
        )
        reading = asyncio.ensure_future(channel.run())
        try:
            while shared.placement is None or shared.placement.epoch.number < STEPS:
                assert not reading.done()
                await asyncio.sleep(0.05)
        finally:
            reading.cancel()
            await channel.close()
        return shared

    async def play() -> list[PluginState]:
        rows = [(WorkerId("w0"), WorkerId("w1"))] * KEY_GROUPS
        first = Placement(cluster="t", app=APP, epoch=Epoch(1, 1), owners={OPERATOR: rows}, part_size=SMALL_PART)
        newest = publish(None, first)
        readers = []
        for number in range(2, STEPS + 1):
            changed = {
                KeyGroup(APP, OPERATOR, chance.randrange(KEY_GROUPS)): (WorkerId(f"w{chance.randrange(9)}"),)
                for _ in range(4)
            }
            newest = await asyncio.to_thread(publish, newest, newest.changed(Epoch(1, number), changed))
            if number % 40 == 0:
                readers.append(asyncio.ensure_future(reader(number)))
        readers.append(asyncio.ensure_future(reader(STEPS + 1)))
        return list(await asyncio.wait_for(asyncio.gather(*readers), 2 * LIMIT_S))

    boards = asyncio.run(play())

    assert all(board.placement == published[Epoch(1, STEPS)] for board in boards)
    assert all(board.flaw is None and not board.refused for board in boards)
    assert all(placement == published[placement.epoch] for _, placement in followed)
    assert len(followed) > STEPS
    assert heads(compacting, topics) < STEPS / 2, "hardly anything was compacted"


def heads(broker: Broker, topics: Topics) -> int:
    """Heads that are still on the topic."""
    return sum(row.key == APP.encode() for row in read_topic(broker.address, topics.placement))
