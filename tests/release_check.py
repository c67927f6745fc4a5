"""`make release-check`: `make test` and all that it leaves out, step by step; `docs/proof.md` has what passed where.

It takes many hours, and goes on where it was stopped: a step that has passed on this commit is not run again.  A row
names the last commit that changed anything but Markdown.  Steps that have not passed yet come first.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.live import PARTS
from tests.e2e.steering.changes import CHANGES
from tests.e2e.steering.in_place import CHANGES_IN_PLACE, IN_PLACE
from tests.e2e.steering.local_hop import LOCAL_SCENARIOS
from tests.e2e.steering.scenarios import SCENARIOS
from tests.faults.played.cells import all_cells
from tests.paths import END_TO_END, ROOT

PAGE = ROOT / "docs" / "proof.md"
OUT = ROOT / "out" / "release-check"
HOUR_S = 3600.0
OTHER_PYTHONS = ("python3.12", "python3.13")
END_S = 60.0
"""How long a step that is interrupted may clean up before it is killed."""
SKIPPED = re.compile(r"\b\d+ skipped\b")
"""What pytest's last line says where a machine lacks a program."""
FIGURES = 160
"""Characters of the line that a step ends with."""
HEAD = """# What was proved, and where

`make release-check` runs `make test` and all that it leaves out, and writes this page. A row holds for its commit: the
last one that changed anything but Markdown. `make release-check CHECK="--list"` names the steps that have not passed on
the present commit, and `CHECK="--only 'faults: worker killed'"` runs one.

"""
COLUMNS = ("step", "result", "its last line", "seconds", "commit", "day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, and how long it may take.  `needs` = a program without which it cannot run."""

    name: str
    command: tuple[str, ...]
    limit_s: float = HOUR_S
    needs: str = "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of a step: a row of the page."""

    step: str
    result: str
    figures: str
    seconds: int
    commit: str
    day: str

    @property
    def passed(self) -> bool:
        return self.result == "passed"


# ---------------------------------------------------------------------- the steps
def module(*arguments: str) -> tuple[str, ...]:
    """The command that runs a module of this repository."""
    return (sys.executable, "-m", *arguments)


def scenario_files() -> list[str]:
    """The files with tests that only `make scenarios` runs.  Raises CalledProcessError where one cannot be read."""
    command = module("pytest", "--collect-only", "-q", "-m", "scenario", "-n0", *END_TO_END)
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600.0).stdout
    return sorted({line.partition("::")[0] for line in listed.splitlines() if "::" in line})


def steps(scenarios: Iterable[str]) -> list[Step]:
    """All of them; `scenarios` = the files of `scenario_files`."""
    prove = (*SCENARIOS, *CHANGES, *LOCAL_SCENARIOS, *IN_PLACE, *CHANGES_IN_PLACE)
    faults = dict.fromkeys(cell.fault.name for cell in all_cells())
    return [
        Step(name="make test", command=("make", "test"), limit_s=3 * HOUR_S),
        *(Step(name=path, command=module("pytest", "-q", "-n0", "-m", "scenario", path)) for path in scenarios),
        *(Step(name=f"faults: {name}", command=_matrix(name)) for name in faults),
        *(
            Step(name=f"steering: {each.name}", command=module("tests.e2e.steering.prove", each.name))
            for each in prove
        ),
        *(
            Step(name=f"live: {part.name}", command=module("benchmarks.live", "--only", part.name))
            for part in PARTS
        ),
        Step(name="jobs of the papers", command=module("jobs")),
        Step(name="methods on real job 1", command=module("jobs", "rounds")),
        Step(name="fuzz", command=module("tests.fuzz.fuzz"), limit_s=4 * HOUR_S),
        Step(name="simulated faults", command=module("tests.sim.simulate", "--rounds", "100000"), limit_s=4 * HOUR_S),
        Step(name="random intents", command=module("tests.sim.random_intents"), limit_s=2 * HOUR_S),
        Step(name="containers and packages", command=("make", "test-deploy")),
        *(
            Step(
                name=f"end to end under {python}",
                command=("make", "test-python", f"PYTHON={python}", "E2E=1"),
                limit_s=3 * HOUR_S,
                needs=python,
            )
            for python in OTHER_PYTHONS
        ),
    ]  # fmt: skip


def _matrix(fault: str) -> tuple[str, ...]:
    return module("tests.faults.matrix", "--only", fault, "--out", str(OUT / "faults" / fault.replace(" ", "-")))


def due(every: Sequence[Step], rows: Sequence[Row], current: Iterable[str]) -> list[Step]:
    """The steps that have not passed on any of the `current` commits; those that never passed come first."""
    passed = {row.step: row.commit for row in rows if row.passed}
    valid = set(current)
    left = [step for step in every if passed.get(step.name) not in valid]
    return sorted(left, key=lambda step: step.name in passed)


