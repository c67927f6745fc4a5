"""The agent as a process, on a real broker, with a worker that speaks the plug-in's side of the socket."""

import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.e2e.agent_bench import Bench
from tests.e2e.fake_worker import APP, OPERATOR
from tests.waiting import wait_for
from trimtab_process.credential_files import load_signing_key
from trimtab_protocol.messages.commands import (
    CommandKind,
    Phase,
    Refusal,
)
from trimtab_protocol.messages.names import Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.signing.keys import SigningKey
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes

pytestmark = pytest.mark.light


@pytest.fixture
def start(tmp_path: Path, unique: str) -> Iterator[Callable[[Broker], Bench]]:
    """Makes the bench of a test on the broker it wants."""
    made: list[Bench] = []
    with Processes(tmp_path / "logs") as processes:

        def make(on: Broker) -> Bench:
            made.append(Bench(on, unique, tmp_path / "agent", processes))
            return made[-1]

        yield make
        for bench in made:
            bench.close()


@pytest.fixture
def bench(broker: Broker, start: Callable[[Broker], Bench]) -> Bench:
    """Topics and a running agent."""
    made = start(broker)
    made.create_topics()
    made.start_agent()
    return made


def test_a_report_says_what_is_complete_and_what_is_away(bench: Bench) -> None:
    bench.worker("w0", [0, 1, 2])

    report = bench.report(lambda r: len(r.key_groups) == 3 and r.sample.cpu_s is not None and r.workers[0].marks == ())

    w0, w1 = report.workers
    assert (report.cluster, report.host, report.interval_s, report.at_ms % 500) == (bench.cluster, "h0", 0.5, 0)
    assert (w0.worker, w0.app, w0.state, w0.capacity, w0.generation) == ("w0", APP, WorkerState.RUNNING, 0.25, 4)
    assert w0.cpu_s is not None
    assert (w1.worker, w1.state, w1.cpu_s, w1.memory_bytes) == ("w1", WorkerState.AWAY, None, None)
    assert report.sample.cores == psutil.cpu_count() or report.sample.basis == "cgroup"
    disk = shutil.disk_usage(bench.folder)
    assert report.sample.disk_total_bytes == pytest.approx(disk.used + disk.free, rel=0.01)
    assert report.sample.disk_free_bytes == pytest.approx(disk.free, rel=0.1)


def test_a_command_goes_through_its_phases_and_a_repeat_is_answered(bench: Bench) -> None:
    worker = bench.worker("w0", [1, 2])
    bench.report(lambda r: len(r.key_groups) == 2)
    prepare = bench.command(3, CommandKind.PREPARE, target=WorkerId("w0"), source=WorkerId("w9"))
    release = bench.command(4, CommandKind.RELEASE, key_groups=(KeyGroup(APP, OPERATOR, 2),))

    bench.publish(prepare, release, bench.command(5, CommandKind.REJOIN, host=HostId("h7")))
    first = bench.acks(5)
    bench.publish(prepare, b"{]")
    again = bench.acks(6)[-1]

    expected = {"prepare": ["accepted", "prepared", "took"], "release": ["accepted", "released"]}
    assert {kind: [a.phase for a in first if a.kind == kind] for kind in expected} == expected
    assert (again.command_id, again.phase, again.pause_s) == (prepare.id, Phase.TOOK, 0.12)
    assert [command.id for command in worker.commands] == [prepare.id, release.id]
    wait_for(lambda: 'event="bad command" reason=malformed' in bench.log(), "it is refused", log=bench.log)
    assert bench.metric('bad_commands_total{reason="malformed"}') == 1
    assert (bench.metric("workers_connected"), bench.metric("workers_steering")) == (1, 1)
    assert bench.metric("reports_sent_total") > 0
    bench.report(lambda r: r.workers[0].epoch == Epoch(1, 1))
    bench.publish(bench.command(6, CommandKind.REJOIN, epoch=Epoch(2, 6)))
    bench.report(lambda r: r.workers[0].epoch == Epoch(2, 0))  # the worker knows no placement of that leader


