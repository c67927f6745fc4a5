"""The suite's own checks find what is planted; whole plug-ins with defects are a matter of minutes, not for here."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agent import PlayedAgent
from tests.conformance.bench import W0, W1, Breach
from tests.conformance.clauses import CLAUSES
from tests.conformance.failures import _check_writers
from tests.conformance.moving import _check_records
from tests.conformance.reporting import _check_cpu
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.local import Hello, Statistics, encode_frame
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId
from trimtab_protocol.messages.report import KeyGroupSample, WorkerState

APP, COUNT = AppId("job"), OperatorId("count")


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "w0"), (2, "w0")],
        [(1, "w0"), (1, "w1"), (2, "w0"), (2, "w1")],
        [(1, "w0"), (2, "w1"), (2, "w1")],
        [(1, "w1"), (3, "w1")],
    ],
    ids=["not taken over", "the stopped one goes on", "counted again", "state overwritten"],
)
def test_a_worker_that_was_not_fenced_is_found(rows: list[tuple[int, str]]) -> None:
    _check_writers("k", [(1, "w0"), (1, "w1"), (2, "w1")])  # repeated from the last commit
    with pytest.raises(Breach):
        _check_writers("k", rows)


def record(kind: HandoverKind, **changed: Any) -> HandoverRecord:
    fields: dict[str, Any] = {
        "cluster": "c",
        "app": APP,
        "handover": "h",
        "epoch": Epoch(1, 1),
        "generation": 3,
        "source": W0,
        "target": W1,
        "key_groups": (KeyGroup(APP, COUNT, 2),),
    }
    return HandoverRecord(kind=kind, **{**fields, **changed})


@pytest.mark.parametrize(
    "found",
    [
        [record(HandoverKind.RELEASED)],
        [record(HandoverKind.TOOK), record(HandoverKind.RELEASED)],
        [record(HandoverKind.RELEASED), record(HandoverKind.TOOK, generation=4)],
        [record(HandoverKind.RELEASED), record(HandoverKind.TOOK, handover="another")],
        [record(HandoverKind.RELEASED), record(HandoverKind.TOOK, source=W1, target=W0)],
        [record(HandoverKind.RELEASED), record(HandoverKind.TOOK, key_groups=(KeyGroup(APP, COUNT, 1),))],
        [record(HandoverKind.RELEASED), record(HandoverKind.TOOK, offsets=(("in", 2, 5),))],
    ],
)
def test_hand_over_records_that_do_not_fit_are_found(found: list[HandoverRecord]) -> None:
    _check_records([record(HandoverKind.RELEASED), record(HandoverKind.TOOK)], [2], "h", 3)
    with pytest.raises(Breach):
        _check_records(found, [2], "h", 3)


def statistics(cpu_s: float | None, *, process_s: float = 1.0, unknown: str | None = None) -> Statistics:
    sample = KeyGroupSample(key_group=KeyGroup(APP, COUNT, 0), worker=W0, cpu_s=cpu_s, tuples_in=7)
    return Statistics(
        at_ms=1000,
        interval_s=1.0,
        state=WorkerState.RUNNING,
        cpu_s=process_s,
        epoch=None,
        generation=1,
        complete=True,
        key_groups=(sample,),
        pairs=(),
        unknown=unknown,
    )


@pytest.mark.parametrize("wrong", [statistics(0.0), statistics(1.5), statistics(None)], ids=["zero", "too much", "why"])
def test_cpu_that_cannot_be_true_is_found(wrong: Statistics) -> None:
    _check_cpu(statistics(0.5))
    _check_cpu(statistics(None, unknown="no clock"))
    with pytest.raises(Breach):
        _check_cpu(wrong)


def hello(**changed: Any) -> bytes:
    fields: dict[str, Any] = {"app": APP, "worker": W0, "pid": 1, "steering": True, "reason": None}
    return encode_frame(Hello(**fields, operators={COUNT: 4}, versions={"trimtab-protocol": "2"}, **changed))


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (encode_frame(statistics(0.5)), "the first frame is a Statistics, expected a hello"),
        (hello() + encode_frame(statistics(0.5)), "w0 sends before it is welcomed"),
        (b"{}\n", "a frame that cannot be read"),
    ],
)
def test_frames_at_a_wrong_moment_are_noted(sent: bytes, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conformance.agent.SILENCE_S", 0.05)

    async def scenario() -> list[str]:
        with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has at most 107 bytes
            agent = PlayedAgent(Path(folder) / "s", "c")
            await agent.start()
            reader, writer = await asyncio.open_unix_connection(str(Path(folder) / "s"))
            writer.write(sent)
            async with asyncio.timeout(10.0):
                answer = await reader.readline()
            assert not answer or json.loads(answer)["frame"] == "welcome"
            writer.close()
            await agent.stop()
            return agent.faults

    (noted,) = asyncio.run(scenario())
    assert noted.startswith(fault)


def test_every_clause_has_a_name_and_says_what_it_asks() -> None:
    assert len({clause.name for clause in CLAUSES}) == len(CLAUSES)
    assert all(clause.text.endswith(".") for clause in CLAUSES)
