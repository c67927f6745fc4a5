import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_for
from trimtab_sandbox.marks import end_marked, marked, with_mark
from trimtab_sandbox.processes import Child, LeftOver, Processes

SLEEP = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


def parent_of(code: str, *, own_session: bool) -> str:
    """A program that starts another, prints its id and sleeps."""
    start = f"subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session={own_session})"
    return f"import subprocess, sys, time; print({start}.pid, flush=True); time.sleep(60)"


def printed(child: Child) -> str:
    """What the child prints first."""
    wait_for(lambda: child.log.read_text().endswith("\n"))
    return child.log.read_text().strip()


def living(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "logs") as started:
        yield started


def python(processes: Processes, code: str, name: str = "child") -> Child:
    return processes.start(name, [sys.executable, "-c", code])


def test_a_child_has_its_own_log_environment_and_folder(processes: Processes, tmp_path: Path) -> None:
    code = "import os; print(os.environ['COLOUR'], os.getcwd(), os.getsid(0) == os.getpid())"
    child = processes.start("one", [sys.executable, "-c", code], environment={"COLOUR": "red"}, folder=tmp_path)
    assert child.wait(60) == 0
    assert child.log == tmp_path / "logs" / "one.log"
    assert child.log.read_text() == f"red {tmp_path} True\n"
    assert not child.alive


def test_a_log_is_continued_by_the_next_child_of_that_name(processes: Processes) -> None:
    for word in ("first", "second"):
        child = python(processes, f"print({word!r})")
        child.wait(60)
    assert child.log.read_text() == "first\nsecond\n"


def test_a_child_that_ends_in_order_is_not_killed(processes: Processes) -> None:
    orderly = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True)"
    child = python(processes, f"{orderly}; time.sleep(60)")
    printed(child)
    assert child.stop(10) == 7


def test_a_child_deaf_to_sigterm_is_killed_after_the_limit(processes: Processes) -> None:
    child = python(processes, DEAF)
    printed(child)
    began = time.monotonic()
    assert child.stop(0.5) == -signal.SIGKILL
    assert 0.5 <= time.monotonic() - began < 20


def test_a_stopped_child_can_be_ended(processes: Processes) -> None:
    child = python(processes, SLEEP)
    child.send(signal.SIGSTOP)
    wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
    assert child.alive
    assert child.stop(10) == -signal.SIGTERM


def test_waiting_is_bounded_and_names_the_log(processes: Processes) -> None:
    child = python(processes, SLEEP)
    with pytest.raises(TimeoutError, match=rf"child \(pid {child.pid}\) did not end within 0\.1 s, see .*child\.log"):
        child.wait(0.1)


def test_stop_takes_the_grandchildren_of_the_group_along(processes: Processes) -> None:
    child = python(processes, parent_of(DEAF, own_session=False))
    grandchild = int(printed(child).split()[0])
    child.stop(5)
    wait_for(lambda: not living(grandchild))


def test_kill_leaves_the_grandchildren_as_a_crash_does(processes: Processes) -> None:
    child = python(processes, parent_of(SLEEP, own_session=False))
    grandchild = int(printed(child))
    child.kill()
    assert child.exit_code == -signal.SIGKILL
    assert living(grandchild)
    assert processes.left_over() == LeftOver(processes=1, ports=0)


def test_close_ends_what_left_the_group(processes: Processes) -> None:
    child = python(processes, parent_of(DEAF, own_session=True))
    grandchild = int(printed(child).split()[0])
    child.stop(5)
    assert living(grandchild)
    processes.close()
    assert not living(grandchild)


def test_all_end_when_the_block_fails(tmp_path: Path) -> None:
    children: list[Child] = []

    def fail() -> None:
        with Processes(tmp_path) as processes:
            children.extend(python(processes, f"print('up', flush=True); {SLEEP}", name) for name in ("a", "b"))
            for child in children:
                printed(child)
            assert processes.left_over() == LeftOver(processes=2, ports=0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [child.exit_code for child in children] == [-signal.SIGTERM] * 2
    assert not any(living(child.pid) for child in children)


def test_left_over_counts_processes_and_ports(processes: Processes) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        printed(python(processes, f"print('up', flush=True); {SLEEP}"))
        assert processes.left_over([port]) == LeftOver(processes=1, ports=1)
    assert processes.left_over([port]) == LeftOver(processes=1, ports=0)


OWNER = f"""
import sys, time
from pathlib import Path
from trimtab_sandbox.processes import Processes

with Processes(Path(sys.argv[1])) as processes:
    child = processes.start("child", [sys.executable, "-c", {parent_of(SLEEP, own_session=True)!r}])
    while not child.log.read_text().endswith("\\n"):
        time.sleep(0.02)
    print(processes.mark, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["ctrl-c", "term", "kill-9"])
def test_all_end_with_their_owner(tmp_path: Path, number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with owner:
        assert owner.stdout is not None
        mark = owner.stdout.readline().strip()
        assert len(marked(mark)) == 2
        owner.send_signal(number)
        owner.wait(60)
    wait_for(lambda: not marked(mark))


def test_released_processes_outlive_their_owner(tmp_path: Path) -> None:
    releasing = OWNER.replace("time.sleep(60)\n", "processes.release()\n")
    ended = subprocess.run([sys.executable, "-c", releasing, tmp_path], stdout=subprocess.PIPE, timeout=20, check=True)
    mark = ended.stdout.decode().strip()
    assert len(marked(mark)) == 2
    assert end_marked(mark) == 0
    assert marked(mark) == []


def test_marks_nest() -> None:
    inner = with_mark("inner", with_mark("outer", {"A": "b"}))
    with subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, **inner}) as process:
        assert [found.pid for found in marked("outer")] == [found.pid for found in marked("inner")] == [process.pid]
        assert marked("inn") == []
        process.kill()
    assert marked("inner") == []
