"""`trimtab events` and `trimtab why` as text, and what `--since` accepts."""

import argparse
import io

import pytest
from rich.console import Console

from tests.controller.decider.hosted_job import kg
from tests.controller.loop.test_why import BEGUN, EVENTS, EXECUTION, known
from trimtab_controller.cli.events import line_of
from trimtab_controller.cli.parsers.events import span
from trimtab_controller.cli.why import show
from trimtab_controller.loop.why import why_here


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("15m", 900.0), ("6h", 21_600.0), ("7d", 604_800.0)])
def test_how_far_back(text: str, seconds: float) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "0h", "1w", "1d ", "٣d"])
def test_another_span_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number with s, m, h or d"):
        span(text)


def test_an_event_is_one_line_that_names_its_plan() -> None:
    line = line_of(BEGUN).plain
    assert line.endswith("  plan begun        plan 1.2: app: 2 moves [load_distance]")
    assert "\n" not in line


def test_a_key_group_as_text() -> None:
    out = io.StringIO()
    show(why_here(kg(1), known(), EXECUTION, EVENTS), Console(file=out, width=140, highlight=False, markup=False))
    text = out.getvalue()
    assert "app/sums/1 is on w0 since " in text
    assert "plan 1.2 moved it here from w1: w1 had 45.5 %, above the mean of 30.0 %" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "if it were on load distance (now 20.00 pp) its load" in rows
    assert "w0 on h-w0 20.00 50.0 % it is here" in rows
    assert "w2 on h-w2 5.00 (-15.00) 35.0 % standby" in rows
