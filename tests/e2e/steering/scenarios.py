"""What is done to a running cluster, and what is promised for it."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tests.e2e.steering.cluster import Cluster, Move, until, worker
from tests.e2e.steering.run_setup import Setup
from trimtab_protocol.messages.names import WorkerId

Act = Callable[[Cluster], Awaitable[None]]

POINTS = ("old_before", "old_committed", "old_released", "new_before", "new_taken")
"""Where a worker is killed in a hand-over: the old owner before, after its commit, after its record; the new one."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Somebody killed or stopped: then events of one commit interval may be done twice; else everything once."""

    name: str
    setup: Setup
    act: Act
    promise: str = ""
    """What must happen besides, in words."""
    broker: Mapping[str, str] = field(default_factory=dict)
    """Settings of the broker, where they differ from the sandbox's."""
    loses: tuple[str, ...] = ()
    """How the complaints begin that there must be: a changelog has lost records."""
    stock: bool = False
    """Stock Faust takes part: what it loses and repeats at its rebalances is its own."""


async def begin(cluster: Cluster) -> None:
    """Wait until the first load is worked off, then go on at the given rate."""
    await cluster.settled(150.0)
    await cluster.worked_off()
    cluster.load.start()
    await asyncio.sleep(1.0)


async def hand_overs(cluster: Cluster, count: int, *, most: int = 1, rest_s: float = 0.3) -> int:
    """So many hand-overs of 1 to `most` key groups; returns how many were done."""
    done = 0
    for _ in range(count):
        if await cluster.hand_over(*cluster.pick(most)):
            done += 1
        else:
            await cluster.settled()
        await asyncio.sleep(rest_s)
    return done


def moves(singles: int, batches: int, *, calm_s: float = 4.0, rest_s: float = 1.0) -> Act:
    """Hand-overs, single and batched, inside one generation."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        await cluster.be_calm(calm_s)
        before = cluster.generations()
        done = await hand_overs(cluster, singles, rest_s=rest_s)
        done += await hand_overs(cluster, batches, most=4, rest_s=rest_s)
        await cluster.settled()
        assert done == singles + batches, f"{done} of {singles + batches} hand-overs were done"
        assert cluster.generations() == before, f"generation {before} became {cluster.generations()}"

    return act


def rebalances(count: int) -> Act:
    """The fallback, warm: the target follows the changelogs first, then the group rebalances by the new placement."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for _ in range(count):
            key_groups, source, target = cluster.pick()
            cluster.place(key_groups, (source, target))
            await cluster.publish()
            await asyncio.sleep(2.0)
            cluster.place(key_groups, (target, source))
            await cluster.publish()
            move = Move(at=time.time(), kind="rebalance", key_groups=key_groups, source=source, target=target)
            assert await cluster.rejoin()
            cluster.moves.append(move)
            await asyncio.sleep(2.0)
        await cluster.settled()

    return act


def cold_plans(count: int) -> Act:
    """Random placements by rebalance, without a standby anywhere."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for _ in range(count):
            for key_group in cluster.key_groups:
                cluster.place([key_group], (cluster.random.choice(list(cluster.alive)),))
            wanted = {k: [cluster.row(k)[0]] for k in cluster.key_groups}
            await cluster.publish()
            assert await cluster.rejoin(), "no rebalance"
            await cluster.settled()
            assert dict(cluster.owners()) == wanted, "the rebalance did not give what the placement says"

    return act


def joins(rounds: int) -> Act:
    """Hand-overs go on while a worker joins, is given key groups, is emptied and leaves."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        new, done = worker(cluster.setup.workers), 0
        for _ in range(rounds):
            async with in_between(cluster) as while_joining:
                await asyncio.sleep(1.5)
                cluster.start(new)
                await until(lambda: new in cluster.agent.statistics, 40.0)
                await asyncio.sleep(2.0)
            await cluster.settled()
            done += await empty(cluster, new)
            async with in_between(cluster, besides=new) as while_leaving:
                await asyncio.sleep(1.0)
                assert await cluster.terminate(new) == 0
                await asyncio.sleep(2.0)
            await cluster.settled()
            done += len(while_joining) + len(while_leaving)
        assert done > 2 * rounds, f"only {done} hand-overs were done"

    return act


