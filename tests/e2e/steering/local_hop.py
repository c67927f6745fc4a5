"""What is done to a cluster whose agents' events skip the broker: the oracle of the local hop."""

import asyncio
import json
import math
import signal
import time
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.e2e.steering.app_names import Feature, named_for, note_fault
from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.run_setup import REGROUP, Setup
from tests.e2e.steering.scenarios import (
    SHORT_SESSION,
    SLOW_STEPS,
    Act,
    Scenario,
    begin,
    cold_plans,
    drain_and_return,
    hand_overs,
    joins,
    kills,
    moves,
    slow_hand_overs,
    stops,
    storm,
)  # fmt: skip
from tests.e2e.steering.verdict import read_topic
from trimtab_protocol.messages.names import WorkerId

MANY = 8
GROUPS = 10
"""Few, so that the next event with the same key from the same source partition is only 40 numbers away."""


def direct(cluster: Cluster, what: str = "direct") -> int:
    """How many events were direct, overtaking or given up, of all workers that have not started again since."""
    return sum(json.loads(path.read_text())[what] for path in cluster.folder.glob("*.direct"))


def watched(act: Act, *, at_least: int = 50, at_most: float = math.inf) -> Act:
    """The same, and it counts only if so many events were direct, and none overtook another."""

    async def act_and_look(cluster: Cluster) -> None:
        await act(cluster)
        await asyncio.sleep(1.0)
        found, overtaking = direct(cluster), direct(cluster, "overtaking")
        assert at_least <= found <= at_most, f"{found} events were direct"
        assert overtaking == 0, f"{overtaking} events went by the broker too early"

    return act_and_look


def local(scenario: Scenario, *, at_least: int = 50, at_most: float = math.inf, **changed: object) -> Scenario:
    """A scenario of steering, with local topics."""
    changed = {"groups": GROUPS, **changed}
    setup = replace(scenario.setup, features=(*scenario.setup.features, Feature.LOCAL), **changed)  # type: ignore[arg-type]
    return replace(scenario, setup=setup, act=watched(scenario.act, at_least=at_least, at_most=at_most))


def without_keys(setup: Setup) -> Setup:
    """The same run, with events between the agents that have no key."""
    return replace(setup, features=(*setup.features, Feature.WITHOUT_KEYS))


async def busy(cluster: Cluster, for_s: float, limit_s: float = 60.0) -> WorkerId:
    """A worker that has had unfinished direct events for so long, and owns their key groups.

    Raises AssertionError after the limit.
    """
    since: dict[WorkerId, float] = {}
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        owners = {cluster.row(k)[0] for k in cluster.key_groups if k.operator == REGROUP}
        for name in owners & cluster.alive.keys():
            told = cluster.folder / f"{name}.direct"
            if told.exists() and json.loads(told.read_text())["unfinished"] >= MANY:
                if time.monotonic() - since.setdefault(name, time.monotonic()) >= for_s:
                    return name
            else:
                since.pop(name, None)
        await asyncio.sleep(0.05)
    raise AssertionError("no worker has many unfinished direct events")


async def kill(cluster: Cluster, name: WorkerId) -> WorkerId:
    """kill -9 of a worker."""
    child = cluster.alive.pop(name)
    child.send(signal.SIGKILL)
    note_fault(cluster.folder)  # at once: on a busy machine it takes a while until its end is seen
    assert await until(lambda: not child.alive, 60.0), f"{name} lives on"
    return name


def killed(
    count: int, *, burst: int = 0, moving: bool = False, busy_s: float | None = None, rest_s: float = 0.0
) -> Act:
    """kill -9 of workers, which start again: at the usual load, in a burst of it, or among hand-overs.

    Before each the job runs for `rest_s`: what is then done again shows how often it commits.

    A random one, or one that has had many unfinished direct events for `busy_s`.
    """

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for _ in range(count):
            await asyncio.sleep(rest_s)
            if burst:
                await cluster.load.send_numbers(burst)
                if busy_s is None:
                    await asyncio.sleep(cluster.random.uniform(0.1, 1.0))
            if moving:
                await hand_overs(cluster, 2, most=3, rest_s=0.1)
                handing = asyncio.create_task(cluster.hand_over(*cluster.pick(3), took_limit_s=3.0))
                await asyncio.sleep(cluster.random.uniform(0.0, 0.5))
            victim = cluster.random.choice(list(cluster.alive)) if busy_s is None else await busy(cluster, busy_s)
            name = await kill(cluster, victim)
            if moving:
                await handing
            await cluster.settled(60.0)
            cluster.start(name)
            await cluster.settled(150.0)
            await asyncio.sleep(1.0)

    return act


