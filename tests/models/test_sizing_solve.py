"""Sizing on situations that have a name: the paper's equations and algorithms, the bound, what goes beyond."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab_models.instances.sizing import CostedOperator, Machine, SizingInstance
from trimtab_models.instances.topology import Edge
from trimtab_models.sizing.paper import first_assignment, maximize_throughput
from trimtab_models.sizing.problem import max_rate, problem_of, use_of
from trimtab_models.sizing.solve import SizingParams, SizingResult, fluid_relaxation, solve, solve_round_robin
from trimtab_models.solving import Deadline, Infeasible, Never, PlanStatus

HEURISTIC = SizingParams(exact_work=0)


def operator(id_, cost, fixed=0.0, *, alpha=1.0, source=False, instances=None):
    """`cost` and `fixed` by machine type, or the same for the types a and b."""
    costs = cost if isinstance(cost, dict) else {"a": cost, "b": cost}
    fixeds = fixed if isinstance(fixed, dict) else {"a": fixed, "b": fixed}
    return CostedOperator(id=id_, alpha=alpha, cost=costs, fixed=fixeds, source=source, instances=instances)


def instance(operators, edges="", types="aa", *, rate=1.0, limit=None):
    """`edges`: "xy yz" are edges from x to y and from y to z; one machine per letter of `types`."""
    return SizingInstance(
        machines=tuple(Machine(id=f"m{at}", type=type_) for at, type_ in enumerate(types)),
        source_rate=rate,
        operators=tuple(operators),
        edges=tuple(Edge(source=pair[0], target=pair[1]) for pair in edges.split()),
        max_instances=limit,
    )


def planned(problem, params=HEURISTIC):
    result = solve(problem, stop=Never(), seed=0, params=params)
    assert isinstance(result, SizingResult)
    return result


def test_equation_7_cpu_is_cost_times_input_rate_plus_fixed_cost():
    problem = problem_of(instance([operator("s", 0.25, 3, source=True)]))
    assert use_of(problem, np.array([[2, 1]]), 60).tolist() == [[0.25 * 40 + 6, 0.25 * 20 + 3]]


def test_equation_8_outputs_are_replicated_split_evenly_and_add_up():
    diamond = [
        operator("s", 1, source=True, alpha=2), operator("x", 1, alpha=0.5), operator("y", 1, alpha=3), operator("z", 1)
    ]  # fmt: skip
    problem = problem_of(instance(diamond, "sx sy xz yz"))
    assert problem.relative.tolist() == [1, 2, 2, 7]
    assert problem.throughput == 12


def test_several_sources_scale_by_one_factor():
    star = [operator("s", 1, source=True), operator("t", 1, source=True, alpha=2), operator("x", 1)]
    assert problem_of(instance(star, "sx tx")).relative.tolist() == [1, 1, 3]


def test_first_assignment_takes_the_least_tcu_that_has_room():
    job = [operator("s", {"a": 0.6, "b": 0.5}, source=True), operator("x", {"a": 0.6, "b": 0.5})]
    problem = problem_of(instance(job, "sx", types="ab"))
    assert first_assignment(problem, 120).tolist() == [[0, 1], [1, 0]]
    assert first_assignment(problem, 80).tolist() == [[0, 1], [0, 1]]
    assert first_assignment(problem, 300) is None


def test_maximize_throughput_adds_instances_of_the_hottest_operator():
    problem = problem_of(instance([operator("s", 0.1, source=True), operator("x", 1)], "sx", types="aaa"))
    placement = maximize_throughput(problem, 8, 10, Never())
    assert placement.sum(axis=1).tolist() == [1, 3]
    assert max_rate(problem, placement) > 200  # of 272.7 that the fluid bound allows


def test_maximize_throughput_stops_at_the_limit_of_instances():
    problem = problem_of(instance([operator("s", 0.1, source=True), operator("x", 1)], "sx", types="aaa"))
    assert maximize_throughput(problem, 8, 2, Never()).sum() == 2


def test_a_first_assignment_without_room_is_tried_at_lower_rates():
    problem = problem_of(instance([operator("s", 1, source=True), operator("x", 1)], "sx", rate=1e6))
    assert max_rate(problem, maximize_throughput(problem, 1e6, 4, Never())) > 50
    full = problem_of(instance([operator("s", 1, 60, source=True), operator("x", 1, 60)], "sx", types="a"))
    assert maximize_throughput(full, 8, 4, Never()) is None


def test_the_papers_rule_can_end_at_half_the_best_and_local_search_does_not():
    job = [operator("s", 0.2, 1, source=True), operator("x", {"a": 0.2, "b": 0.9}, 2)]
    problem = problem_of(instance(job, "sx", types="ab", limit=8))
    assert max_rate(problem, maximize_throughput(problem, 8, 8, Never())) == pytest.approx(242.5)
    best = planned(problem)
    assert best.source_rate == pytest.approx(490)  # x alone on the machine that suits it, s on the other
    assert (planned(problem, SizingParams()).source_rate, planned(problem, SizingParams()).status) == (
        best.source_rate,
        PlanStatus.OPTIMAL,
    )


def test_the_fluid_bound_is_all_cpu_over_the_cpu_of_a_tuple_where_nothing_is_fixed():
    problem = problem_of(instance([operator("s", 0.5, source=True), operator("x", 1.5)], "sx", types="aa"))
    fluid = fluid_relaxation(problem)
    assert fluid.bound == pytest.approx(100, rel=1e-6)
    assert fluid.bound >= 100
    assert fluid.shares.sum(axis=1) == pytest.approx([1, 1])


def test_the_fluid_bound_counts_at_least_one_instance_of_each_operator():
    problem = problem_of(instance([operator("s", 1, 10, source=True), operator("x", 1, 30)], "sx", types="a"))
    assert fluid_relaxation(problem).bound == pytest.approx(30, rel=1e-6)


def test_an_instance_carries_no_more_than_one_machine_even_in_the_fluid_plan():
    problem = problem_of(instance([operator("s", 1, source=True)], types="aaaa", limit=2))
    assert fluid_relaxation(problem).bound == pytest.approx(200, rel=1e-6)


def test_the_exact_model_finds_and_proves_the_best():
    job = [operator("s", 0.3, 4, source=True), operator("x", {"a": 1, "b": 0.7}, 3), operator("y", 0.5, 2)]
    problem = problem_of(instance(job, "sx sy", types="aab", limit=9))
    result = planned(problem, SizingParams())
    assert (result.status, result.gap < 3e-5) == (PlanStatus.OPTIMAL, True)
    assert planned(problem).source_rate <= result.source_rate <= result.bound <= result.fluid_bound


def test_machines_that_are_alike_form_a_class():
    problem = problem_of(instance([operator("s", {"a": 1, "b": 2}, source=True)], types="abab"))
    assert [group.tolist() for group in problem.classes] == [[0, 2], [1, 3]]


def with_memory(job, per_instance, capacity):
    """A second row: bytes per instance of each operator, bytes per machine."""
    operators, machines = len(job.operators), len(job.machines)
    return problem_of(
        job,
        per_rate=np.zeros((1, operators, machines)),
        per_instance=np.repeat(np.array(per_instance, float)[None, :, None], machines, axis=2),
        capacity=np.array([capacity], float),
    )


def test_memory_is_a_further_row_that_no_plan_exceeds():
    job = instance([operator("s", 0.1, 1, source=True), operator("x", 1, 1)], "sx", types="aaa", limit=12)
    problem = with_memory(job, per_instance=[1e9, 4e9], capacity=[5e9, 4e9, 1e9])
    result = planned(problem, SizingParams())
    assert (result.use[1] <= [5e9, 4e9, 1e9]).all()
    assert result.placement[1].tolist() == [1, 1, 0]
    assert result.source_rate < 0.8 * planned(problem_of(job), SizingParams()).source_rate


def test_network_is_a_further_row_in_proportion_to_rates():
    job = instance([operator("s", 0.1, source=True)], types="aa", limit=4)
    megabits = problem_of(
        job,
        per_rate=np.full((1, 1, 2), 2.0),
        per_instance=np.zeros((1, 1, 2)),
        capacity=np.array([[1000.0, 1000.0]]),
    )
    assert planned(megabits, SizingParams()).source_rate == pytest.approx(1000)  # CPU alone would allow 2000


def test_round_robin_is_equation_7_at_its_largest_rate():
    job = [operator("s", 1, source=True, instances=1), operator("x", 1, instances=2)]
    result = solve_round_robin(problem_of(instance(job, "sx", types="aa")), stop=Never(), seed=0)
    assert (result.assignment, result.placement.tolist()) == ((0, 1, 0), [[1, 0], [1, 1]])
    assert result.source_rate == pytest.approx(100 / 1.5)


def test_a_stop_leaves_a_plan():
    job = [operator("s", 0.1, 1, source=True), operator("x", {"a": 1, "b": 0.4}, 2)]
    problem = problem_of(instance(job, "sx", types="aabb", limit=12))
    ticks = iter(range(10**9))
    result = solve(problem, stop=Deadline(lambda: float(next(ticks)), 5.0), seed=0)
    assert isinstance(result, SizingResult)
    assert 0 < result.source_rate <= planned(problem, SizingParams()).source_rate


def test_a_stop_ends_the_exact_model_while_it_searches():
    random = np.random.default_rng(1)
    costs = [{"a": random.uniform(0.1, 1), "b": random.uniform(0.1, 1)} for _ in range(5)]
    job = [operator(f"o{at}", cost, 3, source=True) for at, cost in enumerate(costs)]
    problem = problem_of(instance(job, types="aaaabbbbab", limit=40))
    asked = []

    def stop(last=np.inf):
        asked.append(1)
        return len(asked) > last

    before = solve(problem, stop=stop, seed=0, params=HEURISTIC)
    until = len(asked) + 5  # then the exact model has been asked, and left alone for a moment
    asked.clear()
    endless = SizingParams(exact_work=1e6, exact_variables=10**6)
    result = solve(problem, stop=lambda: stop(until), seed=0, params=endless)
    assert result.source_rate >= before.source_rate


def test_a_problem_that_is_not_whole_cannot_exist():
    job = instance([operator("s", 1, source=True)])
    with pytest.raises(ValueError, match="further resources"):
        problem_of(job, capacity=np.ones((1, 2)))
    with pytest.raises(ValueError, match="capacity above 0"):
        with_memory(job, per_instance=[1], capacity=[1, 0])
    with pytest.raises(ValueError, match="its use of every resource"):
        replace(problem_of(job), relative=np.ones(2))


def test_unlimited_instances_are_no_reason_for_a_proof():
    problem = problem_of(instance([operator("s", 1, source=True)], types="aa", rate=199))
    result = planned(problem, SizingParams())
    assert result.source_rate == pytest.approx(200)
    assert isinstance(
        solve(problem_of(instance([operator("s", 1, source=True)], rate=201)), stop=Never(), seed=0), Infeasible
    )
