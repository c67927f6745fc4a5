"""What an app answers while its key groups move and its workers come and go."""

import asyncio
import bisect
import contextlib
import itertools
import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.e2e.steering import cluster as rig
from tests.e2e.steering.app_names import Feature
from tests.e2e.steering.cluster import Cluster
from tests.e2e.steering.run_setup import CLUSTER, Setup
from tests.e2e.steering.verdict import read_topic
from tests.paths import ROOT, python_path
from trimtab_protocol.messages.names import AppId, OperatorId, WorkerId
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Processes

APP, ALL = AppId("answers"), OperatorId("all")
PARTITIONS, KEYS = 4, [f"c{number}" for number in range(12)]
ASKED_PER_S = 50.0
CHANGELOG = f"{APP}-totals-changelog"
LATE_S = 0.5
"""So long after a value was written every worker answers with it or a later one."""


@dataclass
class Reply:
    """One answer of a worker."""

    asked_at: float
    at: float
    worker: WorkerId
    key: str
    status: int
    value: int | None


class AnswersCluster(Cluster):
    """Workers of the app that answers, each with a port of its own."""

    app_id, program = APP, "tests.e2e.steering.answers_app"
    topics: tuple[str, ...] = ("questions", "plain")
    started_as: tuple[str, ...] = ()
    """What a worker gives to Python, if it does not run the program."""

    def __init__(self, folder: Path, broker: Broker, *, standbys: int = 0, asks: bool = False, slow_s: float = 0.0):
        setup = Setup(workers=3, partitions=PARTITIONS, preload=0, features=(Feature.UNNAMED,))
        super().__init__(setup, folder, broker)
        self.app, self.standbys = self.app_id, standbys
        self.replies: dict[str, list[Reply]] = defaultdict(list)
        """By the page that was asked."""
        self.sent: Counter[str] = Counter()
        self._told = {"standbys": standbys, "asks": asks, "session_s": 8.0, "partitions": PARTITIONS, "slow_s": slow_s}
        self.ports: dict[WorkerId, int] = {}

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "leaders").touch()
        self.broker.create_topics([Topic(name=name, partitions=PARTITIONS) for name in self.topics])
        self.workers = [rig.worker(number) for number in range(self.setup.workers)]
        await super().__aenter__()
        return self

    def start(self, name: WorkerId, features: Collection[Any] | None = None, **changed: Any) -> None:
        self.versions[name] = ()
        self.ports[name] = self.ports.get(name) or free_ports(1)[0]
        given = {
            **self._told, "bootstrap": self.broker.address, "folder": str(self.folder), "port": self.ports[name],
        }  # fmt: skip
        environment = {
            "APP_SETUP": json.dumps(given),
            "PYTHONPATH": python_path(ROOT),
            "TRIMTAB_CLUSTER": CLUSTER,
            "TRIMTAB_WORKER": name,
            "TRIMTAB_SOCKET": str(self.folder / "agent.sock"),
        }
        self.agent.statistics.pop(name, None)
        how = self.started_as or ("-m", self.program, "worker", "-l", "info")
        self.alive[name] = self.processes.start(
            name, [sys.executable, *how], environment=environment, folder=self.folder
        )

    @property
    def members(self) -> list[WorkerId]:
        return list(self.alive)

    async def move(self, number: int) -> tuple[float, float]:
        """Move one key group to the next worker; when its new owner said so, and its pause."""
        key_group = self.key_groups[number % PARTITIONS]
        source = self.row(key_group)[0]
        target = self.workers[(self.workers.index(source) + 1) % len(self.workers)]
        assert await self.hand_over((key_group,), source, target)
        took_at = time.time()
        self.place([key_group], (target, *([source] if self.standbys else [])))
        await self.publish()
        return took_at, self.moves[-1].pause_s or 0.0

    async def feed(self, topic: str, per_s: float) -> None:
        """Inputs, one after the other, until cancelled: ones for `numbers`, numbers from 0 for `questions`."""
        number, began = 0, time.monotonic()
        while True:
            key, value = KEYS[number % len(KEYS)], 1 if topic == "numbers" else number
            self.sent[topic] += 1
            await self._placements.send_and_wait(topic, json.dumps(value).encode(), key=json.dumps(key).encode())
            number += 1
            await asyncio.sleep(max(0.0, began + number / per_s - time.monotonic()))

    @contextlib.asynccontextmanager
    async def asking(
        self, path: str = "total", per_s: float = ASKED_PER_S, limit_s: float = 60.0
    ) -> AsyncIterator[None]:
        """Ask all living workers in turn for all keys while the block runs, and wait for the last answers."""
        stop, began = asyncio.Event(), time.monotonic()

        async def ask() -> None:
            number, timeout = 0, aiohttp.ClientTimeout(total=limit_s)
            async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
                while not stop.is_set():
                    workers = [name for name in self.workers if name in self.alive]
                    worker, key = workers[number % len(workers)], KEYS[(number // len(workers)) % len(KEYS)]
                    group.create_task(self._ask(session, path, worker, key))
                    number += 1
                    await asyncio.sleep(max(0.0, began + number / per_s - time.monotonic()))

        task = asyncio.create_task(ask())
        try:
            yield
        finally:
            stop.set()
            await task

    async def _ask(self, session: aiohttp.ClientSession, path: str, worker: WorkerId, key: str) -> None:
        asked_at, status, value = time.time(), 0, None
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"{self.url(worker)}/{path}/{key}/") as response:
                status = response.status
                value = (await response.json())["value"] if status == 200 else None
        self.replies[path].append(Reply(asked_at, time.time(), worker, key, status, value))

    def url(self, worker: WorkerId) -> str:
        return f"http://127.0.0.1:{self.ports[worker]}"

    async def feed_plain(self, count: int) -> None:
        """So many ones for each of ten keys, written as they are."""
        for number in range(10 * count):
            await self._placements.send_and_wait("plain", b"1", key=str(number % 10).encode())

    async def plain_answers(self, kind: str, keys: Collection[str]) -> set[tuple[int, float | None]]:
        """Status and value of all answers that all workers give for these keys of a table with defaults."""
        self.replies[kind].clear()
        async with aiohttp.ClientSession() as session:
            for name, key in itertools.product(self.workers, keys):
                await self._ask(session, kind, name, key)
        return {(reply.status, reply.value) for reply in self.replies[kind]}

    async def get(self, worker: WorkerId, path: str) -> Any:
        """What a web view of Faust says."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url(worker)}{path}") as found:
            return await found.json()

    def wrong(self, replies: list[Reply]) -> list[Reply]:
        """Values that an owner had replaced long before, or never wrote, by the changelog."""
        rows = [row for rows in read_topic(self, CHANGELOG).values() for row in rows]
        written: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for key, value, at in sorted(rows, key=lambda row: row[2]):
            written[json.loads(key or b"")].append((at, int(value or 0)))

        def owners(key: str, at: float) -> int:
            number = bisect.bisect([when for when, _ in written[key]], at)
            return written[key][number - 1][1] if number else 0

        return [
            r for r in replies
            if r.value is not None and not owners(r.key, r.asked_at - LATE_S) <= r.value <= owners(r.key, math.inf)
        ]  # fmt: skip

    def unanswered(self) -> set[int]:
        """The questions to which the agent that asks in the middle of its events has no answer yet."""
        done = self.noted("asked-on")
        return set(range(self.sent["questions"] - 1)).difference(done)  # the last one may not have been written

    def noted(self, name: str) -> list[int]:
        """The questions that the workers have noted under this name, in their order."""
        log = self.folder / name
        return sorted(map(int, log.read_text().split())) if log.exists() else []

    def leaders(self, since: float) -> list[tuple[float, str]]:
        """When the leader's timer has run, and where."""
        lines = [line.split() for line in (self.folder / "leaders").read_text().splitlines()]
        return [(float(at), worker) for at, worker in lines if float(at) >= since]


@contextlib.asynccontextmanager
async def asked(folder: Path, *, inputs_per_s: float = 40.0, **options: Any) -> AsyncIterator[AnswersCluster]:
    """A cluster that runs, is fed, and whose routes all workers know."""
    with Processes(folder / "broker-logs") as processes, Broker(folder / "broker", processes) as broker:
        async with AnswersCluster(folder / "run", broker, **options) as cluster:
            feeding = asyncio.create_task(cluster.feed("numbers", inputs_per_s))
            try:
                await cluster.settled()
                yield cluster
            finally:
                feeding.cancel()
