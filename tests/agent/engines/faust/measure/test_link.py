import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimtab_agent.engines.faust import agent_link as link_module
from trimtab_agent.engines.faust.agent_link import Link, ack, until_multiple
from trimtab_agent.engines.outcomes import (
    Abandoned,
    Outcome,
    Prepared,
    Refused,
    Rejoined,
    Released,
    Report,
    Took,
)
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.local import Frame, Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState

APP, WORKER = AppId("app"), WorkerId("w0")
KEY_GROUP = KeyGroup(APP, OperatorId("sums"), 3)
INTERVAL_S = 0.05
WELCOME = Welcome(cluster="c", host=HostId("h0"), interval_s=INTERVAL_S)
LIMIT_S = 10.0


def command(number: int = 1, **changes: Any) -> Command:
    settings: dict[str, Any] = {
        "cluster": "c",
        "kind": CommandKind.PREPARE,
        "epoch": Epoch(1, number),
        "host": HostId("h0"),
        "worker": WORKER,
        "app": APP,
        "issued_at": 1.0,
        "deadline": 2.0,
        "handover": "h-1",
        "key_groups": (KEY_GROUP,),
        "source": WorkerId("w1"),
        "target": WORKER,
    }
    return Command(**{**settings, **changes})


class FakeSteering:
    """Does with a command what the test says."""

    def __init__(self, execute: Callable[[Command, Report], Awaitable[None]]) -> None:
        self.execute = execute
        self.refusal: str | None = None
        self.waits_for: str | None = None
        self.breaches = 0
        self.known = {OperatorId("sums"): 8}

    def operators(self) -> Mapping[OperatorId, int]:
        return self.known


class FakeCollector:
    """Numbers the intervals; what was skipped is missing."""

    def __init__(self) -> None:
        self.count = 0

    def skip(self) -> None:
        self.count += 100

    def collect(self, *, at_ms: int, interval_s: float) -> Statistics:
        self.count += 1
        return Statistics(
            at_ms=at_ms,
            interval_s=interval_s,
            state=WorkerState.RUNNING,
            cpu_s=float(self.count),
            epoch=None,
            generation=None,
            complete=True,
            key_groups=(),
            pairs=(),
            standbys=1,
            unknown="no base yet",
            breaches=3,
        )


