"""What a worker says of its inputs when records, offsets or brokers are gone: what it does not know is unknown."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.brokers import Detour, MemberBroker
from tests.e2e.proxy import Proxy
from tests.e2e.steering.cluster import until
from tests.e2e.steering.tiny_agent import Agent
from tests.paths import ROOT, python_path
from tests.waiting import wait_for
from trimtab_protocol.messages.local import Statistics
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Child, Processes

pytestmark = pytest.mark.light
PARTITIONS = 2
W0 = WorkerId("w0")
LIMIT_S = 120.0
HOUR_S = 3600.0


class Job:
    """One worker of the job, its agent, and its inputs."""

    def __init__(self, broker: Broker, name: str, folder: Path, processes: Processes, bootstrap: str) -> None:
        self.broker, self.name, self.topic = broker, name, f"{name}-in"
        self.agent = Agent()
        self._folder, self._processes, self._bootstrap = folder, processes, bootstrap
        self._producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5})

    @property
    def admin(self) -> AdminClient:
        """One that knows no address from before; it has to be kept until it has answered."""
        return AdminClient({"bootstrap.servers": self.broker.address})

    def start(self, *, files: int | None = None, **environment: str) -> Child:
        """Start the worker; `files` = how many it may have open."""
        self.agent.statistics.pop(W0, None)
        command = [sys.executable, "-m", "faust", "-A", "tests.e2e.honest_app:app", "worker", "--without-web"]
        if files is not None:
            command = ["bash", "-c", f"ulimit -n {files}; exec {' '.join(command)}"]
        given = {
            "HONEST_NAME": self.name,
            "HONEST_BROKER": f"kafka://{self._bootstrap}",
            "HONEST_DATA": str(self._folder / "data"),
            "PYTHONPATH": python_path(ROOT),
            "TRIMTAB_CLUSTER": self.name,
            "TRIMTAB_WORKER": W0,
            "TRIMTAB_SOCKET": str(self._folder / "agent.sock"),
        }
        return self._processes.start(W0, command, environment=given | environment)

    async def stop(self, child: Child) -> None:
        await asyncio.to_thread(child.stop)

    def send(self, count: int, *, age_s: float = 0.0) -> None:
        """Send so many inputs to each partition, dated so long ago."""
        at_ms = int((time.time() - age_s) * 1e3)
        for number in range(count):
            for partition in range(PARTITIONS):
                self._producer.produce(self.topic, b"1", f'"{partition}-{number % 50}"', partition, timestamp=at_ms)
            self._producer.poll(0)
        assert self._producer.flush(30.0) == 0

    def send_each_in_a_transaction(self, count: int) -> None:
        """Send so many inputs of 10 ms to each partition, and behind each of them the marker of its transaction."""
        producer = Producer({"bootstrap.servers": self.broker.address, "transactional.id": self.name, "linger.ms": 0})
        producer.init_transactions(30.0)
        for number in range(count):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(self.topic, b"10", f'"{partition}-{number % 50}"', partition)
            producer.commit_transaction(30.0)

    def committed(self) -> list[int]:
        """The committed offset of each partition; -1 = none."""
        asked = ConsumerGroupTopicPartitions(self.name, [TopicPartition(self.topic, p) for p in range(PARTITIONS)])
        admin = self.admin
        [future] = admin.list_consumer_group_offsets([asked]).values()
        return [each.offset if each.error is None else -1 for each in future.result(20.0).topic_partitions]

    def commit(self, offset: int) -> None:
        """Set the group's offsets, as Kafka's tools do."""
        given = [TopicPartition(self.topic, p, offset) for p in range(PARTITIONS)]
        asked = ConsumerGroupTopicPartitions(self.name, given)
        admin = self.admin
        [future] = admin.alter_consumer_group_offsets([asked]).values()
        future.result(20.0)

    def purge(self, offset: int) -> None:
        """Delete all records before an offset."""
        admin = self.admin
        asked = admin.delete_records([TopicPartition(self.topic, p, offset) for p in range(PARTITIONS)])
        for future in asked.values():
            future.result(20.0)

    def lose_disk(self) -> None:
        shutil.rmtree(self._folder / "data")

    def make_the_changelog_anew(self) -> None:
        """As by a backup: it is shorter than what workers have written."""
        admin, name = self.admin, f"{self.name}-counts-changelog"
        admin.delete_topics([name])[name].result(20.0)
        wait_for(lambda: name not in admin.list_topics(timeout=20.0).topics, "it is deleted")
        self.broker.create_topics(
            [Topic(name=name, partitions=PARTITIONS, settings={"cleanup.policy": "compact"})], limit_s=LIMIT_S
        )

    @property
    def said(self) -> Statistics | None:
        """What the worker said last."""
        return self.agent.statistics[W0][1] if W0 in self.agent.statistics else None

    async def comes_true(self, what: Callable[[Statistics], bool], limit_s: float = LIMIT_S) -> None:
        """Wait for statistics of a running worker of which this holds."""

        def holds() -> bool:
            said = self.said
            return said is not None and said.state is WorkerState.RUNNING and bool(said.key_groups) and what(said)

        assert await until(holds, limit_s), self.said

    async def backlogs(self, worker: Child) -> list[int]:
        """What is said to wait in all, from the worker's start until nothing does."""
        seen: dict[float, int] = {}

        def nothing(said: Statistics) -> bool:
            known = [each.backlog for each in said.key_groups if each.backlog is not None]
            if len(known) == PARTITIONS:
                seen[said.at_ms] = sum(known)
            return len(known) == PARTITIONS and sum(known) == 0

        await self.comes_true(nothing)
        await self.stop(worker)
        return list(seen.values())

    async def done(self, offset: int) -> None:
        """Wait until all inputs before an offset are processed and committed."""
        await self.comes_true(lambda said: all(each.backlog == 0 for each in said.key_groups))
        deadline = time.monotonic() + LIMIT_S
        while (at := await asyncio.to_thread(self.committed)) != [offset] * PARTITIONS:
            assert time.monotonic() < deadline, at
            await asyncio.sleep(0.2)


