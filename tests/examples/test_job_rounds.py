"""Methods on job 1 over rounds: what is counted, what is left out, and how far chance alone goes."""

from dataclasses import replace

import pytest

from jobs.oracle import NOTHING
from jobs.rounds import VARIANTS, Course, noise, pauses, report
from tests.controller.decider.decider_situations import W0, W1, a_node, kg
from tests.controller.decider.observed_snapshots import owned, snapshot
from trimtab_controller.replay.outcome import Tally
from trimtab_protocol.messages.events import Event, EventMove
from trimtab_protocol.messages.snapshot import Snapshot

WINDOW_MS = 15_000


def window(number: int, *cpu: float | None) -> Snapshot:
    """One key group on each of two workers."""
    rows = [owned(place, worker, its) for place, (worker, its) in enumerate(zip((W0, W1), cpu, strict=True))]
    seen = snapshot([a_node(W0), a_node(W1)], rows)
    return replace(seen, start_ms=number * WINDOW_MS, end_ms=(number + 1) * WINDOW_MS)


def course(*windows: Snapshot) -> Course:
    tally = Tally()
    tally.plans, tally.moved, tally.paused_s = 3, 9, 1.25
    return Course(windows=windows, capacity=0.2, budget=13, tally=tally, longest_s=0.4, worker_us=900.0, sent=10,
                  verdict=NOTHING)  # fmt: skip


def test_the_first_windows_do_not_count_and_a_window_that_is_not_whole_neither() -> None:
    windows = [window(0, 0.2, 0.0), *(window(number, 0.11, 0.09) for number in range(3, 7)), window(8, None, 0.1)]
    [*_, row] = report({"flux": course(*windows)}).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:8] == ["flux", "up to 7", "13", "50 %", "5.0", "5.0", "5.0", ""]
    assert cells[8:13] == ["3", "9", "1.2", "0.40", "900"]


def test_noise_is_that_of_one_window() -> None:
    """Both workers go up and down by 5 pp: twice as far from one window to the next as one window is off, in 1 of 2."""
    windows = [window(number, 0.1 + (number % 2) * 0.02, 0.1) for number in range(6)]
    assert noise(windows, 0.2) == pytest.approx(5.0 / 2**0.5)
    assert noise(windows[:1], 0.2) is None


def test_budgets_are_those_of_the_paper() -> None:
    assert {name: each.most(300) for name, each in VARIANTS.items() if each.method} == {
        "flux": 13, "milp": 13, "flux-few": 10, "milp-few": 10, "flux-free": 300, "milp-free": 300,
    }  # fmt: skip


def test_pauses_are_those_of_key_groups_in_rounds_that_have_ended() -> None:
    moves = tuple(EventMove(key_group=kg(place), source=W0, target=W1, outcome="done", pause_s=its)
                  for place, its in enumerate((0.2, None, 0.6)))  # fmt: skip
    events = [Event(id=phase, cluster="c", at=1.0, kind="plan", phase=phase, text="", moves=moves)
              for phase in ("begun", "ended")]  # fmt: skip
    assert pauses(events) == [0.2, 0.6]
