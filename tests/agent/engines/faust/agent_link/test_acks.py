import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.agent.engines.faust.agent_link.agent_link_situations import WELCOME, WORKER, FakeAgent, command, running
from trimtab_agent.engines.faust import agent_link as link_module
from trimtab_agent.engines.faust.agent_link import ack
from trimtab_agent.engines.outcomes import (
    Abandoned,
    CommandRefused,
    Outcome,
    Prepared,
    Rejoined,
    Released,
    Report,
    Took,
)
from trimtab_protocol.messages.commands import Command, Phase, Refusal
from trimtab_protocol.messages.local import decode_frame, encode_frame
from trimtab_protocol.messages.names import Epoch, WorkerId


async def test_every_outcome_of_a_command_is_acked_also_after_it_returned(path: Path):
    async def execute(command: Command, report: Report) -> None:
        report(Prepared(generation=5, lag_records=2, state_bytes=77))
        asyncio.get_running_loop().call_later(0.02, report, Took(generation=5, pause_s=0.1))

    async with FakeAgent(path) as agent, running(path, execute):
        connection = await agent.accept()
        connection.write(encode_frame(command()))
        acks = [await connection.read_ack() for _ in range(2)]

    assert [(a.phase, a.command_id, a.generation) for a in acks] == [
        (Phase.PREPARED, command().id, 5),
        (Phase.TOOK, command().id, 5),
    ]
    assert [(a.cluster, a.host, a.worker, a.handover) for a in acks] == [("c", "h0", "w0", "h-1")] * 2


async def test_acks_wait_for_the_next_agent(path: Path):
    may_answer = asyncio.Event()

    async def execute(command: Command, report: Report) -> None:
        await may_answer.wait()
        report(Prepared(generation=5, lag_records=2, state_bytes=None))

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
            found = await (await agent.accept()).read_ack()
    assert found.phase is Phase.PREPARED


async def test_more_acks_than_fit_cost_the_oldest(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "MAX_WAITING_ACKS", 2)

    async def execute(command: Command, report: Report) -> None:
        for lag in (1, 2, 3):
            report(Prepared(generation=5, lag_records=lag, state_bytes=None))

    async with FakeAgent(path) as agent, running(path, execute) as link:
        connection = await agent.accept()
        connection.write(encode_frame(command()))
        acks, dropped = [await connection.read_ack() for _ in range(2)], link.faults["an ack is dropped"]
    assert ([a.lag_records for a in acks], dropped) == ([2, 3], 1)


@pytest.mark.parametrize(
    ("changes", "steers", "refusal"),
    [
        ({"worker": WorkerId("w7"), "target": WorkerId("w7")}, None, Refusal.UNKNOWN_WORKER),
        ({}, "version of aiokafka", Refusal.NOT_STEERING),
    ],
)
async def test_what_this_worker_cannot_do_is_refused(
    path: Path, changes: dict[str, Any], steers: str | None, refusal: Refusal
):
    async with FakeAgent(path) as agent, running(path) as link:
        link._status.refusal = steers  # type: ignore[misc]
        connection = await agent.accept()
        connection.write(encode_frame(command(**changes)))
        found = await connection.read_ack()
    assert found.refusal is refusal


async def test_a_command_that_fails_is_refused_with_the_fault(path: Path):
    async def execute(command: Command, report: Report) -> None:
        raise RuntimeError("disk full")

    async with FakeAgent(path) as agent, running(path, execute):
        connection = await agent.accept()
        connection.write(encode_frame(command()))
        answer = await connection.read_ack()
    assert (answer.refusal, answer.detail) == (Refusal.FAILED, "RuntimeError('disk full')")


@pytest.mark.parametrize(
    ("outcome", "phase", "told"),
    [
        (Prepared(generation=1, lag_records=2, state_bytes=3), Phase.PREPARED, {"lag_records": 2, "state_bytes": 3}),
        (Released(generation=1, drain_s=0.1, flush_s=0.2, commit_s=0.3), Phase.RELEASED, {"generation": 1}),
        (Took(generation=1, pause_s=0.25), Phase.TOOK, {"pause_s": 0.25}),
        (Abandoned(), Phase.ABANDONED, {}),
        (Rejoined(generation=9, epoch=Epoch(1, 2)), Phase.REJOINED, {"generation": 9, "detail": "placement 1.2"}),
        (CommandRefused(refusal=Refusal.GENERATION, detail=""), Phase.REFUSED, {"refusal": Refusal.GENERATION}),
    ],
)
def test_each_outcome_has_its_ack(outcome: Outcome, phase: Phase, told: dict[str, Any]):
    answer = ack(command(), outcome, welcome=WELCOME, worker=WORKER, at=3.0)

    assert (answer.phase, answer.at) == (phase, 3.0)
    assert {name: getattr(answer, name) for name in told} == told
    assert decode_frame(encode_frame(answer)) == answer
