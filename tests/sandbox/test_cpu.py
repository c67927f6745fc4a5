import subprocess
import sys

import pytest

from tests.waiting import wait_for
from trimtab_sandbox.cpu import CpuMeter, Part

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
        (Part.BROKER, (), Part.BROKER),
        (Part.WORKERS, (), Part.WORKERS),
        (Part.AGENTS, (), Part.WORKERS),
        (Part.DECIDER, (), Part.DECIDER),
        (Part.DECIDER, ("-m", "trimtab_controller.stream"), Part.SPARK),
    ],
)
def test_a_childs_use_is_booked_on_its_part_and_stays_after_its_end(
    root: Part, command: tuple[str, ...], booked: Part
) -> None:
    meter = CpuMeter()
    with subprocess.Popen([sys.executable, "-c", burner_below(*command)], stdin=subprocess.PIPE) as parent:
        meter.add(parent.pid, root)
        wait_for(lambda: meter.seconds()[booked] >= SEEN_S)
        parent.communicate(b"\n")
    seconds = meter.seconds()
    assert SEEN_S <= seconds[booked] < 2.0
    assert sum(seconds.values()) - seconds[booked] < SEEN_S


def test_an_orphan_is_still_measured() -> None:
    meter = CpuMeter()
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
        meter.add(parent.pid, Part.BROKER)
        meter.sample()
        parent.kill()
        parent.wait()
        parent.stdin.write("\n")
        parent.stdin.flush()
        wait_for(lambda: meter.seconds()[Part.BROKER] >= SEEN_S)


def test_the_thread_samples_what_nobody_asks_about() -> None:
    meter = CpuMeter(interval_s=0.02).start()
    with subprocess.Popen([sys.executable, "-c", BURN + "time.sleep(0.3)"]) as process:
        meter.add(process.pid, Part.WORKERS)
    meter.stop()
    assert meter.seconds()[Part.WORKERS] >= SEEN_S


def test_a_process_that_is_gone_costs_nothing() -> None:
    meter = CpuMeter()
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    meter.add(process.pid, Part.BROKER)
    assert meter.seconds() == dict.fromkeys(Part, 0.0)
