"""The stream as a child process."""

import sys
import time
from pathlib import Path

from trimtab_controller.loop.stream_process import StreamProcess


def test_the_stream_is_started_again_with_growing_delays_and_ended() -> None:
    clock = [0.0]
    child = StreamProcess([sys.executable, "-c", "pass"], lambda: clock[0])
    delays: list[float] = []
    for _ in range(3):
        child.tick()
        deadline = time.monotonic() + 60
        while child.restarts == len(delays):
            assert time.monotonic() < deadline
            before = clock[0]
            child.tick()
            clock[0] += 0.5
        delays.append(before)
    assert delays[0] < delays[1] < delays[2]
    child.close()
    lasting = StreamProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    lasting.tick()
    process = lasting._process
    assert process is not None
    lasting.close()
    assert process.returncode == -15


def test_a_process_that_has_ended_is_told_until_it_has_run_for_a_minute() -> None:
    clock = [0.0]
    child = StreamProcess([sys.executable, "-c", "raise SystemExit(7)"], lambda: clock[0])
    assert child.trouble is None
    child.tick()
    assert child.trouble is None
    for _ in range(2):
        process = child._process
        assert process is not None
        process.wait()
        child.tick()
        gone = child.trouble
        clock[0] += 10
        child._command = (
            [sys.executable, "-c", "import sys; sys.stdin.read()"] if child._failures == 2 else child._command
        )
        child.tick()
    assert gone == "Spark's process has ended 2 times in a row, at last with exit code 7, and will be started again"
    again = "Spark's process has ended 2 times in a row, at last with exit code 7, and runs again"
    assert child.trouble == again
    clock[0] += 60
    assert child.trouble is None
    child.close()
    assert child.trouble is None


LISTENING = "import sys; [print(line.strip(), file=open(sys.argv[1], 'a'), flush=True) for line in sys.stdin]"


def wait_for(told: Path, *lines: str) -> None:
    deadline = time.monotonic() + 60
    while not told.exists() or told.read_text().split() != list(lines):
        assert time.monotonic() < deadline, told.read_text() if told.exists() else "nothing was told"
        time.sleep(0.02)


def test_a_warm_stream_is_told_who_leads_and_a_restarted_one_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    clock = [0.0]
    child = StreamProcess([sys.executable, "-c", LISTENING, str(told)], lambda: clock[0], warm=True)
    child.lead()
    child.tick()
    wait_for(told, "lead")
    process = child._process
    assert process is not None
    process.kill()
    process.wait()
    child.tick()
    clock[0] += 100
    child.tick()
    wait_for(told, "lead", "lead")
    child.stand_by()
    wait_for(told, "lead", "lead", "stand-by")
    child.lead()
    wait_for(told, "lead", "lead", "stand-by", "lead")
    child.close()


def test_a_stream_that_is_not_kept_warm_ends_with_the_term() -> None:
    child = StreamProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    child.tick()
    process = child._process
    assert process is not None
    child.stand_by()
    assert process.returncode == -15
    child.tick()
    assert child.restarts == 0
    child.close()
