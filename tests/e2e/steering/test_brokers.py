"""Two brokers, of which one worker does not reach one for a while; and leaders of partitions that move."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.e2e.proxy import Proxy
from tests.e2e.steering.app_names import Feature, note_fault
from tests.e2e.steering.cluster import Cluster, until, worker
from tests.e2e.steering.run_setup import APP, Setup
from tests.e2e.steering.scenarios import begin, hand_overs
from tests.e2e.steering.verdict import COMMIT_TAKES_S, _done, judge, read_topic
from tests.faults.played.faults import coordinator, demand_copies, elect_preferred_leaders
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_sandbox.broker import Brokers, Detour, free_ports
from trimtab_sandbox.processes import Processes

FAR, OTHER = worker(0), worker(1)
"""FAR reaches each broker over a cable of its own."""
Told = tuple[list[str], list[float]]
Act = Callable[["TwoBrokers"], Awaitable[None]]
Judged = Callable[[Act, int], Told]
SETUP = Setup(session_s=10.0, commit_interval_s=1.0, rate=40.0, preload=200)


class TwoBrokers(Cluster):
    """The oracle's cluster on two brokers."""

    brokers: Brokers
    cables: list[Proxy]
    cut_at = 0.0

    def start(self, name: WorkerId, features: Collection[Feature] | None = None, **changed: Any) -> None:
        far = ",".join(f"127.0.0.1:{cable.port}" for cable in self.cables)
        super().start(name, features, **({"bootstrap": far} if name == FAR else {}), **changed)

    def leaders(self) -> dict[int, int]:
        """The broker that leads each partition of the inputs."""
        found = AdminClient({"bootstrap.servers": self.brokers.address}).list_topics("numbers", timeout=10)
        return {each.id: each.leader for each in found.topics["numbers"].partitions.values()}

    def loads(self) -> dict[KeyGroup, float | None]:
        """What FAR says of its key groups."""
        return {each.key_group: each.cpu_s for each in self.agent.statistics[FAR][1].key_groups}

    def why(self) -> str | None:
        """Why FAR knows no loads."""
        return self.agent.statistics[FAR][1].unknown

    def on(self, broker: int, owner: str) -> list[KeyGroup]:
        """Key groups of this worker whose inputs this broker leads."""
        leaders = self.leaders()
        held = [each for each in self.key_groups if each.operator == "source" and self.row(each)[0] == owner]
        return [each for each in held if leaders[each.partition] == broker]


async def play(cluster: TwoBrokers) -> None:
    await begin(cluster)
    before = cluster.generations()
    await leaders_move(cluster)
    assert cluster.generations() == before, "there was a rebalance"
    number = await asyncio.to_thread(coordinator, cluster.brokers.address, APP)
    await one_is_away(cluster, 3 - number)
    assert cluster.generations() == before, "there was a rebalance"
    await cluster.worked_off()
    await asyncio.sleep(3 * SETUP.commit_interval_s)  # what waited for the broker that was away is committed
    await the_coordinator_is_away(cluster, number)


async def leaders_move(cluster: TwoBrokers) -> None:
    """Broker 2 is restarted and gets its partitions back: hand-overs go on."""
    second = cluster.brokers.members[1]
    moving = asyncio.create_task(hand_overs(cluster, 6))
    await asyncio.to_thread(second.restart)
    await asyncio.to_thread(cluster.brokers.until_in_sync)
    assert await asyncio.to_thread(elect_preferred_leaders, cluster.brokers.address)
    assert await moving + await hand_overs(cluster, 2) >= 4
    await cluster.settled()


async def one_is_away(cluster: TwoBrokers, broker: int) -> None:
    """The group knows FAR still.  What that broker has is unknown, and it gets nothing more of that kind."""
    cluster.cables[broker - 1].cut()
    away = f"broker {broker} at 127.0.0.1:{cluster.cables[broker - 1].port} does not answer"
    assert await until(lambda: cluster.why() == away, 60.0), cluster.why()
    there = await asyncio.to_thread(cluster.on, broker, FAR)
    assert there
    assert {each: load for each, load in cluster.loads().items() if each in there} == dict.fromkeys(there)
    (key_group, *_) = await asyncio.to_thread(cluster.on, broker, OTHER)
    assert not await cluster.hand_over((key_group,), OTHER, FAR)
    assert any(f"the inputs are out of reach: {away}" in (ack.detail or "") for ack in cluster.agent.acks)
    cluster.place([key_group], (OTHER,))
    await cluster.publish()
    cluster.cables[broker - 1].mend()
    assert await until(lambda: cluster.why() is None and None not in cluster.loads().values(), 60.0), cluster.why()
    await cluster.settled()


