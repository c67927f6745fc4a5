"""The stream as a child process."""

import sys
import time

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
