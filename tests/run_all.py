"""`make test`: run all checks and tests, several at a time, and list at the end what failed and what was left out.

The end-to-end tests mostly wait, so four of them run at a time: three of those with Spark and workers, and one of those
`light`.  Tests marked `alone` measure CPU or short times, or are the day of a cluster: no end-to-end test runs beside
them.  They leave half of the CPU.  That is for the fast tests, as all CPU that the others leave is for the static
checks.  Scenarios take minutes each; `make scenarios` runs them.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from tests.paths import END_TO_END
from tests.programs import left_out

BIN = Path(sys.executable).parent
PYTEST = (sys.executable, "-m", "pytest")
SLOWEST = ("--durations=15", "--durations-min=20")
IDLE = ("sh", "-c", '{ echo 19 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 19 "$@"', "idle")
"""The lowest priority, as long as a live part runs.  Where Linux shares the CPU among sessions (autogroup), `nice`
counts only within one.
"""
HEAVY = "e2e and not light and not alone and not scenario"
LIGHT = "light and not alone and not scenario"
DAY = "tests/e2e/test_day.py"
TAIL, LINE = 40, 400
"""Lines of a failed part that are repeated at the end; characters of the line of a failed test."""


@dataclass(slots=True)
class Part:
    """One command; `live` prints each line as it comes, else all are printed when the command has ended."""

    name: str
    command: Sequence[str]
    live: bool = False
    lines: list[str] = field(default_factory=list)
    code: int | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.code == 0


Lane = list[Part]
"""Parts that run one after the other."""


def static_checks() -> Lane:
    """What runs beside all else, with the CPU that all else leaves."""
    return [
        Part("format", (*IDLE, str(BIN / "ruff"), "format", "--check", ".")),
        Part("lint", (*IDLE, str(BIN / "ruff"), "check", ".")),
        Part("types", (*IDLE, str(BIN / "mypy"))),
        Part("import contracts", (*IDLE, str(BIN / "lint-imports"))),
    ]


def stages() -> list[list[Lane]]:
    """Stages, one after the other, of lanes that run at the same time."""
    tests = (*PYTEST, "-v", *SLOWEST, "-m")
    alone = (*tests, "alone", *END_TO_END, f"--ignore={DAY}")
    fast = (*IDLE, *PYTEST, "-q", "-m", "not e2e", "-n2", "--dist=worksteal", "--timeout=1200")
    return [
        [
            [Part("end-to-end tests", (*tests, HEAVY, "-n3", "--dist=loadfile", *END_TO_END), live=True)],
            [Part("light end-to-end tests", (*tests, LIGHT, *END_TO_END), live=True)],
        ],
        [
            [
                Part("end-to-end tests that run alone", alone, live=True),
                Part("the day", (*tests, "alone", DAY), live=True),
            ],
            [Part("fast tests", fast)],
        ],
    ]


class Runner:
    """Runs parts and prints whole blocks, so that lines of two parts never mix within a block."""

    def __init__(self, live_parts: int) -> None:
        self._live_parts = live_parts
        self._printing = Lock()
        self._running: list[subprocess.Popen[str]] = []
        self._stopped = False

    def run(self, lane: Lane) -> None:
        """Run the parts one after the other; a failed one does not keep back the next."""
        for part in lane:
            if not self._stopped:
                self._run(part)

    def stop(self) -> None:
        """Start nothing more and interrupt what runs: pytest then cleans up."""
        self._stopped = True
        for process in self._running:
            process.send_signal(signal.SIGINT)

    def _run(self, part: Part) -> None:
        began = time.monotonic()
        # In its own session, Ctrl-C reaches it only through stop(): a second SIGINT would cut pytest's clean-up short.
        with subprocess.Popen(
            part.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as process:
            self._running.append(process)
            assert process.stdout is not None
            for line in process.stdout:
                part.lines.append(line.rstrip("\n"))
                if part.live:
                    self._print(part.lines[-1])
        self._running.remove(process)
        part.code, part.seconds = process.returncode, time.monotonic() - began
        if part.live:
            self._print(result(part))
            self._live_parts -= 1
            if self._live_parts == 0:
                self._hurry()
        else:
            self._print(f"==== {part.name}", *part.lines, result(part))

    def _hurry(self) -> None:
        """Let what still runs have its share: what other people run on this machine must not stop it."""
        for process in self._running:
            with suppress(OSError):
                Path(f"/proc/{process.pid}/autogroup").write_text("0")

    def _print(self, *lines: str) -> None:
        with self._printing:
            print(*lines, sep="\n", flush=True)


def failures(part: Part) -> list[str]:
    """The tests that failed, a line each, with the beginning of what was wrong."""
    return [line[:LINE] for line in part.lines if line.startswith(("FAILED ", "ERROR "))]


def result(part: Part) -> str:
    """One line about a part: what became of it, and how long it took."""
    outcome = "passed" if part.passed else "not run" if part.code is None else f"FAILED (exit code {part.code})"
    return f"==== {part.name}: {outcome}, {part.seconds:.0f} s"


def main() -> int:
    """Run everything; 0 if all parts passed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would compile all that they import
    beside, in_turn = static_checks(), stages()
    parts = [*beside, *(part for stage in in_turn for lane in stage for part in lane)]
    runner = Runner(sum(part.live for part in parts))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadPoolExecutor() as pool:
        try:
            checks = pool.submit(runner.run, beside)
            for stage in in_turn:
                for running in [pool.submit(runner.run, lane) for lane in stage]:
                    running.result()
            checks.result()
        except KeyboardInterrupt:
            runner.stop()
    failed = [part for part in parts if not part.passed]
    for part in filter(lambda part: part.lines, failed):
        print(f"\n==== end of the output of: {part.name}", *part.lines[-TAIL:], sep="\n")
    print("", *map(result, parts), *left_out(), *(line for part in failed for line in failures(part)), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
