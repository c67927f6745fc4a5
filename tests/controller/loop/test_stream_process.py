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
        deadline = time.monotonic() + 20
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


LISTENING = "import sys; [print(line.strip(), file=open(sys.argv[1], 'a'), flush=True) for line in sys.stdin]"


def wait_for(told: Path, *lines: str) -> None:
    deadline = time.monotonic() + 20
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