def random_plans(count: int, *, burst: int = 0) -> Act:
    """Hand-overs of several key groups and rebalances, in random order, some at the same time, each after a burst."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for _ in range(count):
            await cluster.load.send_numbers(burst)
            if cluster.random.random() < 0.6:
                await hand_overs(cluster, 2, most=4, rest_s=0.1)
            else:
                handing = asyncio.create_task(cluster.hand_over(*cluster.pick(4)))
                await asyncio.sleep(cluster.random.uniform(0.0, 0.6))
                await cluster.publish()
                await cluster.rejoin()
                await handing
            await cluster.settled()

    return act


def leaves_while_busy(count: int) -> Act:
    """Hand over all that a worker has between the agents while its direct events wait in the queues."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for _ in range(count):
            await cluster.load.send_numbers(200)
            source = await busy(cluster, 0.2)
            mine = [k for k in cluster.key_groups if k.operator == REGROUP and cluster.row(k)[0] == source]
            target = cluster.random.choice([name for name in cluster.alive if name != source])
            await cluster.hand_over(tuple(mine), source, target, took_limit_s=15.0)
            await cluster.settled()

    return act


def bursts(count: int) -> Act:
    """More at once than the agents' queues hold; nothing moves."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for _ in range(count):
            await cluster.load.send_numbers(150)
            await asyncio.sleep(4.0)
        await cluster.worked_off()

    return act


async def in_vain(cluster: Cluster) -> None:
    """Agents are too slow for the time that a drain may take: releases are refused, rebalances go on without them."""
    await begin(cluster)
    for _ in range(3):
        await cluster.load.send_numbers(200)
        await asyncio.sleep(0.5)
        await cluster.hand_over(*cluster.pick(4), took_limit_s=8.0)
        note_fault(cluster.folder)  # what was queued is given up and done again
        await cluster.publish()
        await cluster.rejoin(60.0)
        await cluster.settled(90.0)


def told(cluster: Cluster, what: str) -> dict[str, Any]:
    """What each worker tells of its direct events."""
    return {path.stem: json.loads(path.read_text())[what] for path in cluster.folder.glob("*.direct")}


async def outside_reader(cluster: Cluster) -> None:
    """Another group begins to read the topic between the agents: soon it misses no event, whatever then happens."""
    topic = named_for(cluster.app, "regrouped")
    await begin(cluster)
    assert await until(lambda: direct(cluster) >= 200, 30.0), "events are not direct"
    reader = Consumer({"bootstrap.servers": cluster.broker.address, "group.id": "analyst"})
    reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    reader.close()
    assert await until(lambda: all(told(cluster, "refused").values()), 30.0), "the reader is not noticed"
    await asyncio.sleep(5.0)  # what was under way is finished
    since, before = len(cluster.load.sent), told(cluster, "direct")
    await hand_overs(cluster, 3, most=3)
    await cluster.publish()
    assert await cluster.rejoin()
    await cluster.settled()
    assert await cluster.terminate(worker(0)) == 0
    cluster.start(worker(0))
    await cluster.settled(150.0)
    await asyncio.sleep(3.0)
    await cluster.load.stop()
    wanted = set(range(since, len(cluster.load.sent)))

    def missed() -> set[int]:
        rows = (row for rows in read_topic(cluster, topic).values() for row in rows)
        return wanted - {int(value) for _, value, _ in rows if value}

    assert len(wanted) > 100
    assert await until(lambda: not missed(), 30.0), f"the reader misses {len(missed())} of {len(wanted)} events"
    assert told(cluster, "direct") == {**before, str(worker(0)): 0}


async def without_cython(cluster: Cluster) -> None:
    """Workers with Faust's pure-Python streams are not steered, and then every event goes by the broker."""
    assert await until(lambda: cluster.agent.statistics.keys() >= cluster.alive.keys(), 60.0), "not all workers run"
    hellos = {name: cluster.agent.hellos[name] for name in cluster.alive}
    assert all(not each.steering and "NO_CYTHON" in (each.reason or "") for each in hellos.values()), hellos
    cluster.load.start()
    await asyncio.sleep(15.0)


