"""What the agent makes of what its socket tells it: lines in the log and metrics, both bounded."""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fuzz.fuzzed.samples import HELLO, STATISTICS
from trimtab_agent import daemon
from trimtab_agent.configuration import AgentConfiguration
from trimtab_agent.daemon import Agent
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.local import Hello, Statistics
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.settings.kafka import KafkaSettings

REFUSED = "trimtab_agent_worker_refused_records_total"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """In this process, without its loop, at one moment."""
    monkeypatch.setattr(daemon, "time", SimpleNamespace(monotonic=lambda: 1000.0, time=time.time))
    loop = asyncio.new_event_loop()
    made = Agent(
        AgentConfiguration(
            cluster="demo", host=HostId("h0"), interval_s=1.0, state_dir=tmp_path, socket=tmp_path / "a.sock",
            kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        ),
        loop,
    )  # fmt: skip
    yield made
    made._commands.close()
    loop.close()


def hello(worker: str) -> Hello:
    return replace(HELLO, worker=WorkerId(worker))


def statistics(refused: dict[Fault, int]) -> Statistics:
    return replace(STATISTICS, refused=refused)


def value(agent: Agent, name: str, **labels: str) -> float | None:
    return agent._metrics.registry.get_sample_value(name, labels)


def test_a_flood_is_counted_and_a_hundred_lines_of_it_are_said(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for number in range(200):
        agent.frame_refused(None, "connections", "too many")
        if number % 2:
            agent.worker_connected(hello("w0"), None)
            agent.worker_gone(WorkerId("w0"))

    said = Counter(record.getMessage() for record in caplog.records)
    assert said == {"bad frame": 50, "worker connected": 25, "worker disconnected": 25}
    assert value(agent, "trimtab_agent_bad_frames_total", reason="connections") == 200


def test_a_loop_that_cannot_accept_complains_a_hundred_times(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(agent.loop_failed)
    for _ in range(200):
        loop.call_exception_handler({"message": "socket.accept() out of system resource"})
    loop.close()
    assert len(caplog.records) == 100


def test_a_flood_does_not_hide_a_fault_of_ours(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(200):
        agent.frame_refused(None, "connections", "too many")
    caplog.clear()

    loop = asyncio.new_event_loop()
    agent.loop_failed(loop, {"message": "a fault of ours"})
    loop.close()

    assert [record.getMessage() for record in caplog.records] == ["a fault of ours"]


def test_without_its_reader_the_agent_ends(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    agent.reader_failed(RuntimeError("ours"))

    assert agent._stop.is_set()
    assert agent._fault == "reading commands failed: RuntimeError('ours')"
    assert "RuntimeError: ours" in caplog.text


def test_what_a_worker_refused_goes_with_it(agent: Agent) -> None:
    for worker in ("w0", "w1"):
        agent.worker_connected(hello(worker), None)
        agent.worker_reported(WorkerId(worker), statistics({Fault.UNSIGNED: 2, Fault.RANGE: 1}))
    agent.worker_gone(WorkerId("w0"))

    left = [sample for metric in agent._metrics.registry.collect() for sample in metric.samples]
    assert {sample.labels["worker"] for sample in left if sample.name == REFUSED} == {"w1"}
    assert value(agent, REFUSED, worker="w1", reason="unsigned") == 2


def test_each_worker_that_ended_before_its_state_was_overwritten_counts_once(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # the worker starts again, and its own count with it
        agent.worker_connected(hello("w0"), None)
        for breaches in (None, 0, 1, 1):
            agent.worker_reported(WorkerId("w0"), replace(statistics({}), breaches=breaches))
        agent.worker_gone(WorkerId("w0"))

    assert value(agent, "trimtab_agent_worker_state_breaches_total", worker="w0") == 2
    assert [record.levelname for record in caplog.records].count("CRITICAL") == 2


@pytest.mark.parametrize(
    ("field", "metric"),
    [("reset", "trimtab_agent_worker_offsets_reset"), ("lost", "trimtab_agent_worker_records_lost")],
)
def test_what_goes_wrong_with_inputs_and_state_shows_in_a_metric_until_the_worker_is_gone(
    agent: Agent, field: str, metric: str
) -> None:
    shown = []
    agent.worker_connected(hello("w0"), None)
    for told in (None, True, None):
        agent.worker_reported(WorkerId("w0"), replace(statistics({}), **{field: told}))
        shown.append(value(agent, metric, worker="w0"))
    agent.worker_gone(WorkerId("w0"))

    assert shown == [0, 1, 0]
    assert value(agent, metric, worker="w0") is None


def test_what_may_be_counted_twice_is_less_than_what_is(agent: Agent) -> None:
    agent.worker_connected(hello("w0"), None)
    shown = []
    for certain in (None, True):
        agent.worker_reported(WorkerId("w0"), replace(statistics({}), reset=certain, maybe_reset=True))
        shown.append(value(agent, "trimtab_agent_worker_offsets_reset", worker="w0"))

    assert shown == [0.5, 1]


def test_a_worker_whose_process_cannot_be_looked_at_is_welcome_and_measured(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor(pid: int) -> None:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(daemon, "identify", no_descriptor)
    agent.worker_connected(hello("w0"), os.getpid())
    assert value(agent, "trimtab_agent_workers_connected") == 1
    assert agent._reporter._measure(5.0).workers.keys() == {"w0"}
