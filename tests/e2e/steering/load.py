"""The inputs: what was sent, and what goes on being sent."""

import asyncio
import os
import time

from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.e2e.steering.run_setup import BALLAST, Setup
from trimtab_sandbox.broker import Broker

BALLAST_RECORD_BYTES = 2000
LONG_S, BEFORE_S = 0.1, 5.0
BALLAST_BATCH_BYTES, BALLAST_LIMIT_MS = 256_000, 120_000
"""Tens of MB in batches of 16 kB are thousands of requests, and a busy broker takes long for a new topic's first."""


class Load:
    """What the cluster is given to work on, at the setup's rate."""

    def __init__(self, setup: Setup, broker: Broker) -> None:
        self.sent: list[tuple[str, float]] = []
        """Key and timestamp (seconds) of input number i."""
        self.sent_besides: dict[str, list[str]] = {}
        """Keys of the inputs of the topics that only some versions of the job read."""
        self.partitions: dict[str, int] = {}
        """Of topics that have another number than the others."""
        self._rounds: list[tuple[float, float]] = []
        """End (epoch seconds) and length of the rounds of sending that took long."""
        self._setup = setup
        self._broker = broker
        self._stop = asyncio.Event()
        self._fed: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect to the broker."""
        self._producer = AIOKafkaProducer(bootstrap_servers=self._broker.address, enable_idempotence=True)
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.stop()

    async def send_numbers(self, count: int) -> None:
        keys, sending = self._setup.keys, []
        for _ in range(count):
            number, now = len(self.sent), time.time()
            key = f"k{number % keys}"
            self.sent.append((key, int(now * 1e3) / 1e3))
            sending.append(
                await self._producer.send(
                    "numbers",
                    str(number).encode(),
                    key=key.encode(),
                    partition=self._setup.source_partition(number),
                    timestamp_ms=int(now * 1e3),
                )
            )
        await asyncio.gather(*sending)

    async def send_ballast(self) -> None:
        """Fill the additional table's changelog, one partition after the other."""
        options = {"max_batch_size": BALLAST_BATCH_BYTES, "request_timeout_ms": BALLAST_LIMIT_MS}
        async with AIOKafkaProducer(bootstrap_servers=self._broker.address, **options) as producer:
            for partition, size in enumerate(self._setup.ballast_bytes):
                for number in range(size // BALLAST_RECORD_BYTES):
                    key, value = f'"b{number}"', f'"{os.urandom(BALLAST_RECORD_BYTES // 2 - 10).hex()}"'
                    await producer.send(BALLAST, value.encode(), key=key.encode(), partition=partition)
                await producer.flush()

    async def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have so many; from then on the load goes to all of them."""
        admin = AdminClient({"bootstrap.servers": self._broker.address})
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(20.0)
        while len(await self._producer.partitions_for(topic)) < count:
            await self._producer.client.force_metadata_update()
        self.partitions[topic] = count

    def start(self) -> None:
        self._task = asyncio.create_task(self._send_at_rate())

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    def stop_at_once(self) -> None:
        self._stop.set()

    def late_s(self, times: list[float]) -> float:
        """What the machine was late at most shortly before or at one of these times (epoch seconds).

        A round of sending waits for the machine and the broker, as a worker does that commits.
        """
        near = [length for end, length in self._rounds for at in times if -BEFORE_S <= end - at <= length]
        return max(near, default=0.0)

    async def _send_at_rate(self) -> None:
        began, first = time.monotonic(), len(self.sent)
        last = began
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._setup.rate) - (len(self.sent) - first)
            if due > 0:
                await self.send_numbers(due)
                for topic in self._fed:
                    await self.send_besides(topic, due)
            await asyncio.sleep(0.005)
            last, before = time.monotonic(), last
            if last - before > LONG_S:
                self._rounds.append((time.time(), last - before))

    def feed(self, topic: str | None) -> None:
        """From now on the load goes to this topic, too; None: to `numbers` alone."""
        self._fed = () if topic is None else (topic,)

    async def send_besides(self, topic: str, count: int) -> None:
        """Inputs of a topic that only some versions of the job read."""
        sent, sending = self.sent_besides.setdefault(topic, []), []
        for _ in range(count):
            number = len(sent)
            key = f"k{number % self._setup.keys}"
            sent.append(key)
            partition = (number % self._setup.keys) % self.partitions.get(topic, self._setup.partitions)
            value = str(number).encode()
            sending.append(await self._producer.send(topic, value, key=key.encode(), partition=partition))
        await asyncio.gather(*sending)
