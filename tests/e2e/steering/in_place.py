"""Scenarios of workers that rejoin their group in place."""

import asyncio
import dataclasses
import signal
import time

from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.changes import CHANGES
from tests.e2e.steering.cluster import Cluster, Move, until, worker
from tests.e2e.steering.run_setup import Setup
from tests.e2e.steering.scenarios import (
    SCENARIOS,
    SHORT_SESSION,
    Act,
    Scenario,
    begin,
    hand_overs,
    joins,
    kills,
    rebalances,
    stops,
)

ON = {"in_place": "on"}
STOPPED = "this worker stops for the rebalance"
KEPT = "in place: "


def said(cluster: Cluster, text: str) -> int:
    """How often all workers have said this in their logs."""
    return sum(log.read_text(errors="replace").count(text) for log in (cluster.folder / "logs").glob("w*.log"))


async def begin_in_place(cluster: Cluster) -> None:
    """Begin, and go on when all members keep what they have."""
    await begin(cluster)
    await asyncio.sleep(1.0)


def rejoins(seconds: float, *, moving: bool) -> Act:
    """Rejoins in place at random, one after another; hand-overs meanwhile, some of which a join meets."""

    async def act(cluster: Cluster) -> None:
        await begin_in_place(cluster)
        await cluster.be_calm(4.0)
        stopped, kept, ending = said(cluster, STOPPED), said(cluster, KEPT), time.time() + seconds

        async def disturb() -> None:
            while time.time() < ending:
                name = cluster.random.choice(cluster.members)
                cluster.moves.append(Move(at=time.time(), kind="rejoin", key_groups=(), source=name, target=name))
                cluster.rejoin_in_place(name)
                await asyncio.sleep(cluster.random.uniform(0.5, 4.0) if moving else cluster.random.uniform(0.1, 1.5))

        disturbing, done = asyncio.create_task(disturb()), 0
        while moving and time.time() < ending:
            if await cluster.hand_over(*cluster.pick(2), took_limit_s=3.0):
                done += 1
            else:
                await cluster.settled()
        await disturbing
        await cluster.settled()
        assert said(cluster, KEPT) > kept + seconds / 4, "hardly a rebalance was in place"
        assert said(cluster, STOPPED) == stopped, "a worker has stopped for a rebalance"
        assert done or not moving, "no hand-over was done"

    return act


async def come_and_go(cluster: Cluster) -> None:
    """A worker joins, is given key groups, ends by SIGTERM without a hand-over, comes back; one is killed."""
    await begin_in_place(cluster)
    await cluster.be_calm(4.0)
    stopped = said(cluster, STOPPED)

    def note(kind: str) -> None:
        cluster.moves.append(Move(at=time.time(), kind=kind, key_groups=(), source=new, target=new))

    new = worker(cluster.setup.workers)
    cluster.start(new)
    assert await until(lambda: new in cluster.agent.statistics, 60.0)
    note("join")
    await cluster.settled()
    assert not [k for k, owners in cluster.owners().items() if new in owners], "the join has moved something"
    for key_group in cluster.key_groups[:4]:
        await cluster.hand_over((key_group,), cluster.row(key_group)[0], new)
    await cluster.settled()
    note("SIGTERM")
    assert await cluster.terminate(new) == 0
    await cluster.settled()
    cluster.start(new)
    await asyncio.sleep(5.0)
    await cluster.settled()
    victim = next(name for name in cluster.members if name != new)
    cluster.stop(victim)  # noted as a fault
    cluster.alive.pop(victim).send(signal.SIGKILL)
    cluster.agent.statistics.pop(victim, None)
    await asyncio.sleep(cluster.setup.session_s)
    await cluster.settled()
    assert said(cluster, STOPPED) == stopped, "a worker has stopped for a rebalance"


async def switched_off(cluster: Cluster) -> None:
    """One worker starts with `leave`: all stop as before, and workers that are off may join; then back."""
    await begin_in_place(cluster)
    first, second = worker(0), worker(1)
    assert await cluster.terminate(first) == 0
    cluster.start(first, in_place="leave")
    await cluster.settled()
    assert await cluster.terminate(second) == 0
    cluster.start(second, in_place="off")
    await cluster.settled()
    await hand_overs(cluster, 3)
    for name in (first, second):
        assert await cluster.terminate(name) == 0
        cluster.start(name)
        await cluster.settled()
    await asyncio.sleep(1.0)
    kept = said(cluster, KEPT)
    for name in cluster.members:
        cluster.rejoin_in_place(name)
        await asyncio.sleep(2.0)
    assert said(cluster, KEPT) > kept, "nobody is in place again"
    await cluster.settled()


async def removed_and_installed(cluster: Cluster) -> None:
    """One worker starts with `leave`; then stock Faust takes the place of all, and the plug-in comes back."""
    await begin_in_place(cluster)
    names = list(cluster.alive)
    assert await cluster.terminate(names[-1]) == 0
    cluster.start(names[-1], in_place="leave")
    await cluster.settled()
    for features in ((Feature.STOCK,), ()):
        for name in names:
            assert await cluster.terminate(name) == 0
            cluster.start(name, features)
            await asyncio.sleep(8.0)
    await cluster.settled(150.0)
    await cluster.publish()
    assert await hand_overs(cluster, 3) == 3
    kept = said(cluster, KEPT)
    for name in cluster.members:
        cluster.rejoin_in_place(name)
        await asyncio.sleep(2.0)
    assert said(cluster, KEPT) > kept, "nobody is in place again"
    await cluster.settled()


def in_place(scenario: Scenario) -> Scenario:
    """The same, by workers that rejoin in place."""
    setup = dataclasses.replace(scenario.setup, **ON)  # type: ignore[arg-type]
    return dataclasses.replace(scenario, name=f"in place, {scenario.name}", setup=setup)


IN_PLACE = (
    Scenario(name="in place, rejoins", setup=Setup(seed=31, **ON), act=rejoins(40.0, moving=False)),  # type: ignore[arg-type]
    Scenario(name="in place, rejoins and moves", setup=Setup(seed=32, **ON), act=rejoins(60.0, moving=True)),  # type: ignore[arg-type]
    Scenario(name="in place, come and go", setup=Setup(seed=33, **ON, **SHORT_SESSION), act=come_and_go),  # type: ignore[arg-type]
    Scenario(name="in place, joins and leaves", setup=Setup(seed=34, **ON), act=joins(2)),  # type: ignore[arg-type]
    Scenario(name="in place, rebalances", setup=Setup(seed=35, **ON), act=rebalances(4)),  # type: ignore[arg-type]
    Scenario(name="in place, kills", setup=Setup(seed=36, **ON, **SHORT_SESSION), act=kills()),  # type: ignore[arg-type]
    Scenario(name="in place, stops", setup=Setup(seed=37, **ON, **SHORT_SESSION), act=stops),  # type: ignore[arg-type]
    Scenario(name="in place, switched off and on", setup=Setup(seed=38, **ON), act=switched_off),  # type: ignore[arg-type]
    *(
        in_place(each)
        for each in SCENARIOS
        if each.name in ("hand-overs", "windowed tables", "storm, 0.15 s", "slow hand-overs", "random cold plans")
    ),
)

CHANGES_IN_PLACE = (
    *(in_place(each) for each in CHANGES if not each.stock),
    Scenario(
        name="in place, plug-in removed and installed",
        promise="no state set back, in place again when all have it; stock Faust loses and repeats events",
        setup=Setup(seed=39, **ON),  # type: ignore[arg-type]
        act=removed_and_installed,
        stock=True,
    ),
)
