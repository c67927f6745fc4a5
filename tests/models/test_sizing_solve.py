"""Sizing: the paper's equations and algorithms, what goes beyond, fitted coefficients, and random jobs."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.narrow import of_type
from trimtab_models.instances.reading import instance_in
from trimtab_models.instances.sizing import CostedOperator, Machine, SizingInstance
from trimtab_models.instances.topology import Edge
from trimtab_models.sizing.fit import Fit, NotFitted, fit_coefficients
from trimtab_models.sizing.paper import first_assignment, maximize_throughput
from trimtab_models.sizing.problem import max_rate, problem_of
from trimtab_models.sizing.solve import SizingParams, SizingResult, fluid_relaxation, solve
from trimtab_models.solving import Infeasible, Never, PlanDocument, PlanStatus, method_named

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
    return of_type(SizingResult, solve(problem, stop=Never(), seed=0, params=params))


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


def test_machines_that_are_alike_form_a_class():
    problem = problem_of(instance([operator("s", {"a": 1, "b": 2}, source=True)], types="abab"))
    assert [group.tolist() for group in problem.classes] == [[0, 2], [1, 3]]


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
    problem = problem_of(instance([operator("s", 1, source=True)]))
    with pytest.raises(ValueError, match="capacity above 0"):
        replace(problem, capacity=np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="its use of every machine"):
        replace(problem, relative=np.ones(2))


def test_unlimited_instances_are_no_reason_for_a_proof():
    problem = problem_of(instance([operator("s", 1, source=True)], types="aa", rate=199))
    result = planned(problem, SizingParams())
    assert result.source_rate == pytest.approx(200)
    assert isinstance(
        solve(problem_of(instance([operator("s", 1, source=True)], rate=201)), stop=Never(), seed=0), Infeasible
    )


@settings(max_examples=50)
@given(
    st.sampled_from([0, 0.05, 2]),
    st.sampled_from([0, 0.5, 30]),
    st.lists(st.floats(0, 1000), min_size=2, max_size=20, unique=True),
)
def test_samples_on_a_line_give_the_line(cost, fixed, rates):
    rates = sorted({round(rate, 1) for rate in rates} | {0.0, 1000.0})
    fit = of_type(Fit, fit_coefficients(rates, [cost * rate + fixed for rate in rates]))
    assert (fit.cost, fit.fixed) == (pytest.approx(cost, abs=1e-7), pytest.approx(fixed, abs=1e-5))
    assert fit.accuracy > 0.999
    assert fit.doubted == 0


def measured(seed, outliers):
    """300 windows of an operator with e = 0.12, MET = 4 and 0.8 pp of noise; some with a collector's 30 pp on top."""
    random = np.random.default_rng(seed)
    rates = random.uniform(50, 600, 300)
    cpu = 0.12 * rates + 4 + random.normal(0, 0.8, 300)
    cpu[random.choice(300, outliers, replace=False)] += 30
    return rates, cpu


@pytest.mark.parametrize("outliers", [0, 30, 60])
def test_outliers_bend_the_line_far_less_than_least_squares(outliers):
    rates, cpu = measured(3, outliers)
    fit = fit_coefficients(rates, cpu)
    plain = np.polyfit(rates, cpu, 1)
    assert abs(fit.cost - 0.12) < 0.002
    assert abs(fit.fixed - 4) < 1.1
    assert not outliers or abs(fit.fixed - 4) < 0.5 * abs(plain[1] - 4)
    assert fit.doubted >= outliers


def test_section_6_2_the_claim_of_92_percent_is_checked_against_the_fits_own_error():
    rates, cpu = measured(4, 0)
    fit = fit_coefficients(rates, cpu)
    errors = np.abs(fit.cost * rates + fit.fixed - cpu)
    assert fit.accuracy == pytest.approx(1 - errors.sum() / cpu.sum())
    assert fit.accuracy > 0.92


def test_neither_coefficient_is_negative():
    through_zero = fit_coefficients([10, 20, 30], [4, 10, 16])  # the line would start at -2
    assert (through_zero.fixed, through_zero.cost) == (0, pytest.approx(0.5, abs=0.05))
    falling = fit_coefficients([10, 20, 30], [6, 5, 4])
    assert (falling.cost, falling.fixed) == (0, pytest.approx(5))


@pytest.mark.parametrize("rates", [[], [5], [5, 5, 5]])
def test_one_rate_cannot_tell_the_two_apart(rates):
    assert isinstance(fit_coefficients(rates, [3.0] * len(rates)), NotFitted)


@pytest.mark.parametrize(("rates", "cpu"), [([1, 2], [1]), ([1, float("nan")], [1, 2]), ([1, 2], [1, float("inf")])])
def test_samples_that_are_no_samples_are_refused(rates, cpu):
    with pytest.raises(ValueError, match="finite"):
        fit_coefficients(rates, cpu)


quick = settings(max_examples=40)
TYPES = ("a", "b")