async def the_coordinator_is_away(cluster: TwoBrokers, broker: int) -> None:
    """The group goes on without FAR, which does not say that it runs; what it could not commit is soon no more."""
    cluster.cables[broker - 1].cut()
    cluster.cut_at = time.time()
    assert await until(lambda: cluster.agent.statistics[FAR][1].state is WorkerState.REBALANCING, 60.0)
    await asyncio.to_thread(note_fault, cluster.folder)
    others = [name for name in cluster.alive if name != FAR]

    def taken_over() -> bool:
        owners = cluster.owners()
        return all(any(name in others for name in owners[each]) for each in cluster.key_groups)

    assert await until(taken_over, 60.0)
    assert cluster.agent.statistics[FAR][1].state is not WorkerState.RUNNING
    cluster.cables[broker - 1].mend()
    await cluster.settled()


async def too_few_copies(cluster: TwoBrokers) -> None:
    """All topics demand two copies, and broker 2 is away for longer than a session: nobody can write or commit."""
    await asyncio.to_thread(demand_copies, cluster.brokers.address, 2)
    await asyncio.to_thread(cluster.brokers.members[1].stop)
    await asyncio.sleep(1.5 * SETUP.session_s)
    states = {name: str(told.state) for name, (_, told) in cluster.agent.statistics.items()}
    print(states, {name: told.unknown for name, (_, told) in cluster.agent.statistics.items()})
    assert all(child.alive for child in cluster.alive.values())
    await asyncio.to_thread(cluster.brokers.start)
    await asyncio.to_thread(cluster.brokers.until_in_sync)
    await asyncio.to_thread(demand_copies, cluster.brokers.address, 1)
    await cluster.settled()
    assert await hand_overs(cluster, 2) == 2


async def brokers_end(cluster: TwoBrokers) -> None:
    """Broker 2 is killed amid hand-overs, then both are restarted in turn."""
    moving = asyncio.create_task(hand_overs(cluster, 6))
    await asyncio.to_thread(cluster.brokers.members[1].kill)
    await asyncio.to_thread(cluster.brokers.start)
    await moving
    for member in cluster.brokers.members:
        await asyncio.to_thread(cluster.brokers.until_in_sync)
        await asyncio.to_thread(member.restart)
    await asyncio.to_thread(cluster.brokers.until_in_sync)
    await cluster.settled()
    assert await hand_overs(cluster, 2) == 2


@pytest.fixture
def on_two_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Judged]:
    """Runs a play on two brokers; what the oracle says against it, and when what was done again was done first."""
    monkeypatch.setenv("TOPIC_REPLICATION_FACTOR", "2")
    behind = free_ports(2)
    cables = [Proxy(port) for port in behind]
    detours = [Detour(proxy=cable.port, behind=port) for cable, port in zip(cables, behind, strict=True)]

    async def run(brokers: Brokers, play: Act, faults: int) -> Told:
        cluster = TwoBrokers(SETUP, tmp_path / "run", brokers)  # type: ignore[arg-type]
        cluster.brokers, cluster.cables = brokers, cables
        async with cluster:
            await play(cluster)
            await cluster.load.stop()
            verdict = await judge(cluster)
            done = _done(await asyncio.to_thread(read_topic, cluster, "outputs"))
        again = [first - cluster.cut_at for first, *others in done.values() if others]
        return verdict.complaints(SETUP.commit_interval_s + 2 * SETUP.session_s, SETUP.rate, faults), again

    def judged(play: Act, faults: int) -> Told:
        with (
            Processes(tmp_path / "broker-logs") as processes,
            Brokers(tmp_path / "brokers", processes, 2, detours=[detours]) as brokers,
        ):
            return asyncio.run(run(brokers, play, faults))

    yield judged
    for cable in cables:
        cable.close()


@pytest.mark.e2e
@pytest.mark.scenario
def test_a_worker_lacks_one_of_two_brokers_and_leaders_move(on_two_brokers: Judged) -> None:
    complaints, again = on_two_brokers(play, 1)

    print(f"done again: {len(again)}, first between {min(again):.1f} and {max(again):.1f} s after the cut")
    assert max(again) < SETUP.session_s + SETUP.commit_interval_s + COMMIT_TAKES_S
    assert complaints == []


@pytest.mark.e2e
@pytest.mark.scenario
@pytest.mark.parametrize("trouble", [too_few_copies, brokers_end])
def test_brokers_that_end_and_lack_copies_cost_no_record(on_two_brokers: Judged, trouble: Act) -> None:
    async def suffer(cluster: TwoBrokers) -> None:
        await begin(cluster)
        await trouble(cluster)

    assert on_two_brokers(suffer, 0) == ([], [])
