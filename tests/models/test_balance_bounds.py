"""No bound rules out what an exhaustive search reaches; the costly ones, and prices of loads, prove more."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.models.clusters import by_bytes, cluster, optimum, problems, searched, solved
from trimtab_models.balance.bound import (
    CostConditions,
    CountConditions,
    KnapsackCondition,
    ReachCondition,
    lower_bound,
    piece_bound,
    relative_prices,
    stronger_bound,
)
from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.load_prices import Detail, Relaxation, plans_by_load_prices
from trimtab_models.balance.losses import Pieces, by_node, is_affordable
from trimtab_models.balance.problem import BalanceProblem
from trimtab_models.simulation.workloads import uneven_cluster
from trimtab_models.solving import Never

quick = settings(max_examples=40)
budgeted = problems(nodes=3, limits=False, budget=True)
details = st.builds(
    Detail, cells=st.sampled_from([3, 50, 1_500]), classes=st.sampled_from([1, 7, 40]), knots=st.just(8),
    beyond=st.sampled_from([0.0, 0.4, 1.0, 3.0]),
)  # fmt: skip


def test_the_last_move_of_the_budget_counts_where_nobody_is_above_the_band():
    """Three nodes at 12, one at 4, mean 10: the one move that is allowed brings 2 of the 6 that it lacks."""
    problem = cluster(np.repeat(np.arange(4), [6, 6, 6, 2]), np.full(20, 2.0), 4, max_migrations=1)
    assert lower_bound(problem, 6.0, Never()) == pytest.approx(4.0, abs=1e-5)


@settings(max_examples=100)
@given(budgeted)
def test_no_condition_and_no_bound_refutes_the_optimum(problem):
    reached = optimum(problem)
    pieces = Pieces.ordered(problem, -problem.load)
    refuters = [CountConditions(problem).refute, ReachCondition(problem, pieces.load, pieces.first).refute]
    if problem.max_cost_bytes is not None:
        refuters += [CostConditions(problem, problem.max_cost_bytes).refute]
        refuters += [KnapsackCondition(problem, hot).refute for hot in (0.0, reached, 1e9)]
    assert [refute(reached + 1e-9) for refute in refuters] == [False] * len(refuters)
    above = reached + 1.0  # as of a plan that is not the best: a bound may not come near it
    weak = lower_bound(problem, above, Never())
    priced = [bound for bound, _ in plans_by_load_prices(problem, weak, above, np.random.default_rng(0), Never())]
    assert priced == sorted(priced)
    assert piece_bound(problem) <= weak <= stronger_bound(problem, weak, above, Never()) <= reached + 1e-9
    assert max(priced, default=weak) <= reached + 1e-9


@quick
@given(budgeted, st.lists(st.floats(-2, 2), min_size=60, max_size=60), details)
def test_at_no_price_of_loads_nodes_pay_more_than_the_optimum_does(problem, prices, detail):
    """Prices may be anything, also below 0, but for key groups without load, which are free."""
    reached = optimum(problem)
    for price in relative_prices(problem):
        assume(problem.load[problem.movable & (problem.home >= 0)].any())
        relaxation = Relaxation(problem, price, reached + 1.0, detail)
        chosen = np.array([0.0, *prices[: relaxation.classes - 1]])
        assert relaxation.at(chosen).paid(reached + 1e-9) <= 1 + 1e-7


@quick
@given(budgeted, st.floats(0, 40))
def test_where_whole_key_groups_are_affordable_their_knapsacks_refute_nothing(problem, d):
    assume(problem.max_cost_bytes is not None)
    conditions = CostConditions(problem, problem.max_cost_bytes)
    whole = conditions.whole(d)
    assume(whole is not None and is_affordable(problem, whole) and not conditions.refute(d))
    assert not KnapsackCondition(problem, np.inf).refute(d)


@pytest.mark.parametrize("nodes", [1, 5, 70_000])
def test_key_groups_are_ordered_by_node_then_rank_then_place(nodes):
    random = np.random.default_rng(nodes)
    node, rank = random.integers(0, nodes, 500), random.integers(0, 9, 500).astype(float)
    assert by_node(node, rank).tolist() == np.lexsort((rank, node)).tolist()


ONE_PIECE = cluster(
    [0, -1, 0, 0], [0, 0, 0, 10], 3, pinned=[True, False, True, False], capacity=np.full(3, 0.5), max_migrations=2
)
"""Two nodes lack load, and only one key group can move: S refutes, though two migrations are allowed."""
TINY = replace(ONE_PIECE, load=np.array([0.0, 0.0, 0.0, 5e-10]), max_migrations=0)
"""Nobody may move, and the excess is of the size of the tolerances."""


@settings(max_examples=150)
@given(budgeted, st.one_of(st.just(0.0), st.floats(0, 40)))
@example(ONE_PIECE, 0.0)
@example(ONE_PIECE, 3.0)
@example(TINY, 0.0)
def test_r_and_s_and_d_are_what_their_definitions_say(problem, d):
    """What is refuted is so in exact numbers, and what these refute by more than any rounding is refuted."""
    assume(problem.max_migrations is not None)
    refuted = CountConditions(problem).refute(d)
    assert refuted_exactly(problem, d, margin=BEYOND_ROUNDING) <= refuted <= refuted_exactly(problem, d)


BEYOND_ROUNDING = Fraction(1, 10**7)
"""Load; some ten times what the slack of `Excesses` adds up to over three nodes and 240 % of load."""


def refuted_exactly(problem: BalanceProblem, d: float, margin: Fraction = Fraction(0)) -> bool:
    """The dumb twin: each condition node by node, with sorted lists; refuted only where one fails by the margin."""
    load, capacities = list(map(Fraction, problem.load.tolist())), list(map(Fraction, problem.capacity.tolist()))
    mean = sum(load) / sum(capacity for capacity, kept in zip(capacities, problem.kept, strict=True) if kept)
    placed = [np.flatnonzero(problem.home == node) for node in range(len(capacities))]
    loads = [sorted((load[at] for at in here if not problem.pinned[at]), reverse=True) for here in placed]
    cluster = sorted((piece for mine in loads for piece in mine), reverse=True)
    unplaced = sum(load[at] for at in np.flatnonzero(problem.home < 0))
    outs, ins, carried, further, deficit = 0, 0, Fraction(0), [], -unplaced
    for node, mine in enumerate(loads):
        now, removing = sum(load[at] for at in placed[node]), problem.removing[node]
        high, low = (mean + Fraction(d)) * capacities[node], (mean - Fraction(d)) * capacities[node]
        fewest = next((n for n in range(len(mine) + 1) if now - sum(mine[:n]) <= high + margin), None)
        if fewest is None:
            return True
        outs += fewest
        room = now if removing else max(Fraction(0), now - low)
        offers = [min(piece, max(Fraction(0), room - sum(mine[:at]))) for at, piece in enumerate(mine)]
        carried += sum(offers[:fewest])  # type: ignore[assignment]
        further += offers[fewest:]
        if not removing and now < low - margin:
            deficit += low - now  # type: ignore[assignment]
            ins += next((n for n in range(len(cluster)) if sum(cluster[:n]) >= low - now - margin), len(cluster))
    budget = min(problem.max_migrations, len(cluster))  # type: ignore[type-var]  # nothing moves twice
    if outs > budget or (ins > budget and not unplaced):  # type: ignore[operator]
        return True
    return carried + sum(sorted(further, reverse=True)[: budget - outs]) < deficit - margin  # type: ignore[operator]


def test_whole_key_groups_prove_more_than_cut_ones():
    """A node 10 above, key groups of 20 at 6 bytes each: cut, 3 bytes are enough to lose the 10; whole, 5 are not."""
    problem = cluster([0, 0, 0, 1, 1], [20] * 5, 2, cost_bytes=[6.0] * 5, max_cost_bytes=5.0)
    assert CostConditions(problem, 5.0).refute(5.0) is False
    assert KnapsackCondition(problem, 1e9).refute(5.0) is True
    assert KnapsackCondition(problem, 0.0).refute(5.0) is True
    assert stronger_bound(problem, 0.0, 10.0, Never()) > 9.99
    assert stronger_bound(replace(problem, max_cost_bytes=6.0), 0.0, 10.0, Never()) > 9.9  # 30 and 20 either way


def test_two_budgets_together_prove_more_than_each_alone():
    """Two nodes 10 above, who can each lose a light key group of 9 bytes or, in two moves, heavy ones of 4 bytes."""
    light, pair = [10.0, 9.0], [[5.0, 2.0], [5.0, 2.0]]
    own = np.array([light, *pair, [40.0, 50.0]])
    load, cost = np.concatenate((own, own, [[40.0, 50.0], [40.0, 50.0]])).T
    homes, limits = np.repeat(np.arange(4), [4, 4, 1, 1]), {"max_migrations": 2, "max_cost_bytes": 9.0}
    problem = cluster(homes, load, 4, cost_bytes=cost, pinned=load == 40.0, **limits)
    assert KnapsackCondition(replace(problem, max_migrations=None), 0.0).refute(1.0) is False
    assert CountConditions(problem).refute(1.0) is False
    assert KnapsackCondition(problem, 0.0).refute(1.0) is True


def test_key_groups_without_load_do_not_blunt_the_bound_by_cost():
    """What carries nothing would cost infinitely much per load, and infinity times nothing is no number."""
    problem = cluster([0, 0, 0, 1], [20, 20, 0, 0], 2, cost_bytes=[10.0, 10.0, 1e9, 1e9], max_cost_bytes=5.0)
    assert CostConditions(problem, 5.0).refute(9.9) is True
    assert CostConditions(problem, 5.0).refute(10.1) is False


def test_a_node_that_must_lose_a_key_group_must_not_be_too_low_without_it():
    """Loads of 56, 50 and 44: key groups of 10, a dear one of 3, and pinned ones; one move of the cheap is paid for.

    56 less 10 is 46: the key group of 3 that would fill it up is too dear, so no plan is nearer to 50 than 4.
    """
    load = np.array([10.0, 10.0, 36.0, 10.0, 10.0, 27.0, 3.0, 10.0, 34.0])
    cost, homes = np.where(load == 3.0, 50.0, 2.0), [0, 0, 0, 1, 1, 1, 1, 2, 2]
    problem = cluster(homes, load, 3, cost_bytes=cost, pinned=load > 10.0, max_cost_bytes=3.0)
    assert stronger_bound(problem, 0.0, 6.0, Never()) < 2.0
    found = list(plans_by_load_prices(problem, 0.0, 6.0, np.random.default_rng(0), Never()))
    assert found[-1][0] == pytest.approx(4.0, abs=0.05)
    assert min(evaluate(problem, plan).load_distance for _, plan in found) == pytest.approx(4.0)
    assert solved(problem).score.load_distance == pytest.approx(4.0), "the solver uses them"


def test_a_middling_budget_of_bytes_is_proven_and_used_better():
    problem = by_bytes(20, 20, 0.005)
    start = evaluate(problem, problem.home).load_distance
    without = stronger_bound(problem, lower_bound(problem, start, Never()), start, Never())
    found = list(plans_by_load_prices(problem, without, start, np.random.default_rng(0), Never()))
    assert [bound for bound, _ in found] == sorted(bound for bound, _ in found)
    assert found[-1][0] > without + 0.1
    allowed = [score for _, plan in found if (score := evaluate(problem, plan)).allowed]
    assert min(score.load_distance for score in allowed) < start / 4
    assert all(score.load_distance >= found[-1][0] for score in allowed)


def test_a_budget_of_migrations_is_bounded_but_not_planned():
    """60 moves for 60 nodes: the conditions of the bound prove next to nothing, and search finds better plans."""
    problem = replace(uneven_cluster(60, 1_200, 20, 0), max_migrations=60)
    start = evaluate(problem, problem.home).load_distance
    without = stronger_bound(problem, lower_bound(problem, start, Never()), start, Never())
    found = list(plans_by_load_prices(problem, without, 0.3, np.random.default_rng(0), Never()))
    assert found[-1][0] > without + 0.1
    assert all((plan == problem.home).all() for _, plan in found)


def test_the_first_prices_are_near_those_that_prove_most():
    """From prices of 0 the first steps gain so little that the search gave up: the bound stayed at 0.30."""
    problem = replace(uneven_cluster(60, 1_200, 20, 0), max_migrations=50)
    found = list(plans_by_load_prices(problem, 0.303, 0.58, np.random.default_rng(0), Never()))
    assert 0.4 < found[-1][0] < 0.55


def test_without_a_budget_there_are_none():
    problem = replace(by_bytes(20, 80, 0.01), max_cost_bytes=None)
    assert list(plans_by_load_prices(problem, 0.0, 40.0, np.random.default_rng(0), Never())) == []


def test_a_linear_program_that_cannot_go_on_from_the_last_solution_is_solved_from_scratch():
    """Found by hypothesis: three key groups without load, one that is nowhere yet, and no byte to spend."""
    problem = cluster([0, 0, 0, 0, 1, -1], [0, 0, 0, 10, 10, 10], 2, capacity=[0.5, 0.5], max_cost_bytes=0.0)
    result = searched(problem)
    assert result.score.load_distance == pytest.approx(10.0)  # three equal key groups on two nodes: 40 and 20
    assert result.lower_bound <= 10.0 + 1e-9