class FakeAgent:
    """Listens on the socket as an agent does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def __aenter__(self) -> "FakeAgent":
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.connections.put((reader, writer))

        self.server = await asyncio.start_unix_server(connected, str(self.path))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        while not self.connections.empty():
            self.connections.get_nowait()[1].close()
        self.path.unlink()

    async def accept(self) -> "Connection":
        connection = Connection(*await asyncio.wait_for(self.connections.get(), LIMIT_S))
        assert isinstance(await connection.read(), Hello)
        connection.write(encode_frame(WELCOME))
        return connection


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self) -> Frame:
        return decode_frame((await asyncio.wait_for(self.reader.readline(), LIMIT_S))[:-1])

    async def read_ack(self) -> Ack:
        while not isinstance(frame := await self.read(), Ack):
            pass
        return frame

    def write(self, line: bytes) -> None:
        self.writer.write(line)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has at most 107 bytes
        yield Path(folder) / "s"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(link_module, "LAST_RETRY_S", 0.02)


async def nothing(command: Command, report: Report) -> None:
    """A steering part that answers nothing."""


@asynccontextmanager
async def running(path: Path, execute: Callable[[Command, Report], Awaitable[None]] = nothing) -> AsyncIterator[Link]:
    steering, collector = FakeSteering(execute), FakeCollector()
    link = Link(app=APP, worker=WORKER, socket=path, steering=steering, collector=collector, clock=time.time)
    await link.start()
    try:
        yield link
    finally:
        await link.stop()


def test_it_presents_itself_and_then_reports_at_multiples_of_the_interval(path: Path):
    async def scenario() -> tuple[Frame, list[Statistics]]:
        async with FakeAgent(path) as agent, running(path):
            connection = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
            hello = await connection.read()
            connection.write(encode_frame(WELCOME))
            return hello, [await connection.read() for _ in range(3)]

    hello, statistics = asyncio.run(scenario())

    assert isinstance(hello, Hello)
    assert (hello.app, hello.worker, hello.steering, hello.reason) == (APP, WORKER, True, None)
    assert dict(hello.operators) == {"sums": 8}
    assert {"python", "faust-streaming", "aiokafka"} <= hello.versions.keys()
    assert [s.at_ms % 50 for s in statistics] == [0, 0, 0]
    assert [s.cpu_s for s in statistics] == [101.0, 102.0, 103.0]  # what was before the welcome is skipped
    assert all(s.interval_s >= INTERVAL_S / 2 for s in statistics)


@pytest.mark.parametrize(
    ("refusal", "waits_for", "told"),
    [
        ("workers differ", "the broker does not know these topics: a", (False, "workers differ")),
        (None, "the broker does not know these topics: a", (True, "the broker does not know these topics: a")),
        ("x" * 5000, None, (False, "x" * 4000)),
    ],
)
def test_it_says_why_it_only_reports_or_what_it_lacks(
    path: Path, refusal: str | None, waits_for: str | None, told: object
):
    async def scenario() -> Frame:
        async with FakeAgent(path) as agent, running(path) as link:
            await (await agent.accept()).close()
            link._steering.refusal, link._steering.waits_for = refusal, waits_for
            return await Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S)).read()

    hello = asyncio.run(scenario())
    assert isinstance(hello, Hello)
    assert (hello.steering, hello.reason) == told


@pytest.mark.parametrize(
    ("protocol", "told"), [(None, (None, None, None)), (2, (1, "no base yet", 3)), (3, (1, "no base yet", 3))]
)
def test_only_an_agent_of_its_protocol_is_told_what_came_with_it(path: Path, protocol: int | None, told: object):
    async def scenario() -> tuple[Hello, Statistics]:
        async with FakeAgent(path) as agent, running(path):
            connection = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
            hello = await connection.read()
            connection.write(encode_frame(replace(WELCOME, protocol=protocol)))
            return hello, await connection.read()

    hello, statistics = asyncio.run(scenario())
    assert hello.versions.keys() >= {"trimtab", "trimtab-protocol"}
    assert hello.protocol == 2
    assert (statistics.standbys, statistics.unknown, statistics.breaches) == told


def test_that_state_was_in_danger_is_said_before_the_worker_has_ended(path: Path):
    async def scenario() -> tuple[Statistics, float]:
        async with FakeAgent(path) as agent:
            async with running(path) as link:
                connection = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
                await connection.read()
                connection.write(encode_frame(replace(WELCOME, protocol=2, interval_s=60.0)))
                while link._last_words is None:
                    await asyncio.sleep(0.01)
                link._steering.breaches = 1
                began = time.monotonic()
            return await connection.read(), time.monotonic() - began

    statistics, seconds = asyncio.run(scenario())
    assert statistics.breaches == 3
    assert seconds < 30.0, "it waited for the interval's end"


def test_it_presents_itself_anew_when_that_has_changed(path: Path):
    async def scenario() -> tuple[Frame, Frame]:
        async with FakeAgent(path) as agent, running(path) as link:
            link._steering.known = {}
            first = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
            hello = await first.read()
            first.write(encode_frame(WELCOME))
            link._steering.known = {OperatorId("sums"): 8}
            second = Connection(*await asyncio.wait_for(agent.connections.get(), LIMIT_S))
            return hello, await second.read()

    first, second = asyncio.run(scenario())
    assert isinstance(first, Hello)
    assert isinstance(second, Hello)
    assert (dict(first.operators), dict(second.operators)) == ({}, {"sums": 8})


@pytest.mark.parametrize(("now", "left"), [(10.0, 2.0), (10.5, 1.5), (11.999, 0.001), (0.0, 2.0)])
def test_the_next_multiple_is_always_ahead(now: float, left: float):
    assert until_multiple(now, 2.0) == pytest.approx(left)


def test_every_outcome_of_a_command_is_acked_also_after_it_returned(path: Path):
    async def execute(command: Command, report: Report) -> None:
        report(Prepared(generation=5, lag_records=2, state_bytes=77))
        asyncio.get_running_loop().call_later(0.02, report, Took(generation=5, pause_s=0.1))

    async def scenario() -> list[Ack]:
        async with FakeAgent(path) as agent, running(path, execute):
            connection = await agent.accept()
            connection.write(encode_frame(command()))
            return [await connection.read_ack() for _ in range(2)]

    acks = asyncio.run(scenario())

    assert [(a.phase, a.command_id, a.generation) for a in acks] == [
        (Phase.PREPARED, command().id, 5),
        (Phase.TOOK, command().id, 5),
    ]
    assert [(a.cluster, a.host, a.worker, a.handover) for a in acks] == [("c", "h0", "w0", "h-1")] * 2


def test_acks_wait_for_the_next_agent(path: Path):
    may_answer = asyncio.Event()

    async def execute(command: Command, report: Report) -> None:
        await may_answer.wait()
        report(Prepared(generation=5, lag_records=2, state_bytes=None))

    async def scenario() -> Ack:
        async with running(path, execute):
            async with FakeAgent(path) as agent:
                connection = await agent.accept()
                connection.write(encode_frame(command()))
                await connection.read()  # statistics: the command before them has been read
                await connection.read()
                await connection.close()
            may_answer.set()
            await asyncio.sleep(0.05)
            async with FakeAgent(path) as agent:
                return await (await agent.accept()).read_ack()

    assert asyncio.run(scenario()).phase is Phase.PREPARED


def test_more_acks_than_fit_cost_the_oldest(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "MAX_WAITING_ACKS", 2)

    async def execute(command: Command, report: Report) -> None:
        for lag in (1, 2, 3):
            report(Prepared(generation=5, lag_records=lag, state_bytes=None))

    async def scenario() -> tuple[list[Ack], int]:
        async with FakeAgent(path) as agent, running(path, execute) as link:
            connection = await agent.accept()
            connection.write(encode_frame(command()))
            return [await connection.read_ack() for _ in range(2)], link.faults["an ack is dropped"]

    acks, dropped = asyncio.run(scenario())
    assert ([a.lag_records for a in acks], dropped) == ([2, 3], 1)


def test_the_app_goes_on_while_there_is_no_agent_and_the_link_comes_back(path: Path):
    async def scenario() -> Counts:
        async with running(path) as link:
            await asyncio.sleep(0.1)
            for _ in range(3):
                async with FakeAgent(path) as agent:
                    connection = await agent.accept()
                    assert isinstance(await connection.read(), Statistics)
                    await connection.close()
            return dict(link.faults)

    faults = asyncio.run(scenario())
    assert faults["no agent"] > 1
    assert faults["connection to the agent ended"] >= 2  # the third end may not be noticed yet


def test_who_is_not_welcome_comes_back_less_and_less_often(path: Path):
    waits: list[float] = []

    async def scenario() -> None:
        async with FakeAgent(path) as agent, running(path) as link:
            sleep = link.sleep

            async def noted(seconds: float) -> None:
                waits.append(seconds)
                await sleep(seconds)

            link.sleep = noted
            for _ in range(3):  # as if another process had the worker's name
                _, writer = await asyncio.wait_for(agent.connections.get(), LIMIT_S)
                writer.close()
            await (await agent.accept()).close()
            await agent.accept()

    asyncio.run(scenario())
    assert waits[:4] == [0.01, 0.02, 0.02, 0.01]


Counts = dict[str, int]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json\n", "malformed"),
        (b'{"v":99,"frame":"command"}\n', "wrong_version"),
        (b'{"v":1,"frame":"dance"}\n', "out_of_range"),
        (encode_frame(WELCOME), "out_of_range"),
        (encode_frame(command()).replace(b'"w0"', b'"w9"'), "out_of_range"),
    ],
)
def test_bad_frames_are_counted_and_what_follows_is_done(path: Path, line: bytes, reason: str):
    async def execute(command: Command, report: Report) -> None:
        report(Abandoned())

    async def scenario() -> tuple[Counts, Ack]:
        async with FakeAgent(path) as agent, running(path, execute) as link:
            connection = await agent.accept()
            connection.write(line * 3 + encode_frame(command()))
            answer = await connection.read_ack()
            return dict(link.faults), answer

    faults, answer = asyncio.run(scenario())
    assert {k: n for k, n in faults.items() if "bad frame" in k} == {f"bad frame from the agent: {reason}": 3}
    assert answer.phase is Phase.ABANDONED


def test_a_line_without_end_costs_the_connection_only(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "MAX_FRAME_BYTES", 1000)

    async def scenario() -> Counts:
        async with FakeAgent(path) as agent, running(path) as link:
            connection = await agent.accept()
            connection.write(b"x" * 5000)
            again = await agent.accept()
            assert isinstance(await again.read(), Statistics)
            await connection.close()
            await again.close()
            return dict(link.faults)

    assert asyncio.run(scenario())["connection to the agent ended"] == 1


@pytest.mark.parametrize(
    ("changes", "steers", "refusal"),
    [
        ({"worker": WorkerId("w7"), "target": WorkerId("w7")}, None, Refusal.UNKNOWN_WORKER),
        ({}, "version of aiokafka", Refusal.NOT_STEERING),
    ],
)
def test_what_this_worker_cannot_do_is_refused(
    path: Path, changes: dict[str, Any], steers: str | None, refusal: Refusal
):
    async def scenario() -> Ack:
        async with FakeAgent(path) as agent, running(path) as link:
            link._steering.refusal = steers
            connection = await agent.accept()
            connection.write(encode_frame(command(**changes)))
            return await connection.read_ack()

    assert asyncio.run(scenario()).refusal is refusal


def test_a_command_that_fails_is_refused_with_the_fault(path: Path):
    async def execute(command: Command, report: Report) -> None:
        raise RuntimeError("disk full")

    async def scenario() -> Ack:
        async with FakeAgent(path) as agent, running(path, execute):
            connection = await agent.accept()
            connection.write(encode_frame(command()))
            return await connection.read_ack()

    answer = asyncio.run(scenario())
    assert (answer.refusal, answer.detail) == (Refusal.FAILED, "RuntimeError('disk full')")


@pytest.mark.parametrize(
    ("outcome", "phase", "told"),
    [
        (Prepared(generation=1, lag_records=2, state_bytes=3), Phase.PREPARED, {"lag_records": 2, "state_bytes": 3}),
        (Released(generation=1, drain_s=0.1, flush_s=0.2, commit_s=0.3), Phase.RELEASED, {"generation": 1}),
        (Took(generation=1, pause_s=0.25), Phase.TOOK, {"pause_s": 0.25}),
        (Abandoned(), Phase.ABANDONED, {}),
        (Rejoined(generation=9, epoch=Epoch(1, 2)), Phase.REJOINED, {"generation": 9, "detail": "placement 1.2"}),
        (Refused(refusal=Refusal.GENERATION, detail=""), Phase.REFUSED, {"refusal": Refusal.GENERATION}),
    ],
)
def test_each_outcome_has_its_ack(outcome: Outcome, phase: Phase, told: dict[str, Any]):
    answer = ack(command(), outcome, welcome=WELCOME, worker=WORKER, at=3.0)

    assert (answer.phase, answer.at) == (phase, 3.0)
    assert {name: getattr(answer, name) for name in told} == told
    assert decode_frame(encode_frame(answer)) == answer


def test_it_ends_also_when_the_stop_comes_as_a_write_is_done(path: Path):
    """The drain ends in the same round of the loop in which the link is cancelled: the cancellation must win."""

    class Writer:
        def __init__(self) -> None:
            self.drained = asyncio.get_running_loop().create_future()

        def write(self, line: bytes) -> None: ...

        async def drain(self) -> None:
            await asyncio.shield(self.drained)

    async def scenario() -> bool:
        link = Link(app=APP, worker=WORKER, socket=path, steering=FakeSteering(nothing), collector=FakeCollector())
        writer = Writer()
        task = asyncio.ensure_future(link._write(writer, WELCOME))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.drained.set_result(None)
        await asyncio.sleep(0)  # the future is done, and whoever waits for it is about to be told
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(scenario())
