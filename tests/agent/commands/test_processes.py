"""Real worker processes: started once, found again, ended by SIGTERM, their end noticed."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_for
from trimtab_agent.commands import processes as processes_module
from trimtab_agent.commands.events import ProcessEnded, ProcessId
from trimtab_agent.commands.processes import WorkerProcesses, identify
from trimtab_agent.configuration import WorkerConfiguration
from trimtab_protocol.messages.names import WorkerId

W0 = WorkerId("w0")
OBEDIENT = (
    "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(3)); print('up', flush=True); time.sleep(60)"
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Ends what a test leaves running there."""
    yield tmp_path
    for process in psutil.process_iter():
        try:
            if process.environ().get("TRIMTAB_SOCKET") == str(tmp_path / "a.sock"):
                process.kill()
        except (psutil.Error, OSError):
            continue


def processes(folder: Path) -> WorkerProcesses:
    return WorkerProcesses(cluster="demo", socket=folder / "a.sock", logs=folder)


def worker(program: str = OBEDIENT) -> WorkerConfiguration:
    return WorkerConfiguration(worker=W0, command=(sys.executable, "-c", program), environment={"COLOUR": "green"})


def await_end(of: WorkerProcesses) -> ProcessEnded:
    found: list[ProcessEnded] = []

    def look() -> bool:
        found.extend(of.ended())
        return bool(found)

    wait_for(look)
    return found[0]


def await_up(folder: Path) -> None:
    wait_for(lambda: "up" in (folder / "w0.log").read_text())


def await_zombie(pid: int) -> None:
    wait_for(lambda: identify(pid) is None)


def test_a_process_from_start_to_end(folder: Path) -> None:
    own = processes(folder)
    process = own.ensure(worker())
    await_up(folder)
    environment = psutil.Process(process.pid).environ()

    assert (environment["TRIMTAB_CLUSTER"], environment["TRIMTAB_WORKER"], environment["COLOUR"]) == (
        "demo", "w0", "green",
    )  # fmt: skip
    assert os.getsid(process.pid) == process.pid  # a session of its own: no signal to the agent reaches it
    assert list(own.ended()) == []
    own.terminate(W0, process)
    assert await_end(own) == ProcessEnded(worker=W0, process=process, exit_code=3)
    assert list(own.ended()) == []


def test_a_running_worker_is_found_not_started_twice(folder: Path) -> None:
    first = processes(folder).ensure(worker())
    await_up(folder)
    after_restart = processes(folder)

    assert after_restart.ensure(worker()) == first
    after_restart.terminate(W0, first)
    psutil.Process(first.pid).wait(60)  # in this test the dead process is a child of ours
    assert await_end(after_restart) == ProcessEnded(worker=W0, process=first, exit_code=None)


def test_of_a_worker_and_its_children_the_worker_is_found(folder: Path) -> None:
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    first = processes(folder).ensure(worker(f"{child}; {OBEDIENT}"))
    await_up(folder)

    assert processes(folder).ensure(worker()) == first


def test_a_process_with_the_pid_of_an_earlier_one_is_left_alone(folder: Path) -> None:
    own = processes(folder)
    process = own.ensure(worker())
    await_up(folder)
    earlier = ProcessId(pid=process.pid, created=process.created - 100)
    stranger = processes(folder)

    stranger.terminate(W0, earlier)

    assert await_end(stranger) == ProcessEnded(worker=W0, process=earlier, exit_code=None)
    assert identify(process.pid) == process


def test_a_process_with_the_pid_of_an_ended_child_lives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = processes(folder)
    wrapper = own.ensure(worker(""))  # a script that has started the worker and ends
    own.watch(W0, identify(os.getpid()))
    await_zombie(wrapper.pid)
    assert list(own.ended()) == []

    later = ProcessId(pid=wrapper.pid, created=wrapper.created + 100)
    monkeypatch.setattr(processes_module, "identify", lambda _: later)
    own.watch(W0, later)

    assert list(own.ended()) == []