OVERFLOWING = Setup(
    seed=58,
    rate=40.0,
    keys=16,
    preload=30,
    slow_s=0.05,
    local={"depth": 16, "room_wait_s": 0.005, "retry_s": 0.1},
    session_s=8.0,
    took_limit_s=2.0,
)
"""Direct events and events by the broker alternate, and many of the direct ones are not finished."""
FAST = {"rate": 100.0, "preload": 300}
_SCENARIOS = (
    Scenario(name="local: hand-overs and rebalances", setup=Setup(seed=41, **FAST), act=random_plans(4)),  # type: ignore[arg-type]
    Scenario(name="local: kills", setup=Setup(seed=42, **FAST, **SHORT_SESSION), act=killed(2, rest_s=8.0)),  # type: ignore[arg-type]
    Scenario(name="local: kills in a burst", setup=Setup(seed=43, **FAST, **SHORT_SESSION), act=killed(2, burst=600)),  # type: ignore[arg-type]
    Scenario(
        name="local: kills among hand-overs",
        setup=Setup(seed=44, **FAST, **SHORT_SESSION),  # type: ignore[arg-type]
        act=killed(2, burst=100, moving=True),
    ),
    Scenario(
        name="local: kills, slow readers, few keys",
        setup=Setup(seed=45, rate=60.0, keys=24, preload=100, slow_s=0.003, local={"depth": 16}, **SHORT_SESSION),  # type: ignore[arg-type]
        act=killed(2, burst=300, moving=True),
    ),
    Scenario(name="local: kills, queues overflow", setup=OVERFLOWING, act=killed(2, burst=200, busy_s=0.2)),
    Scenario(name="local: kills in hand-overs", setup=Setup(seed=46, **FAST, **SHORT_SESSION), act=kills()),  # type: ignore[arg-type]
    Scenario(name="local: stops", setup=Setup(seed=47, **FAST, **SHORT_SESSION), act=stops),  # type: ignore[arg-type]
    Scenario(
        name="local: drains in vain",
        setup=Setup(seed=48, rate=20.0, preload=60, slow_s=0.1, drain_limit_s=1.0, **SHORT_SESSION),  # type: ignore[arg-type]
        act=in_vain,
    ),
    Scenario(
        name="local: slow readers",
        setup=Setup(seed=49, rate=60.0, preload=300, slow_s=0.01, local={"depth": 16}),
        act=random_plans(6),
    ),
    Scenario(
        name="local: tiny queues", setup=Setup(seed=50, **FAST, queue=4, slow_s=0.002), act=random_plans(4, burst=150)
    ),  # type: ignore[arg-type]
    Scenario(
        name="local: leaves while busy",
        setup=Setup(seed=60, rate=10.0, preload=60, slow_s=0.03, took_limit_s=15.0),
        act=leaves_while_busy(4),
    ),
    Scenario(name="local: storm", setup=Setup(seed=51, rate=100.0), act=storm(6)),
    Scenario(
        name="local: storm, slow end of recovery",
        setup=Setup(seed=52, rate=100.0, preload=600, placed=False, delays_s={"perform_seek": 0.15}),
        act=storm(6),
    ),
    Scenario(name="local: joins and leaves", setup=Setup(seed=53, **FAST), act=joins(1)),  # type: ignore[arg-type]
    Scenario(name="local: windowed tables", setup=Setup(seed=54, windowed=True, **FAST), act=moves(5, 4)),  # type: ignore[arg-type]
    Scenario(
        name="local: slow hand-overs", setup=Setup(seed=55, rate=100.0, delays_s=SLOW_STEPS), act=slow_hand_overs(9)
    ),
    Scenario(name="local: drain and return", setup=Setup(seed=56, **FAST), act=drain_and_return),  # type: ignore[arg-type]
    Scenario(name="local: cold plans", setup=Setup(seed=57, **FAST), act=cold_plans(5)),  # type: ignore[arg-type]
)
OVERFLOW = Scenario(name="local: queues overflow, two keys", setup=replace(OVERFLOWING, rate=20.0), act=bursts(3))
"""With two keys, all events of a source partition have the same one: each must stay behind the one before."""
OUTSIDE = Scenario(
    name="local: outside readers",
    setup=Setup(seed=59, rate=60.0, preload=200, local={"readers_check_s": 1.0}),
    act=outside_reader,
)
NO_CYTHON = Scenario(
    name="local: without Cython",
    setup=Setup(seed=62, rate=60.0, features=(Feature.NO_CYTHON,)),
    act=without_cython,
    stock=True,
)
STRONG = ("storm", "stops", "drains in vain", "kills among hand-overs", "kills, slow readers, few keys")
"""Also with one key per source partition: then each event must stay behind the one before."""
ANYWHERE = ("hand-overs and rebalances", "stops", "kills among hand-overs", "slow readers")
"""Also with events that have no key: they stay in their worker."""
LOCAL_SCENARIOS = (
    *map(local, _SCENARIOS),
    local(OVERFLOW, groups=2),
    local(OUTSIDE, at_least=0),
    local(NO_CYTHON, at_least=0, at_most=0),
    *(
        local(replace(scenario, name=f"{scenario.name}, one key each"), groups=scenario.setup.partitions)
        for scenario in _SCENARIOS
        if scenario.name.removeprefix("local: ") in STRONG
    ),
    *(
        local(Scenario(name=f"{scenario.name}, no keys", setup=without_keys(scenario.setup), act=scenario.act))
        for scenario in _SCENARIOS
        if scenario.name.removeprefix("local: ") in ANYWHERE
    ),
)
