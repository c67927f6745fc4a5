"""This version beside the previous one: plug-ins and agents on one socket, reports in its stream, controllers."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.agent_bench import Bench
from tests.e2e.fake_worker import APP, OPERATOR
from tests.e2e.played_cluster import World, key_group
from tests.e2e.rivals import Rival
from tests.fuzz.fuzzed.samples import REPORT
from tests.fuzz.fuzzed.spark import ARRIVAL_MS, rows_of
from tests.previous.release import SCRIPTS, environment, unpack
from trimtab_controller.execution.state import HandoverPhase
from trimtab_controller.stream.measures import Kind
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.commands import Command, CommandKind, Phase
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Child, Processes

pytestmark = pytest.mark.light


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("previous"))


# ---- plug-in and agent


@dataclass
class Host:
    """An agent on a broker, and one worker; each under its version."""

    bench: Bench
    worker: Child
    worker_log: Path


@pytest.fixture
def host(broker: Broker, unique: str, tmp_path: Path) -> Iterator[Callable[[Path | None, Path | None], Host]]:
    with Processes(tmp_path / "logs") as processes:
        bench = Bench(broker, unique, tmp_path / "agent", processes)
        bench.create_topics()

        def start(agent: Path | None, plug_in: Path | None) -> Host:
            bench.start_agent(environment(agent))
            own = {"TRIMTAB_WORKER": "w0", "TRIMTAB_SOCKET": bench.socket, **environment(plug_in)}
            worker = processes.start("worker", [sys.executable, str(SCRIPTS / "plugin.py")], environment=own)
            return Host(bench, worker, tmp_path / "logs" / "worker.log")

        yield start
        bench.close()


@pytest.mark.parametrize(
    ("old_agent", "old_plug_in"),
    [(False, True), (True, False), (False, False)],
    ids=["old plug-in, new agent", "new plug-in, old agent", "both new"],
)
def test_plug_in_and_agent_of_two_versions_exchange_hello_statistics_and_a_command(
    host: Callable[[Path | None, Path | None], Host],
    packages: Path,
    old_agent: bool,
    old_plug_in: bool,
) -> None:
    cluster = host(packages if old_agent else None, packages if old_plug_in else None)
    bench = cluster.bench
    report = bench.report(lambda found: len(found.key_groups) == 8 and found.workers[0].marks == ())
    [worker] = [row for row in report.workers if row.worker == "w0"]
    assert (worker.app, worker.steering, worker.generation) == (APP, True, 4)
    assert (worker.operators, worker.standbys, worker.unknown) == ({OPERATOR: 8}, 2, "no base yet")

    bench.publish(bench.command(1, CommandKind.REJOIN))
    bench.await_answers({(1, Phase.ACCEPTED), (1, Phase.REJOINED)})
    cluster.worker.stop()
    told = cluster.worker_log.read_text()
    assert "obeys rejoin" in told
    assert (str(packages) in told) == old_plug_in
    assert "bad frame" not in told + bench.log()
    assert bench.metric("workers_connected") in (0, 1)


# ---- reports


def test_the_stream_of_before_reads_the_reports_of_this_version(packages: Path) -> None:
    report = replace(REPORT, at_ms=ARRIVAL_MS)
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "stream_rows.py")],
        input=base64.b64encode(encoded(report)).decode() + "\n",
        env={**os.environ, **environment(packages)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    code, *lines = done.stdout.splitlines()
    assert Path(code).is_relative_to(packages), done.stderr[-2000:]
    found = sorted((tuple(json.loads(line).values()) for line in lines), key=repr)
    kinds, width = {row[2] for row in found}, len(found[0])  # of before, which may have fewer of both
    known = [row for each in rows_of(report, ARRIVAL_MS) if (row := tuple(map(_plain, each)))[2] in kinds]
    assert found == sorted((row[:width] for row in known), key=repr)


def _plain(value: object) -> object:
    return int(value) if isinstance(value, Kind) else value


# ---- controllers


def declaring(world: World) -> None:
    """A window as the stream of this version makes it."""
    nodes = tuple(replace(row, operators={"sums": 12}, standbys=1) for row in world.snapshot().nodes)
    world.publish_window(nodes=nodes)


def phase_of(world: World, prepare: Command) -> HandoverPhase:
    """By the last word of the journal."""
    rounds = world.executions()[-1].rounds.values()
    return next(each.phase for row in rounds for each in row.handovers if each.id == prepare.handover)


def test_a_plan_in_flight_goes_on_under_a_controller_of_the_other_version_and_back(
    world: World, packages: Path
) -> None:
    old = Rival(world, "a", environment=environment(packages))
    old.wait("leader", lambda: old.leads)
    prepare = world.next_command(CommandKind.PREPARE, windows=True)
    new = Rival(world, "b")
    new.wait("standby", lambda: "standby: waiting" in new.log)
    old.process.kill()
    world.wait("the command in flight, once more", lambda: world.commands.count(prepare) == 2)
    assert "goes on with plan" in new.log
    assert "cannot be read" not in new.log
    assert "cannot read the predecessor" not in new.log

    world.ack(prepare, Phase.PREPARED, generation=3)
    release = world.next_command(CommandKind.RELEASE)
    assert release.epoch.generation == 2
    declaring(world)
    back = Rival(world, "c", environment=environment(packages))
    back.wait("standby", lambda: "standby: wait" in back.log)
    new.process.kill()
    world.wait("the release, once more", lambda: world.commands.count(release) == 2)
    assert "goes on with plan" in back.log
    assert "cannot be read" not in back.log

    world.ack(release, Phase.RELEASED)
    world.take(prepare)
    world.wait("end of the hand-over", lambda: phase_of(world, prepare) is HandoverPhase.DONE)
    assert world.executions()[-1].generation == 3
    assert world.owners[key_group(prepare.key_groups[0].partition)] == prepare.target
    world.check_epochs()
