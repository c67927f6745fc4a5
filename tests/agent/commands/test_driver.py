"""The machine's hands: nothing is done before the journal has it, nothing after the journal failed."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.commands import agent_transcripts as transcripts
from tests.agent.commands.agent_transcripts import APP, W0, W1
from trimtab_agent.commands import driver as driver_module
from trimtab_agent.commands import journal as journal_module
from trimtab_agent.commands import machine as machine_module
from trimtab_agent.commands.driver import CommandDriver
from trimtab_agent.commands.events import Admitted, Entry, Position, WorkerConnected, WorkerDisconnected
from trimtab_agent.commands.journal import Journal
from trimtab_agent.commands.restarts import backoff_s
from trimtab_agent.configuration import (
    AgentConfiguration,
    GuardConfiguration,
    WorkerConfiguration,
)
from trimtab_agent.metrics import AgentMetrics
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.settings.kafka import KafkaSettings


class Hands:
    """A driver whose worker and broker are this test."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.acks: list[Ack] = []
        self.failures: list[str] = []
        self.broker_says: list[str | None] = []
        self.free_memory_bytes = 10**9
        self.metrics = AgentMetrics()
        workers = {
            W0: WorkerConfiguration(data_dir=folder / "not" / "yet"),
            W1: WorkerConfiguration(command=("/no/such/program",)),
        }
        values: dict[str, Any] = {
            "cluster": "demo", "host": HostId("h0"), "interval_s": 1.0, "state_dir": folder,
            "socket": folder / "a.sock", "kafka": KafkaSettings(bootstrap_servers="-"), "workers": workers, **changes,
        }  # fmt: skip
        self.driver = CommandDriver(
            AgentConfiguration(**values),
            self.metrics,
            tell=lambda worker, command: self.told.append(f"{worker} {command.kind} after {self.in_journal()}"),
            produce=self.produce,
            free_memory_bytes=lambda: self.free_memory_bytes,
            fail=self.failures.append,
        )

    def produce(self, ack: Ack, done: Callable[[str | None], None]) -> None:
        self.acks.append(ack)
        if self.broker_says:
            done(self.broker_says.pop(0))

    def in_journal(self) -> int:
        """Commands in the journal's file."""
        return sum(isinstance(entry, Admitted) for entry in entries(self.folder))

    def connect(self) -> None:
        self.driver.handle(WorkerConnected(worker=W0, app=APP, process=None, steering=True))

    @property
    def answers(self) -> list[tuple[int, Phase, Refusal | None]]:
        return [(ack.epoch.number, ack.phase, ack.refusal) for ack in self.acks]


def entries(folder: Path) -> tuple[Entry, ...]:
    return Journal(folder / "journal").recover().entries


def command(number: int, kind: CommandKind = CommandKind.REJOIN, worker: WorkerId = W0, **changes: Any) -> Command:
    now = time.time()
    return transcripts.command(kind, number, worker=worker, **{"issued_at": now - 1, "deadline": now + 60, **changes})


def position(offset: int) -> Position:
    return Position(topic_id="k", partition=0, offset=offset)


def prepare(number: int) -> Command:
    return command(number, CommandKind.PREPARE)


async def test_an_ack_that_the_broker_did_not_take_is_sent_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "ACK_RETRY_S", 0.01)

    hands = Hands(tmp_path)
    hands.broker_says = ["timed out", "timed out", None]
    hands.connect()
    hands.driver.receive(command(1))
    while hands.broker_says:
        await asyncio.sleep(0.01)

    assert hands.answers == [(1, Phase.ACCEPTED, None)] * 3
    hands.driver.close()
    again = Hands(tmp_path)
    again.driver.resume()
    assert again.answers == []


async def test_a_command_written_again_and_again_is_answered_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    hands = Hands(tmp_path)
    hands.connect()
    for true in [command(1)] * 50:
        hands.driver.receive(true)

    assert hands.answers == [(1, Phase.ACCEPTED, None)] * 50
    assert [record.message for record in caplog.records] == ["command answered"]


async def test_the_worker_is_told_after_the_journal_has_it_and_after_a_restart_all_is_sent_again(
    tmp_path: Path,
) -> None:
    hands = Hands(tmp_path)
    hands.connect()
    hands.driver.receive(command(1))
    assert (hands.told, hands.answers) == (["w0 rejoin after 1"], [(1, Phase.ACCEPTED, None)])

    again = Hands(tmp_path)
    again.driver.resume()
    again.connect()

    assert again.answers == [(1, Phase.ACCEPTED, None)]
    assert again.told == ["w0 rejoin after 1"]


async def test_when_the_journal_cannot_be_written_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Journal, entry: Entry, *, durable: bool = True) -> None:
        raise OSError(28, "No space left on device")

    hands = Hands(tmp_path)
    hands.connect()
    monkeypatch.setattr(Journal, "append", full)
    hands.driver.receive(command(1))
    hands.driver.receive(command(2))

    assert (hands.told, hands.acks) == ([], [])
    assert hands.failures == ["the journal cannot be written: [Errno 28] No space left on device"]


async def test_what_is_cheap_to_lose_need_not_be_on_disk_and_all_else_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, bool]] = []

    def noted(self: Journal, entry: Entry, *, durable: bool = True) -> None:
        written.append((type(entry).__name__, durable))

    hands = Hands(tmp_path)
    hands.broker_says = [None]
    hands.connect()
    monkeypatch.setattr(Journal, "append", noted)
    hands.driver.receive(command(1))
    hands.driver.advance(position(5))
    hands.driver.close()

    assert written == [("Admitted", True), ("Delivered", False), ("Position", False)]