@asynccontextmanager
async def a_job(
    broker: Broker,
    name: str,
    folder: Path,
    bootstrap: str | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Job]:
    """A job whose topics exist; `settings` = of its inputs."""
    compact = {"cleanup.policy": "compact"}
    broker.create_topics(
        [
            Topic(name=f"{name}-in", partitions=PARTITIONS, settings=settings),
            Topic(name=f"{name}-counts-changelog", partitions=PARTITIONS, settings=compact),
        ]
    )
    with Processes(folder / "logs") as processes:
        job = Job(broker, name, folder, processes, bootstrap or broker.address)
        server = await job.agent.serve(folder / "agent.sock")
        try:
            yield job
        finally:
            server.close()


def test_offsets_are_called_reset_only_where_no_purge_looks_the_same(
    broker: Broker, unique: str, tmp_path: Path
) -> None:
    async def play() -> None:
        async with a_job(broker, unique, tmp_path) as job:
            short = job.start(files=209)
            assert await until(lambda: not short.alive, LIMIT_S)
            told = "may have 209 files open, but the 2 databases of its key groups need 210 or more"
            assert told in short.log.read_text()

            job.send(100, age_s=HOUR_S)  # event time: the state is newer than any of them
            worker = job.start()
            await job.done(100)
            await job.stop(worker)
            job.purge(100)
            job.send(20, age_s=HOUR_S)
            worker = job.start()
            await job.done(120)
            await asyncio.sleep(2.0)  # the broker is asked beside the job
            assert job.said is not None
            assert (job.said.reset, job.said.maybe_reset) == (None, None)
            await job.stop(worker)
            assert "twice" not in worker.log.read_text()

            job.commit(100)  # to the first records, by a tool
            worker = job.start()
            await job.comes_true(lambda said: said.reset is True)
            await job.done(120)
            assert "from 100 on, was at 120" in str(job.agent.hellos[W0].reason)
            await job.stop(worker)

    asyncio.run(play())


@pytest.mark.scenario
def test_what_a_worker_cannot_know_it_does_not_count(broker: Broker, unique: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with a_job(broker, unique, tmp_path) as job:
            job.send(120, age_s=HOUR_S)
            worker = job.start()
            await job.done(120)
            await job.stop(worker)
            job.purge(100)
            job.commit(100)
            job.lose_disk()
            worker = job.start()
            await job.comes_true(lambda said: said.maybe_reset is True and said.reset is None)
            await job.done(120)
            assert "offsets may have been reset" in str(job.agent.hellos[W0].reason)
            await job.stop(worker)

            job.commit(50)  # to what is gone
            worker = job.start()
            await job.comes_true(lambda said: said.lost is True and said.reset is True)
            await job.stop(worker)

            await asyncio.to_thread(job.send_each_in_a_transaction, 200)
            seen = await job.backlogs(job.start())
            assert 50 < max(seen) <= PARTITIONS * 210, "200 records on 400 offsets of each partition"

            await asyncio.to_thread(job.make_the_changelog_anew)
            job.send(10)
            worker = job.start()
            await job.comes_true(lambda said: said.lost is True and all(each.backlog == 0 for each in said.key_groups))
            assert "ends at 0, this worker had written up to" in worker.log.read_text()
            await job.stop(worker)

    asyncio.run(play())


def test_a_broker_out_of_reach_is_named_and_a_worker_reads_on_at_its_new_address(unique: str, tmp_path: Path) -> None:
    """Only the bootstrap server's address stays."""
    [behind] = free_ports(1)
    bootstrap, first, second = (Proxy(behind) for _ in range(3))
    with Processes(tmp_path / "broker-logs") as processes:
        broker = MemberBroker(tmp_path / "broker", processes, detours=[Detour(proxy=first.port, behind=behind)])
        broker.start()

        async def play() -> None:
            async with a_job(broker, unique, tmp_path, f"127.0.0.1:{bootstrap.port}") as job:
                job.send(30)
                worker = job.start()
                await job.done(30)
                await job.comes_true(lambda said: all(each.cpu_s is not None for each in said.key_groups))

                first.cut()
                job.send(50)
                away = f"broker 1 at 127.0.0.1:{first.port} does not answer"
                await job.comes_true(lambda said: said.unknown == away)
                assert job.said is not None
                assert {(each.backlog, each.cpu_s) for each in job.said.key_groups} == {(None, None)}

                await asyncio.to_thread(broker.stop)
                broker.detours = (Detour(proxy=second.port, behind=behind),)
                broker._write_settings()
                await asyncio.to_thread(broker.start)
                first.close()
                await job.done(80)
                await job.stop(worker)

        try:
            asyncio.run(play())
        finally:
            for proxy in (bootstrap, second):
                proxy.close()
            broker.stop()
