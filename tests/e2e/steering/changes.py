"""What happens when the job itself changes under steering: rolling upgrades and back, first starts, new members."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.e2e.steering.app_names import BREACHES, Feature, named_for
from tests.e2e.steering.cluster import Cluster, trimtabs_topics, until, worker
from tests.e2e.steering.run_setup import APP, EXTRAS, OTHER_APP, REGROUP, SOURCE, SUMS, Setup, operators
from tests.e2e.steering.scenarios import Act, Scenario, begin, hand_overs
from tests.e2e.steering.standbys import name_standbys, warm
from trimtab_protocol.messages.names import WorkerId
from trimtab_sandbox.broker import Topic

Features = tuple[Feature, ...]


async def restart_one_by_one(
    cluster: Cluster, features: Features, *, between: Callable[[Cluster, WorkerId], Awaitable[None]]
) -> None:
    """A rolling restart with another version of the job."""
    for name in list(cluster.alive):
        assert await cluster.terminate(name) == 0
        cluster.start(name, features)
        await cluster.joined()
        await between(cluster, name)


async def leave_alone(cluster: Cluster, _: WorkerId) -> None:
    await asyncio.sleep(2.0)


async def try_to_move(cluster: Cluster, _: WorkerId) -> None:
    """While the versions are mixed hand-overs are refused, with the reason."""
    if len({cluster.versions[name] for name in cluster.alive}) == 1:
        return

    def told() -> bool:
        return all(not hello.steering and hello.reason for hello in cluster.agent.hellos.values())

    assert await until(told, 60.0), f"versions are mixed, and nobody says so: {cluster.agent.hellos}"
    key_groups, source, target = cluster.pick()
    assert not await cluster.hand_over(key_groups, source, target), "a hand-over between versions"
    cluster.place(key_groups, (source, target))
    await cluster.publish()


def upgrade(
    *features: Feature, topics: tuple[str, ...] = (), fed: str | None = None, back: bool = True, moves: int = 3
) -> Act:
    """Version 1 -> another version, and back: one worker after the other, hand-overs before, after and between."""

    async def act(cluster: Cluster) -> None:
        await begin(cluster)
        await hand_overs(cluster, moves, most=3)
        if topics:
            cluster.broker.create_topics([Topic(name=name, partitions=cluster.setup.partitions) for name in topics])
        cluster.load.feed(fed)
        old, new = cluster.setup.features, (*cluster.setup.features, *features)
        await restart_one_by_one(cluster, new, between=try_to_move)
        await settle_under(cluster, new)
        assert await hand_overs(cluster, moves, most=3) == moves
        cluster.load.feed(None)
        await cluster.worked_off()
        if back:
            await restart_one_by_one(cluster, old, between=leave_alone)
            await settle_under(cluster, old)
            assert await hand_overs(cluster, moves, most=3) == moves
        await cluster.settled()

    return act


async def settle_under(cluster: Cluster, features: Features) -> None:
    """What the controller does when all workers agree on other operators: the placement follows the reports."""
    cluster.rows = {operator: [()] * cluster.setup.partitions for operator in operators(features)}
    await cluster.settled()
    await cluster.publish()
    await asyncio.sleep(1.0)


async def first_start(cluster: Cluster) -> None:
    """Neither the job's own topics nor Trimtab's are there: it starts as stock Faust does, and is steered when the
    controller has come."""
    await cluster.settled(150.0)
    await cluster.worked_off()
    cluster.load.start()
    await asyncio.sleep(2.0)
    cluster.broker.create_topics(trimtabs_topics())
    await asyncio.sleep(6.0)  # workers look for Trimtab's topics every 5 s
    await cluster.settled()
    await cluster.publish()
    assert await hand_overs(cluster, 4, most=2) == 4
    await cluster.settled()


async def plug_in_removed_and_installed(cluster: Cluster) -> None:
    """Worker by worker, under load."""
    await begin(cluster)
    await hand_overs(cluster, 3)
    for features in ((Feature.STOCK,), ()):
        for name in list(cluster.alive):
            assert await cluster.terminate(name) == 0
            cluster.start(name, features)
            await asyncio.sleep(8.0)
    await cluster.settled(150.0)
    await cluster.publish()
    assert await hand_overs(cluster, 3) == 3
    await cluster.settled()


async def stock_alone(cluster: Cluster) -> None:
    """The same restarts without the plug-in; a worker may end with an error."""
    await asyncio.sleep(15.0)
    cluster.load.start()
    for _ in range(2):
        for name in list(cluster.alive):
            await cluster.terminate(name)
            cluster.start(name)
            await asyncio.sleep(8.0)


async def worker_renamed(cluster: Cluster) -> None:
    """A worker comes back under another name, without its disk; its key groups have been with others meanwhile."""
    await begin(cluster)
    gone, new = worker(0), worker(7)
    assert await cluster.terminate(gone) == 0
    cluster.start(new)
    await cluster.settled(150.0)
    await cluster.publish()
    for key_group in [k for k in cluster.key_groups if k.operator == SOURCE][:2]:
        source = cluster.row(key_group)[0]
        if source != new:
            assert await cluster.hand_over((key_group,), source, new)
    await cluster.settled()


async def disk_lost(cluster: Cluster) -> None:
    """A worker starts on another host, without its disk; then again, with the disk that it had at first."""
    await begin(cluster)
    name = worker(1)
    disk, first = cluster.folder / name, cluster.folder / "first-disk"
    for number in range(2):
        assert await cluster.terminate(name) == 0
        if number == 0:
            disk.rename(first)
        else:
            disk.rename(cluster.folder / "second-disk")
            first.rename(disk)
        cluster.start(name)
        await cluster.settled(150.0)
        assert await hand_overs(cluster, 2) == 2
    await cluster.settled()


async def plug_in_upgraded(cluster: Cluster) -> None:
    """From the previous version of the plug-in to this one and back, worker by worker, hand-overs among all of them."""
    old, new = (Feature.PREVIOUS_PLUG_IN,), ()
    await begin(cluster)
    assert await hand_overs(cluster, 2) == 2
    for features in (new, old):
        for name in list(cluster.alive):
            assert await cluster.terminate(name) == 0
            cluster.start(name, features)
            await cluster.settled()
            assert await hand_overs(cluster, 3, most=2) == 3, "versions of the plug-in do not understand each other"
    await cluster.settled()


async def one_name_twice(cluster: Cluster) -> None:
    """A second process under a worker's name, on another disk: it gets no key group that is placed; then it ends."""
    await begin(cluster)
    name = worker(0)
    twin = cluster.start_twin(name)
    await asyncio.sleep(8.0)
    assert all(child.alive for child in cluster.alive.values())
    assert await cluster.end(twin) == 0
    await cluster.settled(150.0)
    assert await hand_overs(cluster, 3) == 3
    await cluster.settled()


