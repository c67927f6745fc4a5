"""The tight bound with which a benchmark compares plans of standbys."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.standbys.disjunctive import PRECISION, disjunctive_bound
from benchmarks.standbys.instances import instance
from trimtab_models.standbys import evaluate, solve


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.6]), st.booleans(), st.booleans())
def test_the_tight_bound_is_below_the_optimum(seed: int, share: float, balanced: bool, alike: bool) -> None:
    found = instance(3, 8, seed, balanced=balanced, share=share, alike=alike)
    others = [[worker for worker in range(3) if worker != owner] for owner in found.owner.tolist()]
    every = (np.array(row, np.int64)[:, None] for row in itertools.product(*others))
    optimum = min(evaluate(found, assignment).worst for assignment in every)
    result = solve(found)
    bound = disjunctive_bound(found, result.lower_bound, result.score.worst)
    assert result.lower_bound <= bound <= optimum + 1e-4


def test_the_tight_bound_proves_what_the_models_own_does_not() -> None:
    found = instance(4, 80, 5, balanced=True)
    result = solve(found)
    bound = disjunctive_bound(found, result.lower_bound, result.score.worst)
    assert bound > result.lower_bound + 1.0
    assert bound <= 76.07 + PRECISION, "the optimum, by CP-SAT"
