"""Peaks in the standby model: the bound against every assignment, and the placing that aligns them."""

import itertools
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.standbys import instance
from tests.models.test_standbys_model import problems
from trimtab_models.solving import Never
from trimtab_models.standbys.bound import peaks_bound
from trimtab_models.standbys.problem import UNPLACED, StandbyBudget, StandbyProblem, evaluate, is_allowed
from trimtab_models.standbys.solve import aligned, solve


def optimum(found: StandbyProblem) -> float:
    """The least worst load after a loss, of all assignments that give every key group its standbys."""
    rows = []
    for key_group, due in enumerate(found.due.tolist()):
        able = [n for n in range(len(found.capacity)) if not found.removing[n] and not found.beside(key_group)[n]]
        places = found.levels[found.apart[found.owner[key_group]]]
        rows.append(
            [
                (*row, *[UNPLACED] * (found.wanted - due))
                for row in itertools.permutations(able, due)
                if len({int(places[n]) for n in row}) == due
            ]
        )
    shape = (len(found.owner), found.wanted)
    every = (np.array(row, np.int64).reshape(shape) for row in itertools.product(*rows))
    return min(evaluate(found, assignment).worst for assignment in every)


def present(found: StandbyProblem) -> float:
    """The highest load that a worker has after a loss because of what it owns."""
    return evaluate(found, np.full((len(found.owner), 0), UNPLACED)).worst


@settings(max_examples=80)
@given(problems(most=5), st.sampled_from([1.05, 1.3, 2.0]), st.sampled_from([0.1, 0.3, 0.7]))
def test_no_assignment_is_below_the_bound(found: StandbyProblem, above: float, share: float) -> None:
    """Levels above the optimum are tried as well, and none of them may be refuted."""
    found = replace(found, present=found.present[:, :0], wanted=1, follow=share * found.load)
    found = replace(found, frozen=np.zeros(len(found.owner), np.bool_))
    best = optimum(found)
    assert peaks_bound(found, present(found), above * best) <= best + 1e-3


@settings(max_examples=20, deadline=None)
@given(problems(most=3, wanted=2), st.sampled_from([1.05, 1.5]))
def test_no_assignment_with_several_standbys_is_below_the_bound(found: StandbyProblem, above: float) -> None:
    free = np.zeros(len(found.owner), np.bool_)
    found = replace(found, present=found.present[:, :0], wanted=2, follow=0.4 * found.load, frozen=free)
    best = optimum(found)
    assert peaks_bound(found, present(found), above * best) <= best + 1e-3


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.2, 0.6]), st.booleans(), st.booleans())
def test_the_bound_is_below_the_optimum_of_benchmark_instances(
    seed: int, share: float, balanced: bool, alike: bool
) -> None:
    found = instance(3, 8, seed, balanced=balanced, share=share, alike=alike)
    found = replace(found, follow=found.follow * np.random.default_rng(seed).uniform(0.2, 1.0, 8))
    best = optimum(found)
    assert peaks_bound(found, present(found), 1.2 * best) <= best + 1e-3
    result = solve(found)
    assert result.lower_bound <= best + 1e-3
    assert best <= result.score.worst + 1e-9


@pytest.mark.parametrize(("workers", "seed", "cp_sat"), [(4, 5, 76.07), (4, 9, 75.16), (8, 9, None)])
def test_the_bound_proves_more_than_divisible_key_groups_do(workers: int, seed: int, cp_sat: float | None) -> None:
    """`cp_sat`: the best value that is known, from the benchmark."""
    found = instance(workers, 20 * workers, seed, balanced=True)
    result = solve(found)
    fluid = 50.0 * workers / (workers - 1) + 0.2 * 50.0 * (workers - 2) / (workers - 1)
    assert fluid + 1.0 < result.lower_bound <= (cp_sat or result.score.worst)
    assert result.gap <= 1.0


@settings(max_examples=60)
@given(problems(wanted=2, limits=True))
def test_only_what_may_move_is_placed_anew_and_only_where_it_may_be(found: StandbyProblem) -> None:
    found = replace(found, budget=StandbyBudget())
    before = solve(replace(found, present=found.present[:, :0], frozen=np.zeros(len(found.owner), np.bool_))).assignment
    movable = np.arange(len(found.owner)) % 2 == 0
    after = aligned(found, before, movable, (0.0, 200.0), Never())
    if after is None:
        return
    free = replace(found, present=found.present[:, :0], frozen=np.zeros(len(found.owner), np.bool_))
    assert is_allowed(free, after)
    assert (after[~movable] == before[~movable]).all()
    assert (after[:, 1:] == before[:, 1:]).all()
    assert ((after != UNPLACED) == (before != UNPLACED)).all()


@pytest.mark.parametrize("seed", [0, 4, 15])
def test_aligned_peaks_make_no_plan_worse_and_these_better(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = instance(8, 160, seed, balanced=True)
    with_it = solve(found).score.worst
    monkeypatch.setattr(import_module("trimtab_models.standbys.solve"), "aligned", lambda *_: None)
    assert with_it < solve(found).score.worst - 0.5