@contextlib.asynccontextmanager
async def in_between(cluster: Cluster, *, besides: str = "") -> AsyncIterator[list[int]]:
    """Hand-overs during the block, some of which a rebalance overtakes; the list grows with each that is done."""
    done: list[int] = []
    ending = asyncio.Event()

    async def hand_over() -> None:
        while not ending.is_set():
            key_groups, source, target = cluster.pick(2)
            if besides in (source, target):
                await asyncio.sleep(0)
            elif await cluster.hand_over(key_groups, source, target, took_limit_s=6.0):
                done.append(len(key_groups))
            else:
                await cluster.settled()

    running = asyncio.create_task(hand_over())
    try:
        yield done
    finally:
        ending.set()
        await running


async def empty(cluster: Cluster, name: WorkerId) -> int:
    """Hand all of a worker's key groups to the others, a few at a time; returns how many hand-overs it took."""
    count = 0
    for _ in range(20):
        held = [k for k in cluster.key_groups if cluster.row(k)[0] == name]
        if not held:
            return count
        target = cluster.random.choice([other for other in cluster.alive if other != name])
        if await cluster.hand_over(tuple(held[:4]), name, target):
            count += 1
        else:
            await cluster.settled()
    raise AssertionError(f"{name} is not empty")


async def drain_and_return(cluster: Cluster) -> None:
    """Empty a worker, stop it, start it again, give its key groups back: nothing happens twice."""
    await begin(cluster)
    name = worker(cluster.setup.workers - 1)
    mine = [k for k in cluster.key_groups if cluster.row(k)[0] == name]
    await empty(cluster, name)
    assert not [k for k, owners in cluster.owners().items() if name in owners] or await cluster.settled()
    assert await cluster.terminate(name) == 0
    await asyncio.sleep(2.0)
    cluster.start(name)
    await cluster.settled(150.0)
    for key_group in mine:
        assert await cluster.hand_over((key_group,), cluster.row(key_group)[0], name)
    await cluster.settled()
    assert all(cluster.owners()[k] == [name] for k in mine)


async def idle_worker(cluster: Cluster) -> None:
    """A worker without key groups stays a member for longer than the poll interval, and is given some again."""
    await begin(cluster)
    name = worker(cluster.setup.workers - 1)
    await empty(cluster, name)
    before = cluster.generations()
    await asyncio.sleep(cluster.setup.max_poll_s * 2)
    await cluster.settled()
    assert cluster.generations() == before, "the idle worker dropped out"
    mine = [k for k in cluster.key_groups if k.partition % cluster.setup.workers == 0]
    for key_group in mine:
        cluster.place([key_group], (name,))
    await cluster.publish()
    assert await cluster.rejoin()
    await cluster.settled()
    assert all(cluster.owners()[k] == [name] for k in mine)


def storm(rejoins: int) -> Act:
    """Rejoins as soon as a recovery ends, on a backlog that nobody has committed yet."""

    async def act(cluster: Cluster) -> None:
        for _ in range(2):  # at once, while the others still start
            await until(lambda: bool(cluster.agent.statistics), 40.0)
            await cluster.publish()
            await cluster.rejoin()
        await cluster.settled(150.0)
        cluster.load.start()
        for _ in range(rejoins):
            await cluster.publish()
            assert await cluster.rejoin()
            await asyncio.sleep(cluster.random.uniform(0.0, 0.6))
        await cluster.settled()

    return act


def slow_hand_overs(count: int) -> Act:
    """Hand-overs with delays at their steps, some of them overtaken by a rebalance."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for number in range(count):
            handing = asyncio.create_task(cluster.hand_over(*cluster.pick(3)))
            if number % 3 == 2:
                await asyncio.sleep(cluster.random.uniform(0.2, 1.5))
                await cluster.publish()
                await cluster.rejoin()
            if not await handing:
                await cluster.settled()

    return act


def kills(points: tuple[str, ...] = POINTS) -> Act:
    """kill -9 of the old or the new owner at these points of a hand-over; it starts again."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        for point in points:
            await hand_overs(cluster, 1)
            key_groups, source, target = cluster.pick(2)
            victim = source if point.startswith("old") else target
            cluster.fault(victim, "die", point)
            await cluster.hand_over(key_groups, source, target, took_limit_s=3.0)
            child = cluster.alive.pop(victim)
            assert await until(lambda child=child: not child.alive, 60.0), f"nobody died at {point}"  # type: ignore[misc]
            await cluster.settled()
            cluster.start(victim)
            await cluster.settled(150.0)

    return act