async def test_the_place_to_read_from_outlives_a_journal_that_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands(tmp_path)
    hands.driver.advance(position(5))
    hands.driver.close()
    monkeypatch.setattr(journal_module, "COMPACT_AT_BYTES", 1)

    again = Hands(tmp_path)
    again.connect()
    again.driver.receive(command(1))

    assert Hands(tmp_path).driver.positions == [position(5)]


def without_first_command(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(b"rejoin", b"rejoim", 1)),
        without_first_command,
        lambda path: path.write_bytes(b""),
        Path.unlink,
    ],
    ids=["changed", "line missing", "empty", "gone"],
)
async def test_with_a_damaged_journal_nothing_of_before_is_obeyed_again(
    tmp_path: Path, harm: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    hands = Hands(tmp_path)
    hands.connect()
    hands.driver.receive(command(1))
    hands.driver.receive(command(2))
    harm(tmp_path / "journal")

    again = Hands(tmp_path)
    assert again.metrics.journal_faults.collect()[0].samples[0].value > 0  # type: ignore[index]
    assert "journal damaged" in caplog.text
    again.connect()
    again.told.clear()  # a command that the journal still knows is under way
    again.driver.receive(command(1))
    again.driver.receive(command(3, issued_at=time.time()))

    assert again.answers == [(1, Phase.REFUSED, Refusal.FAILED), (3, Phase.REFUSED, Refusal.FAILED)]
    assert again.told == []
    again.driver.close()
    whole = Hands(tmp_path)  # written anew: it goes on remembering
    assert whole.metrics.journal_faults.collect()[0].samples[0].value == 0  # type: ignore[index]
    whole.connect()
    whole.driver.receive(command(4, issued_at=time.time()))
    assert whole.answers == [(4, Phase.REFUSED, Refusal.FAILED)]


async def test_the_place_to_read_from_is_saved_at_the_end_but_not_past_a_held_command(tmp_path: Path) -> None:
    hands = Hands(tmp_path)
    hands.driver.advance(position(5))
    hands.driver.close()
    assert Hands(tmp_path).driver.positions == [position(5)]

    holding = Hands(tmp_path)
    holding.driver.receive(command(1))  # its worker has not connected yet
    holding.driver.advance(position(6))
    holding.driver.close()
    assert Hands(tmp_path).driver.positions == [position(5)]


async def test_what_cannot_be_started_is_refused_with_the_reason(tmp_path: Path) -> None:
    hands = Hands(tmp_path)
    hands.driver.receive(command(1, CommandKind.START, W1))
    while len(hands.acks) < 2:
        await asyncio.sleep(0.01)

    assert hands.answers == [(1, Phase.ACCEPTED, None), (1, Phase.REFUSED, Refusal.FAILED)]
    assert "/no/such/program" in str(hands.acks[1].detail)


@pytest.mark.parametrize(
    "guard", [GuardConfiguration(min_free_disk_bytes=2**62), GuardConfiguration(min_free_memory_bytes=2**62)]
)
async def test_the_guard_measures_disk_and_memory(tmp_path: Path, guard: GuardConfiguration) -> None:
    hands = Hands(tmp_path, guard=guard)
    hands.connect()
    hands.driver.receive(prepare(1))

    assert hands.answers == [(1, Phase.REFUSED, Refusal.GUARD)]


async def test_a_crash_is_counted_logged_and_followed_by_a_start_after_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(driver_module, "POSITION_EVERY_S", 0.0)  # also in the tick that sees the crash
    monkeypatch.setattr(machine_module, "WORKERS_RETURN_S", 0.0)
    begun = tmp_path / "begun"
    script = f"import sys, time; print(time.time(), file=open({str(begun)!r}, 'a')); time.sleep(0.3); sys.exit(3)"
    worker = WorkerConfiguration(worker=W1, command=(sys.executable, "-c", script))
    hands = Hands(tmp_path, workers={W1: worker}, max_crashes=2)
    driver = hands.driver
    driver.receive(command(1, CommandKind.START, worker=W1))
    await asyncio.sleep(0)
    process = driver._machine.processes[W1]
    assert driver.left_running()["running"] == f"w1 (pid {process.pid})"
    driver.handle(WorkerConnected(worker=W1, app=APP, process=process, steering=True))
    driver.handle(WorkerDisconnected(worker=W1))
    task = asyncio.create_task(driver.run())
    while not driver._machine.given_up:
        await asyncio.sleep(0.05)
    task.cancel()
    driver.close()
    assert driver.left_running() == {}

    registry = hands.metrics.registry
    assert registry.get_sample_value("trimtab_agent_worker_crashes_total", {"worker": "w1"}) == 2
    assert registry.get_sample_value("trimtab_agent_workers_given_up") == 1
    again = Hands(tmp_path, workers={W1: worker})
    assert again.metrics.registry.get_sample_value("trimtab_agent_workers_given_up") == 1
    said = [record.message for record in caplog.records if "crashed" in record.message]
    assert said == ["worker crashed, and is started again", "worker crashed, and is not started again"]
    first, second = map(float, begun.read_text().split())
    assert second - first >= 0.3 + backoff_s(1)
