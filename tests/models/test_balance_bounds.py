"""No condition of the bound ever rules out what an exhaustive search reaches; the costly ones prove more."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trimtab_models.balance import Problem
from trimtab_models.balance.bound import CostConditions, CountConditions, lower_bound, piece_bound, stronger_bound
from trimtab_models.balance.knapsack import Whole
from trimtab_models.balance.pieces import Pieces
from trimtab_models.balance.reach import Reach
from trimtab_models.solving import Never

quick = settings(max_examples=40)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to 3 nodes and 6 key groups, with marks, pins and unplaced key groups; one of both budgets, or both."""
    nodes, key_groups = draw(st.integers(1, 3)), draw(st.integers(1, 6))

    def each(strategy: st.SearchStrategy, count: int) -> np.ndarray:
        return np.array(draw(st.lists(strategy, min_size=count, max_size=count)))

    removing = each(st.booleans(), nodes)
    removing[draw(st.integers(0, nodes - 1))] = False
    count, cost = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    return Problem(
        load=each(st.one_of(st.sampled_from([0.0, 10.0, 20.0]), st.floats(0, 40)), key_groups).astype(float),
        cost_bytes=each(st.integers(1, 9), key_groups).astype(float),
        home=each(st.integers(-1, nodes - 1), key_groups).astype(np.int64),
        pinned=each(st.sampled_from([False, False, False, True]), key_groups).astype(bool),
        in_flight=np.zeros(key_groups, bool), capacity=each(st.sampled_from([0.5, 1.0, 2.0]), nodes).astype(float),
        removing=removing.astype(bool), usage=np.zeros((0, key_groups)), limit=np.zeros((0, nodes)),
        max_migrations=draw(st.integers(0, 4)) if count else None,
        max_cost_bytes=draw(st.floats(0, 20)) if cost else None,
    )  # fmt: skip


def optimum(problem: Problem) -> float:
    """The least load distance of all allocations that keep pins, marks and budgets."""
    nodes = range(len(problem.capacity))
    kept = [node for node in nodes if not problem.removing[node]]
    choices = []
    for home, pinned in zip(problem.home.tolist(), problem.pinned.tolist(), strict=True):
        choices.append(kept if home < 0 else [home] if pinned else sorted({*kept, home}))
    best = np.inf
    for index in np.ndindex(*map(len, choices)):
        allocation = np.array([choice[at] for choice, at in zip(choices, index, strict=True)])
        moved = (allocation != problem.home) & (problem.home >= 0)
        if problem.max_migrations is not None and moved.sum() > problem.max_migrations:
            continue
        if problem.max_cost_bytes is not None and problem.cost_bytes[moved].sum() > problem.max_cost_bytes:
            continue
        loads = np.array([problem.load[allocation == node].sum() for node in nodes]) / problem.capacity
        worst = max(loads.max() - problem.mean, (problem.mean - loads[kept]).max())
        best = min(best, worst)
    return float(best)


def test_the_last_move_of_the_budget_counts_where_nobody_is_above_the_band():
    """Three nodes at 12, one at 4, mean 10: the one move that is allowed brings 2 of the 6 that it lacks."""
    problem = Problem(
        load=np.full(20, 2.0), cost_bytes=np.ones(20), home=np.repeat(np.arange(4), [6, 6, 6, 2]),
        pinned=np.zeros(20, bool), in_flight=np.zeros(20, bool), capacity=np.ones(4), removing=np.zeros(4, bool),
        usage=np.zeros((0, 20)), limit=np.zeros((0, 4)), max_migrations=1,
    )  # fmt: skip
    assert lower_bound(problem, 6.0, Never()) == pytest.approx(4.0, abs=1e-5)


@quick
@given(problems())
def test_no_condition_refutes_the_optimum(problem):
    reached = optimum(problem)
    pieces = Pieces.ordered(problem, -problem.load)
    refuters = [CountConditions(problem).refute, Reach(problem, pieces.load, pieces.first).refute]
    if problem.max_cost_bytes is not None:
        refuters += [CostConditions(problem, problem.max_cost_bytes).refute]
        refuters += [Whole(problem, problem.max_cost_bytes).refute]
    assert [refute(reached + 1e-9) for refute in refuters] == [False] * len(refuters)
    assert piece_bound(problem) <= reached + 1e-9


