"""`make release-check`: what is due, the page that it writes and reads back, and how a step ends."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.paths import ROOT
from tests.release_check import HEAD, Row, Step, due, figures, page, play, rows_of, steps, with_row

ROW = Row(
    step="faults: worker killed", result="passed", figures="12 of 12 cells kept every promise", seconds=812,
    commit="0123abcd", day="2026-11-29",
)  # fmt: skip


def step(name: str, *command: str, limit_s: float = 60.0, needs: str = sys.executable) -> Step:
    return Step(name=name, command=command, limit_s=limit_s, needs=needs)


def test_the_page_reads_back() -> None:
    rows = [ROW, replace(ROW, step="fuzz", result="failed, exit code 1", figures="", seconds=0)]
    assert page(rows).startswith(HEAD)
    assert rows_of(page(rows)) == rows
    assert rows_of(page([])) == []


@pytest.mark.parametrize("line", ["| fuzz | passed | 1 |", "| fuzz | passed | - | soon | `0123abcd` | 2026-11-29 |"])
def test_a_row_with_other_cells_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"proof\.md: found '\| fuzz .*expected the cells step, result"):
        rows_of(page([ROW]) + line)


def test_what_has_not_passed_here_is_due_and_first_what_never_passed() -> None:
    every = [step("older"), step("failed"), step("here"), step("later"), step("never")]
    rows = [
        replace(ROW, step="older", commit="aaaaaaaa"),
        replace(ROW, step="failed", result="not within 60 s"),
        replace(ROW, step="here"),
        replace(ROW, step="later", commit="bbbbbbbb"),
    ]
    assert [each.name for each in due(every, rows, ["0123abcd"])] == ["failed", "never", "older", "later"]
    assert [each.name for each in due(every, rows, ["0123abcd", "bbbbbbbb"])] == ["failed", "never", "older"]


def test_a_new_row_takes_the_place_of_the_older_and_a_step_that_is_gone_has_none() -> None:
    rows = [replace(ROW, step="gone"), ROW, replace(ROW, step="fuzz")]
    new = replace(ROW, commit="ffffffff")
    assert with_row(rows, new, ["fuzz", ROW.step, "jobs"]) == [replace(ROW, step="fuzz"), new]


def test_the_last_line_that_says_something_is_told_as_one_cell() -> None:
    assert figures("a\n=== 3 passed in 1.2s ===\n\n") == "3 passed in 1.2s"
    assert figures("w0 | 3 ms\n====\n") == "w0 / 3 ms"
    assert figures(f"0 of 2; {ROOT}/out/faults/matrix.json") == "0 of 2; out/faults/matrix.json"
    assert figures("") == ""


def test_names_are_unique_and_each_step_can_be_named_in_a_row() -> None:
    names = [each.name for each in steps(["tests/e2e/test_day.py"])]
    assert len(names) == len(set(names)) > 60
    assert {"faults: messages delayed", "steering: kills", "live: restores", "fuzz"} <= set(names)
    rows = [replace(ROW, step=name) for name in names]
    assert rows_of(page(rows)) == rows


def test_a_step_passes_fails_or_has_no_program(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.txt"
    result, line, seconds = play(step("well", sys.executable, "-c", "print('3 of 3')"), log)
    assert (result, line) == ("passed", "3 of 3")
    assert seconds > 0.0
    assert play(step("ill", sys.executable, "-c", "exit(3)"), log)[:2] == ("failed, exit code 3", "")
    skipped = play(step("skipped", sys.executable, "-c", "print('== 1 passed, 2 skipped in 3.1s ==')"), log)
    assert skipped[0] == "not run whole: something was skipped"
    assert play(step("none", "true", needs="python9.9"), log) == ("not run: no python9.9", "", 0.0)


def test_a_step_that_takes_too_long_is_interrupted_and_cleans_up(tmp_path: Path) -> None:
    code = "import time\ntry: print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('cleaned')"
    slow = step("slow", sys.executable, "-c", code, limit_s=5.0)
    result, line, _ = play(slow, tmp_path / "slow.txt")
    assert (result, line) == ("not within 5 s", "cleaned")
    assert [
        each for each in psutil.Process(os.getpid()).children() if each.is_running() and code in each.cmdline()
    ] == []
