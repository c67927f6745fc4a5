"""Many pairs per round: what a move does is exact, and the integer program finds what trying everything finds."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.albic.joining import Joining, PlanEvaluator, Weights, _GreedyChoice, choose_greedily
from trimtab_models.albic.model import optimise
from trimtab_models.albic.parts import parts_of, parts_to_keep
from trimtab_models.albic.scores import scored_pairs
from trimtab_models.solving import Never
from trimtab_models.spared import Spared

quick = settings(max_examples=40)


@st.composite
def situations(draw):
    """Arguments of a small cluster: 2-3 nodes, 2-6 key groups, few flows, every rule now and then."""
    nodes, count = draw(st.integers(2, 3)), draw(st.integers(2, 6))

    def each(strategy, size):
        return draw(st.lists(strategy, min_size=size, max_size=size))

    pairs = draw(st.lists(st.sampled_from([(i, j) for i in range(count) for j in range(count) if i != j]), max_size=5))
    removing = each(st.sampled_from([False, False, False, True]), nodes)
    removing[draw(st.integers(0, nodes - 1))] = False
    rules = {"nodes": nodes, "removing": removing, "score_factor": 0.5}
    if draw(st.booleans()):
        rules |= {"serialise_cost": draw(st.sampled_from([0.01, 0.03])), "deserialise_cost": 0.02}
    if draw(st.booleans()):
        rules["pinned"] = each(st.sampled_from([False, False, True]), count)
    if draw(st.booleans()):
        rules["max_migrations"] = draw(st.integers(0, 4))
    if draw(st.booleans()):
        rules |= {"cost_bytes": each(st.sampled_from([1.0, 2.0, 3.5]), count), "max_cost_bytes": draw(st.floats(0, 9))}
    if draw(st.booleans()):
        rules["usage"] = [each(st.integers(0, 3).map(float), count)]
        rules["limit"] = [each(st.sampled_from([3.0, 6.0]), nodes)]
        if draw(st.booleans()):  # every other key group uses nothing on some node
            amount = np.array([[usage * (place % 2) for place, usage in enumerate(rules["usage"][0])]])
            places = np.array(each(st.integers(0, nodes - 1), count))
            rules["spared"] = Spared.of(np.arange(count), places, amount, (count, nodes))
    if draw(st.booleans()):
        rules["capacity"] = each(st.sampled_from([0.5, 1.0, 2.0]), nodes)
    homes = each(st.integers(0, nodes - 1), count)
    loads = each(st.floats(5, 15).map(lambda load: round(load, 2)), count)
    flows = [(i, j, float(draw(st.integers(1, 99)))) for i, j in pairs]
    return homes, loads, flows, rules


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


@given(situations())
@quick
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


@given(situations())
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


def test_no_option_leads_onto_a_marked_node_or_moves_what_is_pinned(cluster):
    problem = cluster(
        [0, 1, 2, 2],
        5,
        [(0, 1, 50.0), (2, 3, 9.0)],
        removing=[False, True, False],
        pinned=[True, False, False, True],
        score_factor=0.5,
    )
    _, _, selection = question(problem)
    assert not problem.balance.removing[selection.options.node].any()
    assert set(selection.options.part.tolist()) == {1}  # 2 is in one part with 3, which is pinned


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


@given(situations())
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