def test_only_signed_commands_are_obeyed_and_keys_change_while_it_runs(
    broker: Broker, start: Callable[[Broker], Bench]
) -> None:
    bench = start(broker)
    files = bench.demand_signatures()
    bench.create_topics()
    bench.start_agent()
    worker = bench.worker("w0", [1])
    bench.report(lambda r: len(r.key_groups) == 1)
    own, stranger = bench.key, SigningKey.generate()
    rejoin = [bench.command(number, CommandKind.REJOIN) for number in range(8)]

    for number, key in ((1, own), (2, None), (3, stranger)):
        bench.key = key
        bench.publish(rejoin[number])
    bench.key = own
    bench.publish(rejoin[1], replace(rejoin[1], deadline=rejoin[1].deadline + 1))  # repeated, and with other content
    bench.await_answers({(1, Phase.REJOINED), (2, Phase.REFUSED), (3, Phase.REFUSED)})
    bench.key = files.begin()
    bench.publish(rejoin[4])
    bench.key = files.switch()
    bench.publish(rejoin[5])
    files.finish()
    bench.key = own
    bench.publish(rejoin[6])
    bench.await_answers({(5, Phase.REJOINED)})

    wait_for(lambda: bench.metric('bad_commands_total{reason="unknown_key"}') == 2, "two are refused", log=bench.log)
    assert [command.epoch.number for command in worker.commands] == [1, 4, 5]
    assert bench.metric('bad_commands_total{reason="unsigned"}') == 1
    assert bench.metric('bad_commands_total{reason="repeated_id"}') == 1
    assert (bench.metric("commands_verified"), bench.metric("trust_file_faulty")) == (1, 0)
    files.trust.write_text("")
    wait_for(lambda: bench.metric("trust_file_faulty") == 1, "the file is refused", log=bench.log)
    bench.key = load_signing_key(files.key)
    bench.publish(rejoin[7])  # the previous keys remain valid
    bench.await_answers({(7, Phase.REJOINED)})
    assert bench.log().count("the trust file cannot be used, the previous keys remain valid") == 1
    told = {(a.epoch.number, a.refusal) for a in bench.acks(8) if a.phase is Phase.REFUSED}
    assert told >= {(2, Refusal.UNSIGNED), (3, Refusal.UNKNOWN_KEY)}
    assert rejoin[2].id not in {ack.command_id for ack in bench.acks(8)}


def test_a_worker_is_started_survives_the_agent_and_is_stopped(
    broker: Broker, start: Callable[[Broker], Bench]
) -> None:
    bench = start(broker)
    bench.create_topics()
    agent = bench.start_agent()
    bench.publish(bench.command(1, CommandKind.START, worker="w1"))
    assert bench.phases(2) == [("start", Phase.ACCEPTED), ("start", Phase.STARTED)]

    agent.send(signal.SIGTERM)
    assert agent.wait(60) == 0
    assert bench.report(lambda r: r.sample.ended).workers == (), "its last word"
    bench.start_agent()
    bench.report(lambda r: len(r.workers) == 2 and r.workers[1].state is WorkerState.RUNNING)
    assert "commands from 0:1" in bench.log()  # where it had been, not where it once began

    bench.publish(bench.command(2, CommandKind.START, worker="w1"), bench.command(3, CommandKind.STOP, worker="w1"))
    acks = bench.acks(5)
    assert [(ack.epoch.number, ack.phase) for ack in acks[2:]] == [
        (2, Phase.STARTED), (3, Phase.ACCEPTED), (3, Phase.STOPPED),
    ]  # fmt: skip
    assert "another" not in bench.log()  # one process, not two, was there
    bench.report(lambda r: len(r.workers) == 2 and r.workers[1].state is WorkerState.AWAY)
