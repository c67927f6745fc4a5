"""ALBIC that has no time left: the plan is then no worse than one for balance alone."""

from dataclasses import replace

import numpy as np
import pytest

from tests.narrow import of_type
from trimtab_controller.solver.answer import Answer, Flows, Method, Placing, Question
from trimtab_controller.solver.balance import answer, collocation_problem_of
from trimtab_models.albic import solve as albic
from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.solving import Infeasible, StopRule

WORKERS, KEY_GROUPS = 100, 2000


def crowded() -> Question:
    """Uneven loads far outside the band; each key group of one operator sends to one of the other."""
    random = np.random.default_rng(1)
    half = KEY_GROUPS // 2
    return Question(
        load=random.exponential(2.0, KEY_GROUPS),
        state_bytes=np.full(KEY_GROUPS, 1_000_000),
        operator=np.repeat(np.array([0, 1], np.int32), half),
        owner=random.permutation(np.arange(KEY_GROUPS) % WORKERS).astype(np.int32),
        capacity=np.ones(WORKERS),
        draining=np.zeros(WORKERS, np.bool_),
        flows=Flows(
            source=np.arange(half, dtype=np.int32),
            target=np.arange(half, KEY_GROUPS, dtype=np.int32),
            rate=random.exponential(10.0, half),
            send_cost=np.full(half, 0.001),
            receive_cost=np.full(half, 0.001),
            by_broker=np.zeros(half, np.bool_),
        ),
        max_migrations=13,
        max_load_distance=5.0,
        time_limit_s=60.0,
        method=Method.ALBIC,
    )


def test_albic_without_time_is_no_worse_than_balance_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(problem: CollocationProblem, *, stop: StopRule, seed: int) -> albic.AlbicResult | Infeasible:
        return in_time(problem, stop=lambda: True, seed=seed)

    in_time, asked = albic.solve, crowded()
    monkeypatch.setattr(albic, "solve", stopped)
    hurried, plain = answer(asked), answer(replace(asked, method=Method.MILP))
    assert isinstance(hurried, Answer)
    assert isinstance(plain, Answer)
    alone = stopped(collocation_problem_of(asked), stop=lambda: True, seed=0)
    assert isinstance(alone, albic.AlbicResult)
    assert alone.predicted_load_distance > plain.load_distance + 0.5, "it had no time"
    assert hurried.load_distance == pytest.approx(plain.load_distance, abs=0.05)
    assert hurried.collocation is not None


def test_albic_without_time_leaves_no_more_rules_broken_than_balance_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten key groups belong on the second half of the workers; thirteen moves mend that."""

    def stopped(problem: CollocationProblem, *, stop: StopRule, seed: int) -> albic.AlbicResult | Infeasible:
        return in_time(problem, stop=lambda: True, seed=seed)

    in_time, asked = albic.solve, crowded()
    monkeypatch.setattr(albic, "solve", stopped)
    class_of = np.full(KEY_GROUPS, -1, np.int32)
    class_of[np.flatnonzero(asked.owner < WORKERS // 2)[:10]] = 0
    allowed = (np.arange(WORKERS) >= WORKERS // 2)[None, :]
    placing = Placing(class_of=class_of, allowed=allowed, frozen=np.zeros(KEY_GROUPS, np.bool_))
    found = of_type(Answer, answer(replace(asked, placing=placing, max_load_distance=100.0)))
    moved = dict(found.moves)
    assert all(moved[each] >= WORKERS // 2 for each in np.flatnonzero(class_of == 0).tolist())
