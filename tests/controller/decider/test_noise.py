"""Seeded simulation: noise moves next to nothing, a real shift is seen within two windows."""

import math
import random

import pytest

from trimtab_controller.decider.memory.evaluate import LoadHistory, evaluate, follow
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import DemandView, Worker
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

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