async def partitions_added(cluster: Cluster) -> None:
    """A stateless topic grows, and the workers are restarted one by one: all partitions are worked on."""
    await begin(cluster)
    cluster.load.feed("alerts")
    await hand_overs(cluster, 2)
    await cluster.load.add_partitions("alerts", cluster.setup.partitions + 4)
    for name in list(cluster.alive):
        assert await cluster.terminate(name) == 0
        cluster.start(name)
        await cluster.settled()
    assert await hand_overs(cluster, 3) == 3
    await cluster.settled()


async def partitions_added_to_a_source(cluster: Cluster) -> None:
    """A topic grows, and the tables that are written from it do not: no worker writes to them, all end, and say why.

    Then all other topics of the operator grow, too, and the workers start with the new number.
    """
    await begin(cluster)
    cluster.load.feed("orders")
    assert await hand_overs(cluster, 2) == 2
    (cluster.folder / BREACHES).touch()
    count = cluster.setup.partitions + 4
    await cluster.load.add_partitions("orders", count)
    workers = {}
    for name in list(cluster.alive):
        if (child := cluster.alive[name]).alive:
            assert await cluster.terminate(name) == 0
            cluster.start(name)
            child = cluster.alive[name]
        workers[name] = child
        await asyncio.sleep(2.0)
    assert await until(lambda: not any(child.alive for child in workers.values()), BREACHED_LIMIT_S), "some go on"
    logs = {name: child.log.read_text(errors="replace") for name, child in workers.items()}
    assert all(any(said in text for said in NOT_CO_PARTITIONED) for text in logs.values()), "nobody says why"

    for topic in ("numbers", "oracle-counts-changelog", SUMS, EXTRAS):
        await cluster.load.add_partitions(topic, count)
    for name in workers:
        cluster.start(name, source_partitions=count)
    cluster.rows = {SOURCE: [()] * count, REGROUP: [()] * cluster.setup.partitions}
    await cluster.settled(150.0)
    await cluster.publish()
    await asyncio.sleep(1.0)
    assert await hand_overs(cluster, 3) == 3
    cluster.load.feed(None)
    await cluster.worked_off()
    await cluster.settled()


async def standbys_changed(cluster: Cluster) -> None:
    """From no standby to one and back: while workers ask for different numbers the larger one counts."""

    def asked() -> set[int | None]:
        return {cluster.agent.statistics[name][1].standbys for name in cluster.alive}

    await begin(cluster)
    assert await hand_overs(cluster, 2, most=2) == 2
    assert asked() == {0}
    for features, wanted in (((), 1), (cluster.setup.features, 0)):
        for number, name in enumerate(list(cluster.alive), start=1):
            assert await cluster.terminate(name) == 0
            cluster.start(name, features)
            await cluster.settled(150.0)
            assert asked() == ({wanted} if number == len(cluster.alive) else {0, 1})
            name_standbys(cluster, max(number or 0 for number in asked()))
            await cluster.publish()
            await warm(cluster)
            assert await hand_overs(cluster, 2, most=2) == 2, "workers that ask for different numbers do hand over"
    name_standbys(cluster, 0)
    await cluster.publish()
    await warm(cluster)
    await cluster.settled()