async def stops(cluster: Cluster) -> None:
    """SIGSTOP beyond the session: of the old owner, of the new one in the middle, and of two that move nothing."""
    await begin(cluster)
    stop_s = cluster.setup.session_s + 3.0

    async def frozen(name: WorkerId, limit_s: float) -> None:
        child = cluster.alive[name]
        await asyncio.sleep(limit_s)
        child.send(signal.SIGCONT)

    key_groups, source, target = cluster.pick(2)
    thawing: list[asyncio.Task[None]] = []

    def stop_source() -> None:
        cluster.stop(source)
        thawing.append(asyncio.create_task(frozen(source, stop_s)))

    await cluster.hand_over(key_groups, source, target, before_release=stop_source)
    await thawing[0]
    await cluster.settled()

    key_groups, source, target = cluster.pick(2)
    cluster.fault(target, "stop", "new_before")
    thaw = asyncio.create_task(frozen(target, stop_s + 2.0))
    await cluster.hand_over(key_groups, source, target, took_limit_s=stop_s)
    await thaw
    await cluster.settled()

    for name in list(cluster.alive)[:2]:
        cluster.stop(name)
        await frozen(name, stop_s)
        await cluster.settled()


SHORT_SESSION = {"session_s": 8.0, "heartbeat_s": 0.5, "took_limit_s": 2.0}
SLOW_STEPS = {"drain": 0.15, "flush": 0.1, "prove_by_commit": 0.2, "run": 0.05, "publish": 0.2, "_take": 0.2}

SCENARIOS = (
    Scenario(name="hand-overs", setup=Setup(), act=moves(20, 10)),
    Scenario(name="windowed tables", setup=Setup(windowed=True, seed=2), act=moves(6, 4)),
    Scenario(name="rebalances", setup=Setup(seed=3), act=rebalances(6)),
    Scenario(name="joins and leaves", setup=Setup(seed=4), act=joins(2)),
    Scenario(name="drain and return", setup=Setup(seed=5), act=drain_and_return),
    Scenario(name="idle worker", setup=Setup(seed=6, max_poll_s=4.0), act=idle_worker),
    Scenario(name="random cold plans", setup=Setup(seed=7), act=cold_plans(6)),
    *(
        Scenario(
            name=f"storm, {delay_s} s",
            setup=Setup(seed=8, rate=100.0, placed=delay_s > 0, delays_s={"perform_seek": delay_s} if delay_s else {}),
            act=storm(12),
        )
        for delay_s in (0.0, 0.15, 0.4)
    ),
    Scenario(
        name="storm, slow steps",
        setup=Setup(seed=9, rate=100.0, delays_s={"on_partitions_revoked": 0.2, "_fetch": 0.1, "wait_for_commit": 0.1}),
        act=storm(12),
    ),
    Scenario(
        name="storm, one slow worker",
        setup=Setup(
            seed=14,
            rate=60.0,
            preload=600,
            placed=False,
            delays_s={"w1 perform_seek": 0.4, "w1 renew_if_condemned": 0.5},
        ),
        act=storm(12),
    ),
    Scenario(name="slow hand-overs", setup=Setup(seed=10, rate=100.0, delays_s=SLOW_STEPS), act=slow_hand_overs(12)),
    Scenario(name="slow agents", setup=Setup(seed=11, rate=60.0, work_s=0.005, preload=300), act=moves(6, 2)),
    Scenario(name="kills", setup=Setup(seed=12, **SHORT_SESSION), act=kills()),  # type: ignore[arg-type]
    Scenario(name="stops", setup=Setup(seed=13, **SHORT_SESSION), act=stops),  # type: ignore[arg-type]
)
