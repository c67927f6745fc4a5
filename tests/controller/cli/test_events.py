"""`trimtab events` and `trimtab why` as text, and what `--since` accepts."""

import argparse
import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.controller.decider.decider_situations import W0, W1
from tests.controller.decider.hosted_job import kg
from tests.controller.loop.test_why import BEGUN, ENDED, EVENTS, EXECUTION, MEASURED, known
from trimtab_controller.cli.events import line_of
from trimtab_controller.cli.parsers import span
from trimtab_controller.cli.why import show, show_plan
from trimtab_controller.loop.events.explanation import explain_plan
from trimtab_controller.loop.why import why_here
from trimtab_protocol.messages.events import EventMove
from trimtab_protocol.wording import local_time


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


def test_a_plan_as_text() -> None:
    judged = replace(MEASURED, moves=(EventMove(key_group=kg(1), source=W1, target=W0, measured_pct=21.0, paid=False),))
    found = explain_plan("1.2", (BEGUN, ENDED, judged))
    assert found is not None
    out = io.StringIO()
    show_plan(found, Console(file=out, width=160, highlight=False, markup=False))
    rows = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert rows[:3] == [
        "plan 1.2: app: 2 moves",
        "load distance 5.00 pp predicted, 5.50 pp measured, mean load 30.0 %",
        "one more move, app/sums/0 from w0 to w2, would bring the load distance to 4.25",
    ]
    told = "done; paused 0.25 s; 21.00 % measured; it did not pay"
    why = "w1 had 45.5 %, above the mean of 30.0 %; w0 was a standby of it"
    assert f"app/sums/1 w1 w0 20.00 % {told} {why}" in rows
    assert "app/sums/2 w0 w1 25.00 % failed it made room for another key group" in rows
    assert "w0 45.0 % 50.0 % 49.0 %" in rows
    assert "w2 - - 1.0 %" in rows, "what is not known is no zero"


def test_of_an_approved_plan_it_is_said_when_its_load_distance_was_predicted() -> None:
    found = explain_plan("1.2", (replace(BEGUN, id="0", at=40.0, phase="proposed"), *EVENTS))
    assert found is not None
    out = io.StringIO()
    show_plan(found, Console(file=out, width=160, highlight=False, markup=False))
    then = f"when it was proposed ({local_time(40.0)})"
    told = f"  load distance 5.00 pp predicted {then}, 5.50 pp measured, mean load 30.0 %"
    assert out.getvalue().splitlines()[1] == told


def test_of_many_moves_the_first_are_shown() -> None:
    moves = tuple(EventMove(key_group=kg(number), source=W1, target=W0) for number in range(50))
    found = explain_plan("1.2", (replace(BEGUN, moves=moves, moves_total=1_500),))
    assert found is not None
    out = io.StringIO()
    show_plan(found, Console(file=out, width=160, highlight=False, markup=False))
    assert "and 1480 more (--json has 50)" in out.getvalue()
