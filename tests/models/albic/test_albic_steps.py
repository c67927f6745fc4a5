"""ALBIC step by step (Madsen et al. 2017, section 4.3.2): prediction, scores, keeping, the one pair."""

from itertools import chain as chain_of
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings

from tests.models.albic.situations import situations
from trimtab_models.albic.joining import Joining, PlanEvaluator, Weights, _GreedyChoice, choose_greedily
from trimtab_models.albic.model import optimise
from trimtab_models.albic.parts import cut, parts_of, parts_to_keep
from trimtab_models.albic.problem import load_index
from trimtab_models.albic.scores import scored_pairs
from trimtab_models.albic.solve import CollocationImprover, Join
from trimtab_models.solving import Never


def pairs_of(problem):
    pairs = scored_pairs(problem)
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.rate.tolist(), strict=True))


# Loads


def test_a_remote_tuple_costs_at_both_ends_and_a_local_one_nothing(cluster):
    problem = cluster([0, 1], [10, 10], [(0, 1, 100)], serialise_cost=0.02, deserialise_cost=0.03)
    assert problem.work.tolist() == [8, 7]
    assert problem.loads(np.array([0, 1])).tolist() == [10, 10]
    assert problem.loads(np.array([0, 0])).tolist() == [8, 7]
    assert load_index(problem, np.array([1, 1]), 20.0) == 75


def test_what_is_local_now_costs_when_it_is_parted(cluster):
    problem = cluster([0, 0], [10, 10], [(0, 1, 100)], nodes=2, serialise_cost=0.02, deserialise_cost=0.03)
    assert problem.loads(np.array([0, 1])).tolist() == [12, 13]


def test_unplaced_ends_are_remote_and_a_key_group_is_never_remote_from_itself(cluster):
    problem = cluster([-1, -1], [10, 10], [(0, 1, 100), (0, 0, 50)], nodes=1, serialise_cost=0.02)
    assert problem.remote(problem.balance.home).tolist() == [True, False]
    assert problem.collocation(np.array([0, 0])) == 1


# Step 1: scores


def test_a_pair_is_scored_only_strictly_above_the_factor_times_the_average(cluster):
    operator = [0, 1, 1, 1]
    for rate, scored in ((1.5, []), (1.500001, [(0, 1, 1.500001)])):
        rest = (3 - rate) / 2
        problem = cluster([0, 1, 1, 1], 1, [(0, 1, rate), (0, 2, rest), (0, 3, rest)], operator=operator)
        assert pairs_of(problem) == scored


def test_downstream_key_groups_are_all_of_the_operators_sent_to_by_the_operator(cluster):
    # key group 0 sends to one of 2 of operator 1; its sibling 1 alone makes operator 2 with 2 key groups downstream too
    operator = [0, 0, 1, 1, 2, 2]
    flows = [(0, 2, 10.0), (1, 4, 10.0)]
    problem = cluster([0] * 6, 1, flows, operator=operator, score_factor=3.9)
    assert pairs_of(problem) == [(0, 2, 10), (1, 4, 10)]  # 10 > 3.9 * 10 / 4, not 3.9 * 10 / 2
    assert pairs_of(cluster([0] * 6, 1, flows, operator=operator, score_factor=4.0)) == []


def test_a_pair_counts_once_with_the_rates_of_both_directions_and_split_flows_added(cluster):
    flows = [(1, 0, 5.0), (0, 1, 3.0), (0, 1, 4.0), (0, 0, 1.0), (1, 2, 1.0)]
    assert pairs_of(cluster([0, 0, 0], 1, flows, operator=[0, 1, 0], score_factor=0.9)) == [(0, 1, 12.0)]


def test_no_flows_no_key_groups_no_pairs(cluster):
    assert pairs_of(cluster([0, 0], 1, [])) == []
    assert pairs_of(cluster([], [], [], nodes=1)) == []


# Step 2: keep


def chain(cluster, count, load, **changes):
    """One set on one node: 0 - 1 - ... with one pair per link, each link its own two operators."""
    flows = [(first, second, 10.0 + first) for first, second in pairwise(range(count))]
    return cluster([0] * count, load, flows, score_factor=0.5, **changes)


def test_collocated_pairs_become_one_set_and_others_stay_single(cluster):
    problem = cluster([0, 0, 0, 1, -1], 1, [(0, 1, 9.0), (1, 2, 9.0), (2, 3, 9.0), (3, 4, 9.0)], score_factor=0.5)
    assert parts_to_keep(problem.balance, scored_pairs(problem), 25, seed=0) == [[0, 1, 2], [3], [4]]


