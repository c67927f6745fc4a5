"""A broker, N workers of the oracle's app, the load, and what drives them: a tiny controller with a tiny agent."""

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from tests.e2e.steering.app_names import REJOIN, Feature, faults, note_fault
from tests.e2e.steering.load import Load
from tests.e2e.steering.run_setup import APP, CLUSTER, EXTRAS, HOST, RENAMED, Setup, app_of, operators
from tests.e2e.steering.tiny_agent import Agent, told_by
from tests.paths import ROOT, python_path
from tests.previous.release import unpack
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId, Topics, WorkerId, topic_settings
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import records_of
from trimtab_protocol.messages.report import WorkerState
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

TOLD = (
    *("partitions", "windowed", "work_s", "commit_interval_s", "session_s", "heartbeat_s", "took_limit_s"),
    *(
        "max_poll_s",
        "link_bytes_s",
        "delays_s",
        "slow_s",
        "groups",
        "queue",
        "drain_limit_s",
        "local",
        "recovery_buffer",
        "writes",
        "in_place",
    ),
)
"""Of the setup, what the app is told."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """One hand-over (or rebalance step) that was asked for at `at` (epoch seconds)."""

    at: float
    kind: str
    key_groups: tuple[KeyGroup, ...]
    source: WorkerId
    target: WorkerId
    pause_s: float | None = None


class Cluster:
    """Use as an async context; everything it starts has ended when the block is left."""

    def __init__(self, setup: Setup, folder: Path, broker: Broker, *, say: Callable[[str], None] = print) -> None:
        self.setup = setup
        self.folder = folder
        self.broker = broker
        self.processes = Processes(folder / "logs")
        self.agent = Agent()
        self.load = Load(setup, broker)
        self.alive: dict[WorkerId, Child] = {}
        self.app = APP
        """The app that the tiny controller looks at now."""
        self.rows: dict[OperatorId, list[tuple[WorkerId, ...]]] = {}
        self.moves: list[Move] = []
        self.versions: dict[WorkerId, tuple[Feature, ...]] = {}
        self.versions_run: set[tuple[Feature, ...]] = set()
        self.random = random.Random(setup.seed)
        self.calm: list[tuple[float, float]] = []
        self._number = 0
        self._epoch = 0
        self._published: Placement | None = None
        self._say = say
        self._planted = setup.planted
        self._command = [sys.executable, "-m", setup.program, "worker", "-l", "info", "--without-web"]
        self._environments: dict[WorkerId, dict[str, str]] = {}

    async def __aenter__(self) -> "Cluster":
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes.__enter__()
        names = ["numbers", "outputs", "totals", *(["regrouped"] if self.setup.own_topics else [])]
        compact = {"cleanup.policy": "compact"}
        names += [name for topic in self.setup.besides for name in (topic, f"{topic}_done")]
        topics = [Topic(name=name, partitions=self.setup.partitions) for name in names]
        if self.setup.own_topics:
            logs = [
                Topic(name=n, partitions=self.setup.partitions, settings=compact) for n in self.setup.all_changelogs
            ]
            topics += [*logs, *trimtabs_topics()]
        self.broker.create_topics(topics)
        self._server = await self.agent.serve(self.folder / "agent.sock")
        # Not the load's: while a client waits for a new topic's leader it sends nothing of the others either.
        self._placements = AIOKafkaProducer(bootstrap_servers=self.broker.address, enable_idempotence=True)
        await asyncio.gather(self.load.open(), self._placements.start())
        workers = [worker(i) for i in range(self.setup.workers)]
        count = self.setup.partitions
        self.rows = {
            operator: [(workers[self.setup.owner(p, number)],) for p in range(count)]
            for number, operator in enumerate(operators(self.setup.features))
        }
        await self.load.send_ballast()
        if self.setup.placed:
            await self.publish()
        for name in workers:
            self.start(name, self.setup.features)
        await self.load.send_numbers(self.setup.preload)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.load.stop()
            await asyncio.gather(self.load.close(), self._placements.stop())
            self._server.close()
        finally:
            self.processes.__exit__(None, None, None)

    @property
    def changelogs(self) -> tuple[str, ...]:
        """Of all versions of the job that have run."""
        run = {feature for features in self.versions_run for feature in features}
        more = {Feature.ORDERS: EXTRAS, Feature.TABLE_RENAMED: RENAMED}
        return (*self.setup.changelogs, *(log for feature, log in more.items() if feature in run))

    # ---- workers

    def start(self, name: WorkerId, features: Collection[Feature] | None = None, **changed: Any) -> None:
        """Start a worker, with a version of the job: the one that it had."""
        setup = self.setup
        self.versions[name] = tuple(self.versions.get(name, setup.features) if features is None else features)
        self.versions_run.add(self.versions[name])
        given = {
            "app": APP,
            "bootstrap": self.broker.address,
            "folder": str(self.folder),
            **{told: getattr(setup, told) for told in TOLD},
            "features": self.versions[name],
            "planted": self._planted,
            **changed,
        }
        environment = {
            "ORACLE_SETUP": json.dumps(given),
            "PYTHONPATH": python_path(ROOT),
            "TRIMTAB_CLUSTER": CLUSTER,
            "TRIMTAB_WORKER": name,
            "TRIMTAB_SOCKET": str(self.folder / "agent.sock"),
            **({"NO_CYTHON": "1"} if Feature.NO_CYTHON in self.versions[name] else {}),
        }
        if Feature.PREVIOUS_PLUG_IN in self.versions[name]:
            environment["PYTHONPATH"] = python_path(self._previous_release(), ROOT)
        self.agent.statistics.pop(name, None)
        self.alive[name] = self.processes.start(name, self._command, environment=environment, folder=self.folder)
        self._environments[name] = environment

    def start_twin(self, name: WorkerId) -> Child:
        """One more process under a worker's name, on a disk of its own."""
        setup = json.loads(self._environments[name]["ORACLE_SETUP"])
        environment = {**self._environments[name], "ORACLE_SETUP": json.dumps({**setup, "disk": f"{name}-twin"})}
        return self.processes.start(f"{name}-twin", self._command, environment=environment, folder=self.folder)

    def _previous_release(self) -> Path:
        return release if (release := self.folder / "previous").exists() else unpack(release)

    def mend(self) -> None:
        """Workers that start from now on have no planted defect."""
        self._planted = ()

    async def terminate(self, name: WorkerId, limit_s: float = 90.0) -> int | None:
        """SIGTERM; the exit code, None when it did not end in time."""
        return await self.end(self.alive.pop(name), limit_s)

    async def end(self, child: Child, limit_s: float = 90.0, *, by: signal.Signals = signal.SIGTERM) -> int | None:
        """Send a signal; the exit code, None when it did not end in time."""
        child.send(by)
        return child.exit_code if await until(lambda: not child.alive, limit_s) else None

    def fault(self, name: WorkerId, what: str, point: str) -> None:
        """Let a worker die or stop when it comes to a point."""
        (self.folder / f"{name}.fault").write_text(f"{what} {point}")

    def rejoin_in_place(self, name: WorkerId) -> None:
        """Let a worker join its group again, as if the broker had asked for it."""
        (self.folder / f"{name}.{REJOIN}").touch()

    def stop(self, name: WorkerId) -> None:
        """SIGSTOP."""
        note_fault(self.folder)
        self.alive[name].send(signal.SIGSTOP)

    @property
    def faults(self) -> list[float]:
        """When a worker died or stopped, epoch seconds."""
        return faults(self.folder)

    # ---- what the workers say

    @property
    def members(self) -> list[WorkerId]:
        """The living workers of the app that is looked at."""
        return [name for name in self.alive if app_of(self.versions[name]) == self.app]

    def owners(self) -> dict[KeyGroup, list[WorkerId]]:
        """Who says it owns which key group, of the living."""
        owners: dict[KeyGroup, list[WorkerId]] = defaultdict(list)
        for name in self.alive:
            if name in self.agent.statistics:
                for sample in self.agent.statistics[name][1].key_groups:
                    owners[sample.key_group].append(name)
        return owners

    def generations(self) -> set[int | None]:
        return {self.agent.statistics[name][1].generation for name in self.members if name in self.agent.statistics}

    @property
    def key_groups(self) -> list[KeyGroup]:
        return [KeyGroup(self.app, operator, p) for operator, rows in self.rows.items() for p in range(len(rows))]

    async def settled(self, limit_s: float = 60.0) -> float:
        """Wait until every key group has one owner, by fresh statistics of all workers; go on from there.

        Returns the seconds it took.  Raises TimeoutError when nothing has changed for so long.
        """
        began = time.time()

        def clean() -> bool:
            fresh = [self.agent.statistics.get(name, (0.0, None)) for name in self.members]
            if not all(at > began + 0.6 and s is not None and s.state is WorkerState.RUNNING for at, s in fresh):
                return False
            owners = self.owners()
            return len(self.generations()) == 1 and all(len(owners[k]) == 1 for k in self.key_groups)

        if not await until(clean, limit_s, self.agent.states):
            odd = {str(k): self.owners()[k] for k in self.key_groups if len(self.owners()[k]) != 1}
            raise TimeoutError(f"no clean ownership after {time.time() - began:.0f} s: {odd}, {self.agent.states()}")
        for key_group in self.key_groups:
            (owner,) = self.owners()[key_group]
            row = self.rows[key_group.operator][key_group.partition]
            rest = [name for name in row if name != owner and name in self.members][:1]
            self.rows[key_group.operator][key_group.partition] = (owner, *rest)
        return time.time() - began

    async def joined(self, limit_s: float = 60.0) -> None:
        """Wait until all workers run in one generation, whoever owns what.  Raises TimeoutError."""
        began = time.time()

        def running() -> bool:
            fresh = [self.agent.statistics.get(name, (0.0, None)) for name in self.alive]
            return len(self.generations()) == 1 and all(
                at > began + 0.6 and s is not None and s.state is WorkerState.RUNNING for at, s in fresh
            )

        if not await until(running, limit_s):
            raise TimeoutError(f"not all run after {limit_s} s: {self.generations()}")

    async def worked_off(self, limit_s: float = 240.0) -> None:
        """Wait until the backlog is gone."""

        def left() -> int:
            return sum(s.backlog or 0 for _, stats in self.agent.statistics.values() for s in stats.key_groups)

        await asyncio.sleep(1.0)
        if not await until(lambda: left() < self.setup.rate, limit_s):
            raise TimeoutError(f"backlog still {left()}")

    # ---- controller

    @property
    def epoch(self) -> Epoch:
        return Epoch(1, self._epoch)

    async def publish(self) -> None:
        """The rows as the newest placement."""
        self._epoch += 1
        owners = {operator: tuple(rows) for operator, rows in self.rows.items()}
        size = self.setup.part_size
        placement = Placement(cluster=CLUSTER, app=self.app, epoch=self.epoch, owners=owners, part_size=size)
        before = self._published if self._published is not None and self._published.app == self.app else None
        self._published = placement
        await self.write_placement(placement, before)

    async def write_placement(self, placement: Placement, before: Placement | None = None) -> None:
        """A placement of whatever origin; `before` = what is on the topic."""
        for key, value in records_of(placement, before):
            await self._placements.send_and_wait(Topics(CLUSTER).placement, value, key=key)

    def row(self, key_group: KeyGroup) -> tuple[WorkerId, ...]:
        return self.rows[key_group.operator][key_group.partition]

    def place(self, key_groups: Iterable[KeyGroup], row: tuple[WorkerId, ...]) -> None:
        for key_group in key_groups:
            self.rows[key_group.operator][key_group.partition] = row

    async def command(self, kind: CommandKind, name: WorkerId, *, limit_s: float = 60.0, **fields: Any) -> Command:
        now = time.time()
        command = Command(
            cluster=CLUSTER,
            kind=kind,
            epoch=self.epoch,
            host=HOST,
            worker=name,
            app=self.app,
            issued_at=now,
            deadline=now + limit_s,
            **fields,
        )
        await self.agent.send(command)
        return command

    async def answer(self, command: Command, phases: set[Phase], limit_s: float) -> Ack | None:
        """The first ack of a command in one of these phases, or refused."""
        wanted, deadline = phases | {Phase.REFUSED}, time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for ack in self.agent.acks:
                if ack.command_id == command.id and ack.phase in wanted:
                    return ack
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.agent.news.wait(), 0.05)
        return None

    def pick(self, most: int = 1) -> tuple[tuple[KeyGroup, ...], WorkerId, WorkerId]:
        """Random key groups of one owner, and another worker."""
        present = [name for name in self.members if name in self.agent.statistics]
        source = self.random.choice([n for n in present if any(self.row(k)[0] == n for k in self.key_groups)])
        target = self.random.choice([name for name in present if name != source])
        held = [k for k in self.key_groups if self.row(k)[0] == source]
        return tuple(self.random.sample(held, min(self.random.randint(1, most), len(held)))), source, target

    async def hand_over(
        self,
        key_groups: tuple[KeyGroup, ...],
        source: WorkerId,
        target: WorkerId,
        *,
        took_limit_s: float = 10.0,
        before_release: Callable[[], None] = lambda: None,
    ) -> bool:
        """Prepare and release; whether the target took them."""
        self.place(key_groups, (source, target))
        await self.publish()
        name = f"handover-{self._epoch}"
        fields: dict[str, Any] = {"handover": name, "key_groups": key_groups, "source": source, "target": target}
        prepare = await self.command(CommandKind.PREPARE, target, **fields)
        prepared = await self.answer(prepare, {Phase.PREPARED}, 60.0)
        if prepared is None or prepared.phase is Phase.REFUSED:
            self._say(f"  {name} not prepared: {told_by(prepared)}")
            return False
        before_release()
        self.place(key_groups, (target, source))
        await self.publish()
        at = time.time()
        fields["generation"] = prepared.generation
        release = await self.command(CommandKind.RELEASE, source, **fields)
        took = await self.answer(prepare, {Phase.TOOK}, took_limit_s)
        done = took is not None and took.phase is Phase.TOOK
        released = next((a for a in self.agent.acks if a.command_id == release.id), None)
        if not done:
            self._say(f"  {name} {source}->{target} not taken: {told_by(took)}; release: {told_by(released)}")
        self.moves.append(
            Move(
                at=at,
                kind="hand-over",
                key_groups=key_groups,
                source=source,
                target=target,
                pause_s=took.pause_s if took is not None and done else None,
            )
        )
        return done

    async def rejoin(self, limit_s: float = 90.0) -> bool:
        """Have one worker ask for a rebalance under the newest placement."""
        name = self.random.choice(self.members)
        command = await self.command(CommandKind.REJOIN, name, limit_s=limit_s)
        ack = await self.answer(command, {Phase.REJOINED}, limit_s)
        return ack is not None and ack.phase is Phase.REJOINED

    async def be_calm(self, seconds: float) -> None:
        """Nothing moves for so long: what the pauses are compared with."""
        began = time.time()
        await asyncio.sleep(seconds)
        self.calm.append((began, time.time()))


def trimtabs_topics() -> list[Topic]:
    """What the controller creates when it first runs."""
    return [Topic(name=t.name, partitions=t.partitions) for t in topic_settings(Topics(CLUSTER))]


def worker(number: int) -> WorkerId:
    return WorkerId(f"w{number}")


async def until(done: Callable[[], bool], limit_s: float, seen: Callable[[], object] = lambda: None) -> bool:
    """Look every 50 ms; False when it did not come true in time.

    On a busy machine all takes longer: while what is `seen` changes, it waits on, up to five times as long in all.
    """
    last, deadline, end = seen(), time.monotonic() + limit_s, time.monotonic() + 5 * limit_s
    while not done():
        if (now := seen()) != last:
            last, deadline = now, min(end, time.monotonic() + limit_s)
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True
