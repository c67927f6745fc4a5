"""An agent keeps a worker running that it was told to start: real processes, killed, with a broker and a restart."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.agent_bench import Bench
from tests.e2e.fake_worker import APP
from trimtab_protocol.messages.commands import CommandKind, Phase
from trimtab_protocol.messages.report import Absence, WorkerSample, WorkerState
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes


@pytest.fixture
def bench(broker: Broker, tmp_path: Path, unique: str) -> Iterator[Bench]:
    """Topics, and an agent that is not started yet; it gives up after three crashes in a row."""
    with Processes(tmp_path / "logs") as processes:
        made = Bench(broker, unique, tmp_path / "agent", processes)
        made.create_topics()
        yield made
        made.close()


def now_says(bench: Bench, wanted: Callable[[WorkerSample], bool]) -> WorkerSample:
    """The row of w1 in a report of from now on, as wanted."""
    from_ms = round(time.time() * 1000)
    return bench.report(lambda r: r.at_ms > from_ms and len(r.workers) == 2 and wanted(r.workers[1])).workers[1]


def runs(row: WorkerSample) -> bool:
    return row.state is WorkerState.RUNNING


def process(bench: Bench) -> psutil.Process:
    """The one process of w1."""
    mine = {"TRIMTAB_WORKER": "w1", "TRIMTAB_SOCKET": bench.socket}
    found = []
    for each in psutil.process_iter():
        try:
            if mine.items() <= each.environ().items():
                found.append(each)
        except (psutil.Error, OSError):
            continue
    [one] = found
    return one


def kill(bench: Bench) -> int:
    """kill -9; the pid that it had."""
    one = process(bench)
    one.kill()
    return one.pid


def test_a_killed_worker_comes_back_also_under_a_new_agent_until_a_stop_or_too_many_crashes(bench: Bench) -> None:
    agent = bench.start_agent()
    pooled = now_says(bench, lambda row: row.absence is Absence.STOPPED)
    assert (pooled.state, pooled.declared, pooled.reason) == (WorkerState.AWAY, APP, None)
    bench.publish(bench.command(1, CommandKind.START, worker="w1"))
    assert now_says(bench, runs).declared == APP, "it can be started again"

    first = kill(bench)
    bench.wait_for(lambda: "worker crashed, and is started again" in bench.log())
    assert bench.metric('worker_crashes_total{worker="w1"}') == 1
    assert 'last="exit code -9 (SIGKILL)" after_s=1' in bench.log()
    now_says(bench, runs)
    assert process(bench).pid != first

    agent.kill()
    second = kill(bench)
    agent = bench.start_agent()
    again = now_says(bench, lambda row: row.absence is Absence.STARTING)
    assert again.reason == "crashed 2 times in a row, the agent starts it again; last: unknown exit code"
    now_says(bench, runs)
    assert process(bench).pid != second

    bench.publish(bench.command(2, CommandKind.STOP, worker="w1"))
    acks = bench.await_answers({(2, Phase.STOPPED)})
    assert {ack.exit_code for ack in acks if ack.phase is Phase.STOPPED} == {7}, "of its own child"
    now_says(bench, lambda row: row.absence is Absence.STOPPED)
    bench.publish(bench.command(3, CommandKind.START, worker="w1"))
    bench.await_answers({(3, Phase.STARTED)})
    for _ in range(2):
        now_says(bench, runs)
        kill(bench)
        now_says(bench, lambda row: row.state is WorkerState.AWAY)
    now_says(bench, runs)
    kill(bench)

    over = now_says(bench, lambda row: row.absence is Absence.CRASHED)
    said = "crashed 3 times in a row, the agent no longer starts it; last: exit code -9 (SIGKILL)"
    assert (over.reason, over.declared) == (said, APP)
    assert bench.metric("workers_given_up") == 1
    bench.publish(bench.command(4, CommandKind.START, worker="w1"))
    bench.await_answers({(4, Phase.STARTED)})
    now_says(bench, runs)
    assert bench.metric("workers_given_up") == 0
    process(bench).terminate()  # this worker ends with 7 then: whatever is not clean is a crash
    bench.wait_for(lambda: 'last="exit code 7"' in bench.log())
    now_says(bench, runs)
    last = process(bench)
    agent.stop()
    assert f'agent stopped; its workers keep running" running="w1 (pid {last.pid})"' in bench.log()
    last.terminate()  # as the log says
    bench.wait_for(lambda: not last.is_running() or last.status() == psutil.STATUS_ZOMBIE)