@pytest.mark.parametrize(("load", "limit", "most"), [(5, 25, 5), (5, 10, 2), (5, 5, 1), (30, 25, 1)])
def test_a_heavy_set_is_split_into_parts_of_at_most_max_partition_load(cluster, load, limit, most):
    problem = chain(cluster, 10, load)
    parts = parts_to_keep(problem.balance, scored_pairs(problem), limit, seed=0)
    assert sorted(chain_of(*parts)) == list(range(10))
    assert max(map(len, parts)) <= most
    assert all(len(part) == 1 or sum(problem.balance.load[part]) <= limit for part in parts)


def test_a_set_that_is_too_dear_for_the_budget_is_split(cluster):
    problem = chain(cluster, 9, 0.1, max_migrations=3)
    parts = parts_to_keep(problem.balance, scored_pairs(problem), 25, seed=0)
    assert max(map(len, parts)) <= 3
    problem = chain(cluster, 9, 0.1, max_cost_bytes=10.0, cost_bytes=[8.0, 8, 1, 1, 1, 1, 1, 1, 1])
    parts = parts_to_keep(problem.balance, scored_pairs(problem), 25, seed=0)
    assert all(len(part) == 1 or sum(problem.balance.cost_bytes[part]) <= 10 for part in parts)


def test_cutting_takes_the_weak_links(cluster):
    flows = [(0, 1, 90.0), (1, 2, 80.0), (2, 3, 1.0), (3, 4, 90.0), (4, 5, 80.0)]
    problem = cluster([0] * 6, 5, flows, score_factor=0.01)
    assert parts_to_keep(problem.balance, scored_pairs(problem), 15, seed=0) == [[0, 1, 2], [3, 4, 5]]


def test_at_max_partition_load_0_every_key_group_is_a_part(cluster):
    problem = chain(cluster, 4, 1)
    assert parts_to_keep(problem.balance, scored_pairs(problem), 0, seed=0) == [[0], [1], [2], [3]]


def test_the_cut_is_never_all_in_one_part_and_the_same_for_the_same_seed():
    weights = np.array([1e9, 1.0, 1.0, 1.0])
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    labels = cut(weights, edges, np.array([5.0, 5.0, 5.0]), 2, seed=3)
    assert len(set(labels.tolist())) == 2
    assert labels.tolist() == cut(weights, edges, np.array([5.0, 5.0, 5.0]), 2, seed=3).tolist()
    assert len(set(cut(np.zeros(4), np.zeros((0, 2), np.int64), np.zeros(0), 3, seed=0).tolist())) == 3


def test_a_part_carries_the_sums_of_its_members(cluster):
    problem = cluster(
        [0, 0, 1], [1.0, 2, 4], [], pinned=[False, True, False], cost_bytes=[1.0, 5, 3],
        usage=[[1.0, 2.0, 3.0]], limit=[[9.0, 9.0]], max_cost_bytes=8.0,
    ).balance  # fmt: skip
    parts = parts_of(problem, [[0, 1], [2]])
    assert (parts.problem.load.tolist(), parts.problem.cost_bytes.tolist()) == ([3, 4], [6, 3])
    assert (parts.problem.pinned.tolist(), parts.problem.usage.tolist()) == ([True, False], [[3, 3]])
    assert parts.expand(np.array([1, 0])).tolist() == [1, 1, 0]


def test_a_part_costs_a_migration_for_each_member_and_the_tighter_budget_counts(cluster):
    for budgets, fits in (
        ({"max_migrations": 2}, [True, False, False]),
        ({"max_migrations": 3}, [True, True, False]),
        ({"max_cost_bytes": 9.0}, [True, True, False]),
        ({"max_migrations": 3, "max_cost_bytes": 8.0}, [True, False, False]),
        ({"max_migrations": 0, "max_cost_bytes": 9.0}, [False, False, False]),
        ({"max_migrations": 4, "max_cost_bytes": 0.0}, [False, False, False]),
    ):
        balance = cluster([0] * 9, 1, [], nodes=2, cost_bytes=[1.0, 1, 4, 4, 1, 4, 4, 1, 1], **budgets).balance
        problem = parts_of(balance, [[0, 1], [2, 3, 4], [5, 6, 7, 8]]).problem
        assert [bool((prices <= problem.allowances).all()) for prices in problem.prices.T] == fits


# Step 3: the one pair


