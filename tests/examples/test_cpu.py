import subprocess
import sys

import pytest

from flights.cpu import CpuMeter, Part
from tests.waiting import wait_for
from trimtab_sandbox.configuration import BROKER, CONTROLLER, LOAD

BURN_WHEN_TOLD = "input()\nimport time\nwhile time.process_time() < 0.4: pass\ninput()\n"
SEEN_S = 0.35  # of the 0.4 that are burned: the system counts in ticks
BURN = "import time\nwhile time.process_time() < 0.4: pass\n"


def burner_below(*command: str) -> str:
    """A program that starts a child which burns CPU; both wait for a line, then end."""
    child = f"subprocess.Popen([sys.executable, '-c', {BURN + 'time.sleep(60)'!r}, *{command!r}])"
    return f"import subprocess, sys\nchild = {child}\nsys.stdin.readline()\nchild.kill()\nchild.wait()\n"


@pytest.mark.parametrize(
    ("root", "command", "booked"),
    [
        (f"{BROKER}-2", (), Part.BROKER),
        ("w1", (), Part.WORKERS),
        ("h1", (), Part.WORKERS),
        (CONTROLLER, (), Part.DECIDER),
        (CONTROLLER, ("-m", "trimtab_controller.stream"), Part.SPARK),
    ],
)
def test_a_childs_use_is_booked_on_its_part_and_stays_after_its_end(
    root: str, command: tuple[str, ...], booked: Part
) -> None:
    running: dict[str, int] = {}
    meter = CpuMeter(lambda: running)
    with subprocess.Popen([sys.executable, "-c", burner_below(*command)], stdin=subprocess.PIPE) as parent:
        running[root] = parent.pid
        wait_for(lambda: meter.seconds()[booked] >= SEEN_S)
        parent.communicate(b"\n")
        running.clear()
    seconds = meter.seconds()
    assert SEEN_S <= seconds[booked] < 2.0
    assert sum(seconds.values()) - seconds[booked] < SEEN_S


def test_an_orphan_is_still_measured() -> None:
    running: dict[str, int] = {}
    meter = CpuMeter(lambda: running)
    orphan = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {BURN_WHEN_TOLD!r}], stdin=0)\n"
        "print(child.pid, flush=True)\nchild.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", orphan], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        running[BROKER] = parent.pid
        meter.sample()
        running.clear()
        parent.kill()
        parent.wait()
        parent.stdin.write("\n")
        parent.stdin.flush()
        wait_for(lambda: meter.seconds()[Part.BROKER] >= SEEN_S)


def test_the_thread_samples_what_nobody_asks_about() -> None:
    running: dict[str, int] = {}
    with CpuMeter(running.copy, interval_s=0.02) as meter:
        with subprocess.Popen([sys.executable, "-c", BURN + "time.sleep(0.3)"]) as process:
            running["w0"] = process.pid
        running.clear()
    assert meter.seconds()[Part.WORKERS] >= SEEN_S


def test_a_process_that_is_gone_costs_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    meter = CpuMeter(lambda: {BROKER: process.pid})
    assert meter.seconds() == dict.fromkeys(Part, 0.0)


def test_what_sends_the_input_is_no_part() -> None:
    with subprocess.Popen([sys.executable, "-c", BURN + "time.sleep(60)"]) as process:
        meter, input_too = CpuMeter(lambda: {LOAD: process.pid}), CpuMeter(lambda: {"w0": process.pid})
        wait_for(lambda: input_too.seconds()[Part.WORKERS] >= SEEN_S)
        assert meter.seconds() == dict.fromkeys(Part, 0.0)
        process.kill()