@st.composite
def documents(draw: st.DrawFn, *, operators: int = 4, machines: int = 4, spare: int = 8):
    """A job whose first operator is a source, others perhaps too; every other one is fed by an earlier one."""
    count = draw(st.integers(1, operators))
    names = [f"o{at}" for at in range(count)]
    sources = {"o0"} | {name for name in names if draw(st.sampled_from([True, False, False, False]))}
    edges = []
    for at, name in enumerate(names):
        if name not in sources:
            feeders = draw(st.lists(st.sampled_from(names[:at]), min_size=1, max_size=2, unique=True))
            edges += [{"from": feeder, "to": name} for feeder in feeders]
    number = st.floats(0.05, 1).map(lambda value: round(value, 3))
    return {
        "version": 1,
        "machines": [
            {"id": f"m{at}", "type": draw(st.sampled_from(TYPES))} for at in range(draw(st.integers(1, machines)))
        ],
        "source_rate": draw(st.sampled_from([0.5, 8.0, 60.0])),
        "max_instances": count + draw(st.integers(0, spare)),
        "operators": [
            {
                "id": name,
                "source": name in sources,
                "alpha": draw(st.sampled_from([0, 0.5, 1, 2])),
                "cost": {type_: draw(number) for type_ in TYPES},
                "fixed": {type_: draw(st.sampled_from([0, 1, 5.5, 40])) for type_ in TYPES},
                "instances": 1,
            }
            for name in names
        ],
        "edges": edges,
    }


def rates_of(document):
    """Input rate of every operator per unit of source rate; operators come after those that feed them."""
    rates = {}
    for operator in document["operators"]:
        fed = [edge["from"] for edge in document["edges"] if edge["to"] == operator["id"]]
        alphas = {each["id"]: each["alpha"] for each in document["operators"]}
        rates[operator["id"]] = 1 if operator["source"] else sum(alphas[each] * rates[each] for each in fed)
    return rates


def utilisation_of(document, plan):
    """Equation 7, instance by instance."""
    types = {machine["id"]: machine["type"] for machine in document["machines"]}
    operators = {operator["id"]: operator for operator in document["operators"]}
    rates, used = rates_of(document), dict.fromkeys(types, 0.0)
    for name, machine in plan["assignment"].items():
        operator = operators[name.rsplit("#", 1)[0]]
        input_rate = rates[operator["id"]] * plan["source_rate"] / plan["instances"][operator["id"]]
        used[machine] += operator["cost"][types[machine]] * input_rate + operator["fixed"][types[machine]]
    return used


def check(document, plan):
    """The contract's rules, from the two documents alone."""
    names = {f"{id_}#{number}" for id_, count in plan["instances"].items() for number in range(count)}
    assert set(plan["assignment"]) == names
    assert all(plan["instances"][operator["id"]] >= 1 for operator in document["operators"])
    assert len(names) <= document["max_instances"]
    assert plan["throughput"] == pytest.approx(plan["source_rate"] * sum(rates_of(document).values()))
    used = utilisation_of(document, plan)
    assert plan["utilisation"] == pytest.approx(used, abs=1e-6)
    assert max(used.values()) <= 100 + 1e-9
    assert plan["source_rate"] <= plan["fluid_bound"]


def answer(document, method):
    found = method_named(method)
    return found.solve(found.read(json.dumps(document).encode()), Never(), 0)


@quick
@given(documents())
def test_every_plan_keeps_the_contract_and_is_no_worse_than_round_robin_on_its_counts(document):
    plan = answer(document, "hetero")
    assume(isinstance(plan, PlanDocument))
    check(document, plan.document)
    assert plan.document["source_rate"] >= document["source_rate"] * (1 - 1e-9) or plan.warnings
    for operator in document["operators"]:
        operator["instances"] = plan.document["instances"][operator["id"]]
    dealt = answer(document, "round-robin")
    if isinstance(dealt, PlanDocument):
        check(document, dealt.document)
        assert dealt.document["source_rate"] <= plan.document["source_rate"]
        names = list(dealt.document["assignment"].values())
        machines = [machine["id"] for machine in document["machines"]]
        assert names == [machines[at % len(machines)] for at in range(len(names))]


def placements(problem):
    """Every placement within the limit."""
    rows = [row for row in product(range(problem.max_instances + 1), repeat=len(problem.machines)) if sum(row)]
    for combination in product(rows, repeat=len(problem.operators)):
        placement = np.array(combination)
        if placement.sum() <= problem.max_instances:
            yield placement


tiny = documents(operators=2, machines=2, spare=3)


@quick
@given(tiny)
def test_tiny_jobs_are_solved_to_the_optimum_of_all_placements(document):
    problem = problem_of(instance_in(document, SizingInstance))
    optimum = max(max_rate(problem, placement) for placement in placements(problem))
    assume(abs(optimum / document["source_rate"] - 1.0) > 1e-9)  # at the edge rounding decides
    result = solve(problem, stop=Never(), seed=0)
    if optimum < document["source_rate"]:
        assert isinstance(result, Infeasible)
    else:
        assert isinstance(result, SizingResult)
        assert result.source_rate == pytest.approx(optimum, rel=2e-5)
        assert optimum <= result.bound <= result.fluid_bound
        assert result.status is PlanStatus.OPTIMAL


@quick
@given(tiny)
def test_without_the_exact_model_tiny_jobs_are_at_least_solved_well(document):
    document["source_rate"] = 1e-3
    problem = problem_of(instance_in(document, SizingInstance))
    optimum = max(max_rate(problem, placement) for placement in placements(problem))
    assume(optimum > 0.01)
    result = of_type(SizingResult, solve(problem, stop=Never(), seed=0, params=SizingParams(exact_work=0)))
    assert 0.85 * optimum <= result.source_rate <= optimum * (1 + 1e-9)
    assert optimum <= result.fluid_bound
