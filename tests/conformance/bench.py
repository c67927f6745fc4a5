"""One run: a cluster of two workers of the plug-in under test, with agent and controller played."""

import asyncio
import json
import os
import shlex
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from tests.conformance.agent import HOST, Connection, PlayedAgent
from tests.conformance.kafka import Names, PlayedController
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.local import Statistics
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.signing.keys import write_trust
from trimtab_sandbox.processes import Child, Processes

PARTITIONS = 4
KEYS = 5
"""Of each partition of the input."""
OPERATOR = OperatorId("count")
W0, W1 = WorkerId("w0"), WorkerId("w1")
WORKERS = (W0, W1)
START_LIMIT_S = 60.0
LIMIT_S = 30.0
"""For everything that a plug-in is asked to do; what it needs usually is a tenth of that."""


class Breach(AssertionError):
    """The plug-in does not keep a clause."""


def expect(kept: object, found: str) -> None:
    """Raises Breach."""
    if not kept:
        raise Breach(found)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is tested, and where."""

    command: str
    """Starts one worker in the foreground; split like a shell does, without one."""
    bootstrap: str
    folder: Path
    names: Names
    session_s: float = 6.0


class Bench:
    """Use as an async context; what it starts has ended when the block is left."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.kafka = PlayedController(run.bootstrap, run.names, PARTITIONS)
        self.agent = PlayedAgent(run.folder / "agent.sock", run.names.cluster)
        self.children: dict[WorkerId, Child] = {}
        self.rows: list[Owners] = [(WORKERS[p % 2], WORKERS[1 - p % 2]) for p in range(PARTITIONS)]
        self.sent: dict[str, int] = defaultdict(int)
        """Inputs so far, by key."""
        self.number = 0
        """Of the last placement published."""
        self._processes = Processes(run.folder / "logs")

    async def __aenter__(self) -> "Bench":
        self._processes.__enter__()
        try:
            await asyncio.to_thread(self.kafka.create_topics)
            (self.run.folder / "trusted.keys").write_text(write_trust([self.kafka.key.public]))
            await self.agent.start()
            await self.publish()
            for name in WORKERS:
                self.start(name)
        except BaseException:
            self._processes.__exit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.agent.stop()
        finally:
            await asyncio.to_thread(self._processes.__exit__, None, None, None)

    # ---- workers

    def start(self, name: WorkerId) -> None:
        """Start a worker, with everything that the contract lets it know."""
        state = self.run.folder / f"state-{name}"
        state.mkdir(exist_ok=True)
        environment = {
            "TRIMTAB_CLUSTER": self.run.names.cluster,
            "TRIMTAB_WORKER": name,
            "TRIMTAB_SOCKET": str(self.run.folder / "agent.sock"),
            "TRIMTAB_TRUST": str(self.run.folder / "trusted.keys"),
            "CONFORMANCE_BOOTSTRAP": self.run.bootstrap,
            "CONFORMANCE_APP": self.run.names.app,
            "CONFORMANCE_INPUT": self.run.names.input,
            "CONFORMANCE_OUTPUT": self.run.names.output,
            "CONFORMANCE_PARTITIONS": str(PARTITIONS),
            "CONFORMANCE_FOLDER": str(state),
            "CONFORMANCE_SESSION_S": f"{self.run.session_s:g}",
        }
        command = shlex.split(self.run.command)
        self.children[name] = self._processes.start(name, command, environment=environment, folder=Path.cwd())

    def signal(self, name: WorkerId, number: signal.Signals) -> None:
        """Signal the worker and all processes that it started: the command may be a wrapper of it."""
        os.killpg(self.children[name].pid, number)

    async def terminate(self, name: WorkerId) -> int | None:
        """SIGTERM; the exit code, None when the worker has not ended in time."""
        child = self.children.pop(name)
        os.killpg(child.pid, signal.SIGTERM)
        await self.until(lambda: not child.alive, LIMIT_S)
        return child.exit_code

    # ---- what workers say

    def key_group(self, partition: int) -> KeyGroup:
        return KeyGroup(self.run.names.app, OPERATOR, partition)

    def connection(self, worker: WorkerId) -> Connection:
        """Raises Breach when the worker is not connected."""
        connection = self.agent.connection(worker)
        if connection is None:
            raise Breach(f"{worker} is not connected to the agent")
        return connection

    async def fresh(self, worker: WorkerId, after: float | None = None) -> Statistics:
        """Statistics of an interval that began now, or at `after` (epoch seconds), or later.  Raises Breach."""
        since = time.time() if after is None else after

        def found() -> Statistics | None:
            connection = self.agent.connection(worker)
            for _, _, statistics in connection.statistics if connection else ():
                if statistics.at_ms / 1e3 - statistics.interval_s >= since:
                    return statistics
            return None

        await self.until(lambda: found() is not None, LIMIT_S)
        statistics = found()
        if statistics is None:
            raise Breach(f"no statistics of {worker} within {LIMIT_S:g} s; {self._said()}")
        return statistics

    def owners(self) -> dict[int, list[WorkerId]]:
        """Who says that it owns which partition, of the living; only what came within the last two seconds."""
        owners: dict[int, list[WorkerId]] = {p: [] for p in range(PARTITIONS)}
        for worker in self.children:
            at, statistics = self.agent.newest(worker) or (0.0, None)
            if statistics is not None and at > time.time() - 2.0:
                for sample in statistics.key_groups:
                    owners[sample.key_group.partition].append(worker)
        return owners

    async def settled(self, workers: Collection[WorkerId] = WORKERS, limit_s: float = LIMIT_S) -> None:
        """Wait until the workers run in one generation and own what the placement says.  Raises Breach."""
        began = time.time()
        wanted = {p: [next(w for w in row if w in workers)] for p, row in enumerate(self.rows)}

        def clean() -> bool:
            newest = [self.agent.newest(worker) for worker in workers]
            known = [entry for entry in newest if entry is not None and entry[0] > began]
            return (
                len(known) == len(workers)
                and all(statistics.state is WorkerState.RUNNING for _, statistics in known)
                and len({statistics.generation for _, statistics in known}) == 1
                and self.owners() == wanted
            )

        if not await self.until(clean, limit_s):
            raise Breach(f"not as the placement says within {limit_s:g} s: expected {wanted}, {self._said()}")

    def generation(self, worker: WorkerId = W0) -> int | None:
        """The group generation of the last statistics."""
        newest = self.agent.newest(worker)
        return newest[1].generation if newest else None

    def refused(self, worker: WorkerId, reason: str) -> int:
        """How many records a worker has refused for this reason, as its last statistics say."""
        newest = self.agent.newest(worker)
        return dict(newest[1].refused).get(reason, 0) if newest else 0  # type: ignore[call-overload]

    def _said(self) -> str:
        newest = {worker: self.agent.newest(worker) for worker in self.children}
        states = {w: (s[1].state.value, s[1].generation) if s else "no statistics" for w, s in newest.items()}
        return f"owners {self.owners()}, states {states}, frames refused {self.agent.faults}"

    # ---- what the controller does

    @property
    def epoch(self) -> Epoch:
        return Epoch(1, self.number)

    def placement(self, rows: Iterable[Owners], epoch: Epoch) -> Placement:
        names = self.run.names
        return Placement(cluster=names.cluster, app=names.app, epoch=epoch, owners={OPERATOR: tuple(rows)})

    async def publish(self) -> None:
        """Publish the rows under the next epoch."""
        self.number += 1
        await asyncio.to_thread(self.kafka.place, self.placement(self.rows, self.epoch))

    async def move(self, partitions: Iterable[int], row: Owners) -> None:
        """Give these partitions new rows, and publish."""
        for partition in partitions:
            self.rows[partition] = row
        await self.publish()

    def command(self, kind: CommandKind, worker: WorkerId, **fields: Any) -> Command:
        """A command of the newest epoch."""
        now, names = time.time(), self.run.names
        return Command(
            cluster=names.cluster,
            kind=kind,
            epoch=self.epoch,
            host=HOST,
            worker=worker,
            app=fields.pop("app", names.app),
            issued_at=now,
            deadline=now + fields.pop("limit_s", LIMIT_S),
            **fields,
        )

    def step(
        self, kind: CommandKind, partitions: Iterable[int], source: WorkerId, target: WorkerId, **more: Any
    ) -> Command:
        """A prepare, release or abandon of the hand-over that is named after the epoch of its prepare."""
        return self.command(
            kind,
            source if kind is CommandKind.RELEASE else target,
            source=source,
            target=target,
            key_groups=more.pop("key_groups", tuple(map(self.key_group, partitions))),
            handover=more.pop("handover", f"handover-{self.number}"),
            **more,
        )

    async def answers(self, command: Command, phase: Phase, count: int = 1, to: WorkerId | None = None) -> list[Ack]:
        """Send a command; all its answers, once there are so many more of this phase, or of refused.  Raises Breach."""
        before = len(self._answered(command, phase))
        self.agent.send(to or command.worker, command)
        return await self.awaited(command, phase, before + count)

    async def awaited(self, command: Command, phase: Phase, count: int = 1) -> list[Ack]:
        """All answers to a command, once there are so many of this phase, or of refused.  Raises Breach."""
        if not await self.until(lambda: len(self._answered(command, phase)) >= count, LIMIT_S):
            said = [
                f"{ack.phase} {ack.refusal or ''}".strip() for ack in self.agent.acks if ack.command_id == command.id
            ]
            raise Breach(f"{command.kind} is not answered `{phase}` within {LIMIT_S:g} s; answers so far: {said}")
        return [ack for ack in self.agent.acks if ack.command_id == command.id]

    async def refusal(self, command: Command, *expected: Refusal, to: WorkerId | None = None) -> None:
        """Send a command that is to be refused for one of these reasons.  Raises Breach."""
        ack = (await self.answers(command, Phase.REFUSED, to=to))[-1]
        expect(ack.refusal in expected, f"{command.kind}: found `{ack.refusal}`, expected `{' or '.join(expected)}`")

    def _answered(self, command: Command, phase: Phase) -> list[Ack]:
        return [a for a in self.agent.acks if a.command_id == command.id and a.phase in (phase, Phase.REFUSED)]

    # ---- the job

    async def send(self, per_key: int, partitions: Iterable[int] = range(PARTITIONS)) -> None:
        """So many inputs of each key of the partitions."""
        await self.send_counts(dict.fromkeys(partitions, per_key * KEYS))

    async def send_counts(self, counts: Mapping[int, int]) -> None:
        """So many inputs per partition, one key after the other."""
        records = {p: [(f"k{p}-{i % KEYS}", b"x" * (i % 7 + 1)) for i in range(n)] for p, n in counts.items()}
        for rows in records.values():
            for key, _ in rows:
                self.sent[key] += 1
        await asyncio.to_thread(self.kafka.send_inputs, records)

    async def outputs(self) -> list[Message]:
        return await asyncio.to_thread(self.kafka.outputs)

    async def counted(self, *, exactly: bool = True) -> dict[str, list[tuple[int, str]]]:
        """Wait until every input is counted; (count, worker) of each output by key.  Raises Breach.

        `exactly`: each key's counts are 1, 2, 3 ...: nothing lost, nothing twice, nothing of a state overwritten.
        """
        deadline = time.monotonic() + LIMIT_S
        while True:
            found: dict[str, list[tuple[int, str]]] = defaultdict(list)
            for message in await self.outputs():
                value = json.loads(message.value())
                found[message.key().decode()].append((value["count"], value["worker"]))
            missing = {k: n - len(found[k]) for k, n in self.sent.items() if len(found[k]) < n}
            if not missing or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.2)
        expect(not missing, f"inputs without an output after {LIMIT_S:g} s, by key: {missing}")
        if exactly:
            for key, rows in found.items():
                counts = [count for count, _ in rows]
                expect(
                    counts == list(range(1, self.sent[key] + 1)),
                    f"counts of key {key}: expected 1 to {self.sent[key]} in order, found {counts[-20:]} at the end",
                )
        return found

    @staticmethod
    async def until(done: Callable[[], bool], limit_s: float) -> bool:
        """Look every 20 ms; False when it did not come true in time."""
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True
