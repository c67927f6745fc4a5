"""Runs the benchmarks of the live loop, mostly on a real cluster, one after the other, and prints one table.

    make bench-live                                   all of them, 45 minutes
    python -m benchmarks.live [--only NAME ...]

Each is a command of its own (`docs/benchmarks.md` explains them); the table has their main figures.  All output is
below `out/bench-live`.  A further benchmark is a further row of `PARTS`.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OUT = Path("out", "bench-live")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A benchmark: `command` after `python -m`, and how long it may take.

    `figures` = (regular expression, what it measures) each: a match in the output is a row of the table, with its group
    `value`.  Groups can be named in what it measures, as in `re.Match.expand`.
    """

    name: str
    about: str
    command: tuple[str, ...]
    limit_s: float
    figures: tuple[tuple[str, str], ...]


PARTS = (
    Part(
        name="scaling",
        about="a load that triples and falls back, under noise (played hosts, 4 h)",
        command=("benchmarks.scaling", "--seeds", "3"),
        limit_s=900.0,
        figures=((r"workers: (?P<value>.* flaps.*)", "workers"),),
    ),
    Part(
        name="step",
        about="a step, by key groups: bytes, packed, journal, CPU of controller and worker",
        command=("benchmarks.step_cost", "--key-groups", "128", "10000", "300000"),
        limit_s=900.0,
        figures=(
            (
                r"\| (?P<size>[\d,]+) \| (?P<form>in [\w ]+) \| "
                r"(?P<value>[\d,]+ \| [\d,]+ \| [\d,]+ \| [\d.,]+ ms \| (refused|[\d.,]+ ms))",
                r"\g<size>, \g<form>",
            ),
        ),
    ),
    Part(
        name="first-decision",
        about="seconds until a controller decides: cold, restart, takeover",
        command=("benchmarks.first_decision", "--any-hosts", "--runs", "1", "--windows", "24"),
        limit_s=600.0,
        figures=(
            (r"(?m)^(?P<what>leader|first \w+|CPU seconds until then) +(?P<value>[\d. -]+)$", r"\g<what>"),
            (r"(?P<what>window end to \w+): (?P<value>.*)", r"\g<what>"),
        ),
    ),
    Part(
        name="restores",
        about="one of six workers drained or lost, until all is warm: listed order, and scheduled by DynDL",
        command=("benchmarks.restoring.drained",),
        limit_s=900.0,
        figures=((r"(?m)^(?P<method>[\w-]+) +(?P<value>all warm +(after +)?[\d.]+ s.*?);", r"\g<method>"),),
    ),
    Part(
        name="testbed",
        about="ten restores with two replicas each and busy slots: LIST, HTA and DELAY beside DynDL, and stock Faust",
        command=("benchmarks.restoring.testbed", "--seeds", "2"),
        limit_s=1_200.0,
        figures=(
            (
                r"(?m)^(?P<method>LIST|HTA|DynDL\w+|DELAY|Faust) {2,}(?P<value>[\d.,s -]+)$",
                r"\g<method>: planned, all warm after, bound, remote of 10, others paused",
            ),
        ),
    ),
    Part(
        name="recovery",
        about="kill -9 of one of three workers: stock Faust with a standby, and planned standbys",
        command=("benchmarks.recovery", "--records", "50000"),
        limit_s=900.0,
        figures=((r"(?m)^(?P<kind>stock|planned|cold) +(?P<value>median +[\d.]+ s, last .*)$", r"\g<kind>"),),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a part came to: its rows of (what, value), or why it has none."""

    part: Part
    seconds: float
    rows: tuple[tuple[str, str], ...]
    failure: str = ""


def run(part: Part, out: Path) -> Result:
    """Run one part; its output goes to a file and is searched for its figures."""
    log, begun = out / f"{part.name}.txt", time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(("examples", os.environ.get("PYTHONPATH", "")))}
    failure = ""
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-m", *part.command]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait(part.limit_s)
            failure = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            failure = f"not within {part.limit_s:g} s"
        finally:
            end(process)
    rows = rows_of(part, log.read_text(encoding="utf-8", errors="replace"))
    if not failure and not rows:
        failure = "no figure in its output"
    return Result(part=part, seconds=time.monotonic() - begun, rows=rows, failure=failure and f"{failure}; see {log}")


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a part that still runs; by SIGTERM first, so that it can end what it has started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def rows_of(part: Part, output: str) -> tuple[tuple[str, str], ...]:
    """The figures in the output of a part, in its order."""
    found = [(match, what) for pattern, what in part.figures for match in re.finditer(pattern, output)]
    found.sort(key=lambda each: each[0].start())
    return tuple((match.expand(what), " ".join(match["value"].split())) for match, what in found)


def table(results: Sequence[Result]) -> str:
    """One table of all results."""
    cells = [("benchmark", "what", "measured")]
    for result in results:
        cells.append((f"{result.part.name} ({result.seconds:.0f} s)", result.part.about, result.failure))
        cells += [("", what, value) for what, value in result.rows]
    widths = max(len(row[0]) for row in cells), max(len(row[1]) for row in cells if row[2])
    return "\n".join("  ".join((row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2])).rstrip() for row in cells)


def main() -> int:
    """Run the parts; exit code 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in PARTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the output of each part")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    results = []
    for part in PARTS:
        if part.name in given.only:
            print(f"{part.name}: {part.about} ...", flush=True)
            results.append(run(part, given.out))
    text = f"load average {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores\n{table(results)}"
    (given.out / "table.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if any(result.failure for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