@quick
@given(problems())
def test_the_stronger_bound_is_between_the_bound_and_the_optimum(problem):
    reached = optimum(problem)
    weak = lower_bound(problem, reached, Never())
    assert weak <= stronger_bound(problem, weak, reached, Never()) <= reached + 1e-9


@quick
@given(problems(), st.floats(0, 40))
def test_r_and_s_and_d_are_what_their_definitions_say(problem, d):
    """The dumb twin: each condition node by node, with sorted lists."""
    assume(problem.max_migrations is not None)
    budget = problem.max_migrations
    own = [np.flatnonzero((problem.home == node) & problem.movable) for node in range(len(problem.capacity))]
    loads = [sorted(problem.load[mine], reverse=True) for mine in own]
    cluster = sorted((load for mine in loads for load in mine), reverse=True)
    unplaced = problem.load[problem.home < 0].sum()
    outs, ins, carried, further, deficit = 0, 0, 0.0, [], -unplaced
    impossible = False
    for node, mine in enumerate(loads):
        now, capacity = problem.load[problem.home == node].sum(), problem.capacity[node]
        low = -np.inf if problem.removing[node] else (problem.mean - d) * capacity
        fewest = next(
            (n for n in range(len(mine) + 1) if now - sum(mine[:n]) <= (problem.mean + d) * capacity + 1e-9), None
        )
        if fewest is None:
            impossible = True
            continue
        outs += fewest
        room = max(0.0, now - low)
        offers = [min(load, max(0.0, room - sum(mine[:at]))) for at, load in enumerate(mine)]
        carried += sum(offers[:fewest])
        further += offers[fewest:]
        if now < low - 1e-9:
            deficit += low - now
            ins += next((n for n in range(len(cluster)) if sum(cluster[:n]) >= low - now - 1e-9), len(cluster))
    left = budget - outs
    refuted = impossible or left < 0 or (ins > budget and not unplaced)
    if not refuted:
        refuted = carried + sum(sorted(further, reverse=True)[:left]) < deficit - 1e-9
    assert CountConditions(problem).refute(d) == refuted


def test_whole_key_groups_prove_more_than_cut_ones():
    """A node 10 above, key groups of 20 at 6 bytes each: cut, 3 bytes are enough to lose the 10; whole, 5 are not."""
    problem = Problem(
        load=np.array([20.0, 20.0, 20.0, 20.0, 20.0]), cost_bytes=np.full(5, 6.0), home=np.array([0, 0, 0, 1, 1]),
        pinned=np.zeros(5, bool), in_flight=np.zeros(5, bool), capacity=np.ones(2), removing=np.zeros(2, bool),
        usage=np.zeros((0, 5)), limit=np.zeros((0, 2)), max_cost_bytes=5.0,
    )  # fmt: skip
    assert CostConditions(problem, 5.0).refute(5.0) is False
    assert Whole(problem, 5.0).refute(5.0) is True
    assert stronger_bound(problem, 0.0, 10.0, Never()) > 9.99
    assert stronger_bound(replace(problem, max_cost_bytes=6.0), 0.0, 10.0, Never()) > 9.9  # 30 and 20 either way


def test_key_groups_without_load_do_not_blunt_the_bound_by_cost():
    """What carries nothing would cost infinitely much per load, and infinity times nothing is no number."""
    problem = Problem(
        load=np.array([20.0, 20.0, 0.0, 0.0]), cost_bytes=np.array([10.0, 10.0, 1e9, 1e9]), home=np.array([0, 0, 0, 1]),
        pinned=np.zeros(4, bool), in_flight=np.zeros(4, bool), capacity=np.ones(2), removing=np.zeros(2, bool),
        usage=np.zeros((0, 4)), limit=np.zeros((0, 2)), max_cost_bytes=5.0,
    )  # fmt: skip
    assert CostConditions(problem, 5.0).refute(9.9) is True
    assert CostConditions(problem, 5.0).refute(10.1) is False