async def app_id_changed(cluster: Cluster) -> None:
    """Worker by worker, each with a new disk: both apps are whole and steered, until the old one has no worker."""
    await begin(cluster)
    assert await hand_overs(cluster, 2) == 2
    names = [named_for(OTHER_APP, topic) for topic in ("outputs", "totals")]
    cluster.broker.create_topics([Topic(name=name, partitions=cluster.setup.partitions) for name in names])
    for name in list(cluster.alive):
        assert await cluster.terminate(name) == 0
        cluster.start(name, (Feature.OTHER_APP,))
        for cluster.app in (APP, OTHER_APP):
            if cluster.members:
                await cluster.settled(150.0)
                await cluster.publish()
            if len(cluster.members) > 1:
                assert await hand_overs(cluster, 2) == 2
    await cluster.worked_off()
    await cluster.settled()


KAFKAS_OWN = {
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "50",
    "group.initial.rebalance.delay.ms": "3000",
}
"""What a broker has that nobody has configured."""
BREACHED_LIMIT_S = 120.0
"""From the restart of the workers until all have ended: one after the other gets the partitions that nobody may do."""
NOT_CO_PARTITIONED = (
    "are not co-partitioned, this worker ends",
    "of another worker would be written, this worker ends",
)
WAITS = "steered again when all run one version; till then hand-overs are refused, and the reason is said"

CHANGES = (
    Scenario(
        name="topic, table and agent added, then removed",
        promise=f"{WAITS}; inputs of the new topic wait for workers that read it",
        setup=Setup(seed=21),
        act=upgrade(Feature.ORDERS, topics=("orders", "orders_done"), fed="orders"),
    ),
    Scenario(
        name="the same, operators not named",
        promise=WAITS,
        setup=Setup(seed=22, features=(Feature.UNNAMED,)),
        act=upgrade(Feature.ORDERS, topics=("orders", "orders_done"), fed="orders"),
    ),
    Scenario(
        name="stateless topic and agent added, then removed",
        promise=WAITS,
        setup=Setup(seed=23),
        act=upgrade(Feature.STATELESS, topics=("alerts", "alerts_done"), fed="alerts"),
    ),
    Scenario(
        name="table renamed and back",
        promise=f"{WAITS}; the new table begins empty",
        setup=Setup(seed=24),
        act=upgrade(Feature.TABLE_RENAMED),
    ),
    Scenario(name="operators renamed and back", promise=WAITS, setup=Setup(seed=25), act=upgrade(Feature.OTHER_NAMES)),
    Scenario(name="operators merged and split", promise=WAITS, setup=Setup(seed=26), act=upgrade(Feature.ONE_OPERATOR)),
    Scenario(name="operators unnamed and named", promise=WAITS, setup=Setup(seed=27), act=upgrade(Feature.UNNAMED)),
    Scenario(
        name="partitions added to a stateless topic",
        promise="steered on; the new partitions are worked on as soon as the clients know them",
        setup=Setup(seed=34, features=(Feature.STATELESS,), besides=("alerts",)),
        act=partitions_added,
    ),
    Scenario(
        name="partitions added to a topic that tables are written from",
        promise="all workers end before they write, and name the topics; inputs wait until the changelogs have grown",
        setup=Setup(seed=37, features=(Feature.ORDERS,), besides=("orders",)),
        act=partitions_added_to_a_source,
    ),
    Scenario(
        name="first start without any topic",
        promise="starts as stock Faust does, and is steered when Trimtab's topics are there",
        setup=Setup(seed=28, placed=False, own_topics=False),
        act=first_start,
        broker=KAFKAS_OWN,
    ),
    Scenario(
        name="plug-in upgraded and back",
        promise="steered on, hand-overs between both versions of the plug-in",
        setup=Setup(seed=32, features=(Feature.PREVIOUS_PLUG_IN,)),
        act=plug_in_upgraded,
    ),
    Scenario(
        name="plug-in removed and installed",
        promise="no state set back, steered again when all have it; stock Faust loses and repeats events",
        setup=Setup(seed=29),
        act=plug_in_removed_and_installed,
        stock=True,
    ),
    Scenario(
        name="stock Faust alone, restarted",
        promise="for comparison with the line before",
        setup=Setup(seed=29, placed=False, features=(Feature.STOCK,)),
        act=stock_alone,
        stock=True,
    ),
    Scenario(
        name="number of standbys changed and back",
        promise="steered on, hand-overs between both versions; standbys follow the larger number, then the new one",
        setup=Setup(seed=35, features=(Feature.NO_STANDBYS,)),
        act=standbys_changed,
    ),
    Scenario(
        name="app id changed",
        promise="a new app, which does all inputs again; the old one has done once what it has committed, and ends",
        setup=Setup(seed=36),
        act=app_id_changed,
    ),
    Scenario(name="worker renamed", promise="steered on", setup=Setup(seed=30), act=worker_renamed),
    Scenario(
        name="two workers under one name",
        promise="the second is refused by the agent; steered on when it has ended",
        setup=Setup(seed=33),
        act=one_name_twice,
    ),
    Scenario(
        name="worker without its disk, then with an old one",
        promise="steered on; the old disk is caught up from the changelogs",
        setup=Setup(seed=31),
        act=disk_lost,
    ),
)
"""Every change is made worker by worker, under load, and in both directions where there are two."""
