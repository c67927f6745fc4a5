"""Load distance, smoothing and noise; the view as an instance."""

import math
import random

import pytest

from tests.controller.decider.decider_situations import W0, W1
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import look, owned, snapshot
from tests.narrow import of_type
from trimtab_controller.decider.memory.evaluate import NOISE_ERRORS, LoadHistory, evaluate, follow
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import DemandView, MeasuredView, Worker
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId


def test_load_distance_is_relative_to_capacity_and_one_sided_for_a_drained_worker() -> None:
    seen = snapshot([node(W0, capacity=1.0), node(W1, capacity=0.5)], [owned(0, W0, 0.3), owned(1, W1, 0.3)])
    view = of_type(MeasuredView, look(seen, placement=None))
    found = evaluate(view)
    assert (found.worker_loads, found.mean_load, found.load_distance) == (
        {W0: pytest.approx(30.0), W1: pytest.approx(60.0)},
        pytest.approx(40.0),
        pytest.approx(20.0),
    )
    drained = of_type(MeasuredView, look(seen, placement=None, draining=frozenset({W1})))
    found = evaluate(drained)
    assert (found.mean_load, found.load_distance) == (pytest.approx(60.0), pytest.approx(30.0)), "w0 is 30 below"
    nobody = of_type(MeasuredView, look(seen, placement=None, draining=frozenset({W0, W1})))
    assert evaluate(nobody).load_distance is None


def test_loads_are_a_mean_at_first_then_smoothed_and_noise_is_what_was_not_foreseen() -> None:
    history, seen = LoadHistory(), []
    for cpu in (0.1, 0.3, 0.5):
        view = of_type(
            MeasuredView, look(snapshot([node(W0), node(W1)], [owned(0, W0, cpu), owned(1, W1)]), placement=None)
        )
        smoothed, history = follow(view, history, 0.5)
        [changing, steady] = smoothed.key_groups
        assert steady.load == pytest.approx(10.0)
        seen.append((changing.load, history.concentration, history.error))
    # Weights 1; 1/2, 1/2; 1/4, 1/4, 1/2.  w0 was 20 % of a core above what was foreseen, then 30: it has half a core,
    # the mean rises by half of what w0 does, so both workers are off by 20 pp, then by 30.
    assert seen == [
        (pytest.approx(10.0), 1.0, 0.0),
        (pytest.approx(20.0), 0.5, pytest.approx(400.0)),
        (pytest.approx(35.0), 0.375, pytest.approx(0.5 * 400.0 + 0.5 * 900.0)),
    ]
    assert evaluate(smoothed, history).noise == pytest.approx(NOISE_ERRORS * (650.0 * 0.375 / 1.375) ** 0.5)
    assert evaluate(smoothed).noise == 0.0


# ---- seeded simulation: noise moves next to nothing, a real shift is seen within two windows


APP, OPERATOR = AppId("app"), OperatorId("sums")
WORKERS = tuple(
    Worker(id=WorkerId(f"w{index}"), host=HostId(f"h{index}"), capacity=0.25, draining=False) for index in range(4)
)
BAND, SMOOTHING, MIN_WINDOWS = 2.0, 0.5, 3
EVENTS_PER_WINDOW = 15
WORKER_NOISE = 0.05
WINDOWS, SHIFT_AT, SHIFT = 60, 30, 4.0


def views(seed: int, *, shift: bool) -> list[DemandView]:
    """32 key groups on each of 4 workers at 58 % load; counts vary as Poisson's do, workers by 5 % as a whole.

    With `shift` 8 key groups of w0 get four times their load in the middle.
    """
    draw = random.Random(seed)
    made = []
    for number in range(WINDOWS):
        slow = [1.0 + draw.gauss(0.0, WORKER_NOISE) for _ in WORKERS]
        rows = []
        for index in range(128):
            hot = shift and number >= SHIFT_AT and index % 4 == 0 and index < 32
            events = max(0.0, draw.gauss(EVENTS_PER_WINDOW, math.sqrt(EVENTS_PER_WINDOW))) / EVENTS_PER_WINDOW
            load = 0.45 * (SHIFT if hot else 1.0) * events * slow[index % 4]
            owner = WORKERS[index % 4].id
            rows.append(Owned(key_group=KeyGroup(APP, OPERATOR, index), owner=owner, load=load, state_bytes=1))
        start_s = 5.0 * number
        made.append(
            DemandView(app=APP, start_s=start_s, end_s=start_s + 5.0, workers=WORKERS, key_groups=tuple(rows), flows={})
        )
    return made


def windows_that_would_move(seen: list[DemandView]) -> list[int]:
    """The windows in which the load distance is above the band and above the noise."""
    history, found = LoadHistory(), []
    for number, view in enumerate(seen):
        smoothed, history = follow(view, history, SMOOTHING)
        evaluation = evaluate(smoothed, history)
        assert evaluation.load_distance is not None
        assert evaluation.noise is not None
        if number + 1 >= MIN_WINDOWS and evaluation.load_distance > max(BAND, evaluation.noise):
            found.append(number)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_noise_moves_next_to_nothing(seed: int) -> None:
    assert len(windows_that_would_move(views(seed, shift=False))) <= 3


@pytest.mark.parametrize("seed", range(6))
def test_a_shift_is_seen_within_two_windows(seed: int) -> None:
    after = [number for number in windows_that_would_move(views(seed, shift=True)) if number >= SHIFT_AT]
    assert after[0] <= SHIFT_AT + 1
    assert len(after) >= 25, "and it stays seen"