def test_what_cannot_be_looked_at_is_not_signalled(
    folder: Path, no_descriptor: Callable[[], AbstractContextManager[None]]
) -> None:
    process = processes(folder).ensure(worker())
    await_up(folder)
    earlier = ProcessId(pid=process.pid, created=process.created - 100)

    with no_descriptor(), pytest.raises(OSError, match="Too many open files"):
        processes(folder).terminate(W0, earlier)

    assert identify(process.pid) == process


def test_a_worker_is_given_the_trust_file_and_its_output_is_for_this_user_only(folder: Path) -> None:
    started = WorkerProcesses(cluster="demo", socket=folder / "a.sock", logs=folder, trust=folder / "trusted.keys")
    process = started.ensure(worker("import os; print(os.environ['TRIMTAB_TRUST'], flush=True)"))
    await_end(started)

    log = folder / "w0.log"
    assert (log.read_text(), log.stat().st_mode & 0o777) == (f"{folder}/trusted.keys\n", 0o600)
    assert identify(process.pid) != process


def test_the_log_of_a_worker_has_a_limit_and_its_end_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "MAX_LOG_BYTES", 1_000)
    monkeypatch.setattr(processes_module, "KEPT_LOG_BYTES", 10)
    started, log = processes(folder), folder / "w0.log"
    line = "sys.stdout.write('x' * 2_000 + ' end\\n'); sys.stdout.flush()"
    program = f"import sys; {line}; sys.stdin = open({str(folder / 'go')!r}); print(1)"
    os.mkfifo(folder / "go")
    started.ensure(worker(program))
    while not (folder / "w0.log.1").exists():
        assert list(started.ended()) == []
    assert ((folder / "w0.log.1").read_text(), log.read_text()) == ("xxxxx end\n", "")
    (folder / "go").write_text("")
    await_end(started)
    assert log.read_text() == "1\n"


POOL = """
import concurrent.futures, multiprocessing, signal, sys, time
signal.signal(15, lambda *_: sys.exit(3))
pool = concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork"))
pool.submit(print, "up", flush=True).result()
time.sleep(60)
"""


def of_w0(folder: Path) -> set[int]:
    return {process.pid for process in processes(folder)._processes_of(W0)}


def test_what_a_killed_worker_leaves_is_ended_and_not_taken_for_it(folder: Path) -> None:
    """The processes of a pool wait for ever when nobody is left who gives them work."""
    own = processes(folder)
    process = own.ensure(worker(POOL))
    await_up(folder)
    assert len(of_w0(folder)) > 1

    psutil.Process(process.pid).kill()
    assert await_end(own) == ProcessEnded(worker=W0, process=process, exit_code=-9)

    assert own.ensure(worker()).pid not in {process.pid} | (of_w0(folder) - {own._watched[W0].pid})
    for left in of_w0(folder) - {own._watched[W0].pid}:
        await_zombie(left)


def test_the_same_after_a_restart_of_the_agent(folder: Path) -> None:
    process = processes(folder).ensure(worker(POOL))
    await_up(folder)
    psutil.Process(process.pid).kill()
    psutil.Process(process.pid).wait(60)  # in this test the dead process is a child of ours
    after_restart = processes(folder)
    after_restart.watch(W0, process)  # the journal has it

    assert await_end(after_restart).process == process
    for left in of_w0(folder):
        await_zombie(left)
    assert after_restart.ensure(worker()) != process


def test_a_worker_outlives_the_script_that_started_it(folder: Path) -> None:
    own = processes(folder)
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {OBEDIENT!r}])"
    wrapper = own.ensure(worker(script))
    await_up(folder)
    assert await_end(own) == ProcessEnded(worker=W0, process=wrapper, exit_code=0)
    (left,) = of_w0(folder)
    found = own.ensure(worker())
    assert found.pid == left

    own.connected(W0, found)
    own.terminate(W0, found)
    assert await_end(own).process == found