# ---------------------------------------------------------------------- the page
def page(rows: Iterable[Row]) -> str:
    """The whole page."""
    cells = [COLUMNS, ("---",) * len(COLUMNS)]
    cells += [(row.step, row.result, row.figures, str(row.seconds), f"`{row.commit}`", row.day) for row in rows]
    return HEAD + "".join(f"| {' | '.join(each)} |\n" for each in cells)


def rows_of(text: str) -> list[Row]:
    """The rows of a page.  Raises ValueError for a row with other cells."""
    found = []
    for line in text.splitlines():
        cells = [each.strip() for each in line.strip().strip("|").split(" | ")]
        if not line.startswith("|") or cells[0] in (COLUMNS[0], "---"):
            continue
        if len(cells) != len(COLUMNS) or not cells[3].isdigit():
            raise ValueError(f"{PAGE.name}: found {line!r}, expected the cells {', '.join(COLUMNS)}")
        step, result, figures, seconds, commit, day = cells
        found.append(
            Row(step=step, result=result, figures=figures, seconds=int(seconds), commit=commit.strip("`"), day=day)
        )
    return found


def with_row(rows: Iterable[Row], new: Row, names: Sequence[str]) -> list[Row]:
    """The rows with this one in the place of an older one, in the order of `names`; a step that is gone has none."""
    kept = {row.step: row for row in (*rows, new)}
    return [kept[name] for name in names if name in kept]


def figures(output: str) -> str:
    """The last line that says something, as one cell, without the folder of this machine."""
    lines = [line.replace(f"{ROOT}/", "").strip().strip("=").strip() for line in output.splitlines()]
    return next((line for line in reversed(lines) if line), "")[:FIGURES].replace("|", "/")


# ---------------------------------------------------------------------- what runs
def git(*arguments: str) -> str:
    """What git answers.  Raises CalledProcessError."""
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def commits(since: str | None) -> list[str]:
    """The present commit, and all after and including `since`: each may stand in a row."""
    written = (".", ":!*.md")
    present = git("log", "-1", "--format=%h", "--abbrev=8", "--", *written)
    if since is None:
        return [present]
    found = git("log", "--format=%h", "--abbrev=8", f"{since}^..HEAD", "--", *written)
    return [present, *found.split()]


def play(step: Step, log: Path) -> tuple[str, str, float]:
    """Run a step; its result, the line that it ends with, and the seconds that it took."""
    if shutil.which(step.needs) is None:
        return f"not run: no {step.needs}", "", 0.0
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(("examples", os.environ.get("PYTHONPATH", "")))}
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            step.command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(step.limit_s)
            result = f"failed, exit code {code}" if code else "passed"
        except subprocess.TimeoutExpired:
            result = f"not within {step.limit_s:.0f} s"
        finally:
            end(process)
    line = figures(log.read_text(encoding="utf-8", errors="replace"))
    if result == "passed" and SKIPPED.search(line):
        result = "not run whole: something was skipped"
    return result, line, time.monotonic() - begun


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a step that still runs: interrupt it, so that it ends what it has started, and kill what is left."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def chosen(every: Iterable[Step], only: Sequence[str]) -> Iterator[Step]:
    """The steps whose name begins with one of these; all, if there are none."""
    return (step for step in every if not only or step.name.startswith(tuple(only)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is due; 0 if all that was chosen has passed on this commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the steps that are due, and run none")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="steps whose names begin so")
    parser.add_argument("--since", metavar="COMMIT", help="what has passed on this commit or a later one counts too")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no step after so many minutes")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not given.list and (changed := git("status", "--porcelain", "--", ".", ":!*.md")):
        parser.error(f"found changes that are not committed, expected none, as a row names a commit:\n{changed}")
    every = steps(scenario_files())
    rows = rows_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else []
    current = commits(given.since)
    left = list(chosen(due(every, rows, current), given.only))
    if given.list:
        print(*(step.name for step in left), sep="\n")
        return 0
    latest = time.monotonic() + 60.0 * given.minutes
    for step in left:
        if time.monotonic() > latest:
            break
        print(f"{step.name} ...", flush=True)
        result, line, seconds = play(step, OUT / f"{step.name.replace('/', '-').replace(' ', '-')}.txt")
        row = Row(step=step.name, result=result, figures=line, seconds=round(seconds), commit=current[0], day=_today())
        rows = with_row(rows, row, [each.name for each in every])
        PAGE.write_text(page(rows), encoding="utf-8")
        print(f"{step.name}: {result}, {seconds:.0f} s: {line}", flush=True)
    waiting = list(chosen(due(every, rows, current), given.only))
    print(f"{len(waiting)} steps have not passed on {current[0]}; {PAGE.relative_to(ROOT)} has those that have")
    return 1 if waiting else 0


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