def best_join(problem, parts=None, max_partition_load=25.0, seed=0):
    balance = problem.balance
    made = parts_of(balance, parts or [[key_group] for key_group in range(len(balance.load))])
    at = np.array([balance.home[part[0]] for part in parts]) if parts else balance.home
    improver = CollocationImprover(balance, made, at, max_partition_load)
    return improver.best(scored_pairs(problem), np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("homes", "loads", "flows", "parts", "join"),
    [
        ([0, 1, 0, 1], [5.0, 4, 1, 1], [(0, 1, 50.0), (2, 3, 60.0)], None, Join(mover=2, anchor=3, node=1)),
        ([0, 1, 1], [1.0, 9, 9], [(0, 1, 50.0), (1, 2, 70.0)], [[0], [1, 2]], Join(mover=0, anchor=1, node=1)),
        (
            [0, 0, 1, 1], [2.0, 2, 1, 1], [(0, 1, 9.0), (2, 3, 9.0), (0, 2, 5.0)], [[0, 1], [2, 3]],
            Join(mover=0, anchor=1, node=1),
        ),
        ([0, 1, 0, 1], [20.0, 20, 1, 2], [(0, 1, 50.0), (2, 3, 40.0)], None, Join(mover=3, anchor=2, node=0)),
    ],
    ids=[
        *("the largest rate, to the less loaded node", "to the set", "both in sets"),
        "the next best if the best is too heavy",
    ],
)  # fmt: skip
def test_which_pair_comes_together_and_where(cluster, homes, loads, flows, parts, join):
    assert best_join(cluster(homes, loads, flows, score_factor=0.1), parts=parts) == join


@pytest.mark.parametrize(
    ("changes", "join"),
    [
        ({"removing": [False, True]}, Join(mover=1, anchor=0, node=0)),
        ({"removing": [True, False]}, Join(mover=0, anchor=1, node=1)),
        ({"pinned": [True, False]}, Join(mover=1, anchor=0, node=0)),
        ({"pinned": [True, True]}, None),
        ({"max_migrations": 1}, None),  # their union could never be moved again
        ({"max_migrations": 0}, None),
        ({"load": [20.0, 10.0]}, None),  # their union is above maxPL
        ({"usage": [[2.0, 1.0]], "limit": [[3.0, 2.0]]}, Join(mover=1, anchor=0, node=0)),
        ({"usage": [[2.0, 2.0]], "limit": [[3.0, 3.0]]}, None),
    ],
)
def test_rules_turn_a_join_round_or_forbid_it(cluster, changes, join):
    given = {"load": [3.0, 2.0]} | changes
    problem = cluster([0, 1], 1, [(0, 1, 50.0)], score_factor=0.5, nodes=2, **given)
    assert best_join(problem) == join


def test_ties_are_chosen_by_the_seed(cluster):
    problem = cluster([0, 1, 0, 1], 1, [(0, 1, 50.0), (2, 3, 50.0)], score_factor=0.5)
    found = {best_join(problem, seed=seed) for seed in range(20)}
    assert {join.mover // 2 for join in found} == {0, 1}
    assert best_join(problem, seed=4) == best_join(problem, seed=4)


# ---- many pairs per round: what a move does is exact, and the integer program finds what trying everything finds


quick = settings(max_examples=40)
few = situations(nodes=(2, 3), key_groups=(2, 6), scored=True)


def question(problem, target=2.0, price=0.05):
    """The selection of one round, and who asks."""
    evaluator = PlanEvaluator(problem, problem.balance.home, price)
    pairs = scored_pairs(problem)
    parts = parts_of(problem.balance, parts_to_keep(problem.balance, pairs, problem.max_partition_load, 0))
    largest = problem.max_partition_load
    joining = Joining(
        evaluator=evaluator, pairs=pairs, tied=pairs, parts=parts, max_partition_load=largest, levelled=None
    )
    weights = Weights(target=target, ceiling=max(10.0, target), penalty=20.0, levelling=0.01)
    return evaluator, parts, joining.selection(weights)


def load_distance(selection, chosen):
    """After the chosen options, node by node."""
    options, loads = selection.options, selection.deviations * selection.capacity
    for option in np.flatnonzero(chosen):
        loads[selection.at[options.part[option]]] -= options.freed[option]
        loads[options.node[option]] += options.added[option]
    deviations = loads / selection.capacity
    deviations += (options.freed - options.added)[chosen].sum() / selection.capacity[selection.kept].sum()
    return max(0.0, *deviations, *-deviations[selection.kept])


def value(selection, chosen):
    return selection.gain[chosen].sum() - selection.weights.of(load_distance(selection, chosen))


def allowed(selection, chosen):
    """Whether every rule is kept."""
    part, node = selection.options.part[chosen].tolist(), selection.options.node[chosen].tolist()
    if len(set(part)) < len(part) or any(i in part and j in part for i, j in zip(*selection.rivals, strict=True)):
        return False
    if (selection.prices[:, part].sum(axis=1) > selection.allowances).any():
        return False
    change = np.zeros(selection.room.shape)
    for option, moved, target in zip(np.flatnonzero(chosen).tolist(), part, node, strict=True):
        change[:, target] += selection.arriving[:, option]
        change[:, selection.at[moved]] -= selection.leaving[:, option]
    return bool((change <= np.maximum(selection.room, 0.0)).all())


def expanded(selection, parts, chosen):
    at = selection.at.copy()
    at[selection.options.part[chosen]] = selection.options.node[chosen]
    return parts.expand(at)


def every_choice(selection):
    """All allowed choices, the dumb way; None where there are too many."""
    by_part = {}
    for option, part in enumerate(selection.options.part.tolist()):
        by_part.setdefault(part, [None]).append(option)
    if np.prod([len(options) for options in by_part.values()]) > 3_000:
        return None
    choices = []
    for options in product(*by_part.values()):
        chosen = np.zeros(len(selection.options), bool)
        chosen[[option for option in options if option is not None]] = True
        if allowed(selection, chosen):
            choices.append(chosen)
    return choices


@given(few)
@settings(max_examples=100)
def test_what_a_choice_is_worth_is_what_the_whole_cluster_says(cluster, situation):
    homes, loads, flows, rules = situation
    evaluator, parts, selection = question(cluster(homes, loads, flows, **rules))
    choices = every_choice(selection)
    nothing = np.zeros(len(selection.options), bool)
    base = evaluator.value(evaluator.start, selection.weights) - value(selection, nothing)
    for chosen in (choices or [])[:40]:
        allocation = expanded(selection, parts, chosen)
        # Every flow is scored here (score_factor 0.5 of few flows) or its ends share a part, or only one end moves.
        moved = set(np.flatnonzero(allocation != evaluator.start).tolist())
        if any(i in moved and j in moved and parts.of[i] != parts.of[j] for i, j, _ in flows):
            continue
        assert load_distance(selection, chosen) == pytest.approx(evaluator.load_distance(allocation), abs=1e-9)
        assert value(selection, chosen) + base == pytest.approx(
            evaluator.value(allocation, selection.weights), abs=1e-7
        )


@given(few)
@quick
def test_the_integer_program_finds_the_best_choice_of_all(cluster, situation):
    homes, loads, flows, rules = situation
    _, _, selection = question(cluster(homes, loads, flows, **rules))
    choices = every_choice(selection)
    if choices is None or not len(selection.options):
        return
    best = max(value(selection, chosen) for chosen in choices)
    greedy = choose_greedily(selection, Never())
    found = optimise(selection, greedy, seed=0, work=5.0)
    assert allowed(selection, greedy)
    assert allowed(selection, found)
    assert value(selection, greedy) >= value(selection, np.zeros_like(greedy))
    assert value(selection, found) == pytest.approx(best, abs=1e-3)


def test_two_that_talk_much_do_not_both_move(cluster):
    problem = cluster([0, 1, 2], 5, [(0, 1, 50.0)], score_factor=0.5)
    _, _, selection = question(problem, target=0.0)
    both = np.isin(selection.options.part, [0, 1]) & (selection.options.node == 2)
    assert both.sum() == 2
    assert not allowed(selection, both)


def test_a_union_that_is_too_heavy_for_a_part_is_no_join(cluster):
    heavy = cluster([0, 1, 2], [15.0, 15, 1], [(0, 1, 50.0)], score_factor=0.5)
    assert not question(heavy)[2].options.joins.any()
    assert question(cluster([0, 1, 2], [12.0, 12, 1], [(0, 1, 50.0)], score_factor=0.5))[2].options.joins.sum() == 2


def test_leaving_a_marked_node_is_worth_more_than_any_pair(cluster):
    homes, flows = [0, 0, 1, 1, 2], [(0, 2, 50.0)]
    problem = cluster(homes, 5, flows, score_factor=0.5, removing=[False, False, True], max_migrations=2)
    _, _, selection = question(problem, target=20.0)
    leaving = selection.options.part == 4
    assert selection.gain[leaving].min() > selection.gain[~leaving].max()


@given(few)
@quick
def test_after_each_step_the_load_distance_is_that_of_the_plan_and_rivals_rest(cluster, arguments):
    homes, loads, flows, rules = arguments
    _, _, selection = question(cluster(homes, loads, flows, **rules))
    for option in range(len(selection.options)):
        climbing, chosen = _GreedyChoice(selection), np.zeros(len(selection.options), bool)
        climbing._take(option)
        chosen[option] = True
        assert climbing._distance() == pytest.approx(load_distance(selection, chosen), abs=1e-9)
        part, rivals = selection.options.part[option], [*zip(*selection.rivals, strict=True)]
        resting = {part, *(i for i, j in rivals if j == part), *(j for i, j in rivals if i == part)}
        assert not resting & set(selection.options.part[climbing._open].tolist())
