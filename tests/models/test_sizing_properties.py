"""Sizing on random jobs: the result document against a checker of its own, tiny ones against all placements."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trimtab_models.instances.sizing import decode_sizing
from trimtab_models.sizing.problem import max_rate, problem_of
from trimtab_models.sizing.solve import SizingParams, SizingResult, solve
from trimtab_models.solving import Infeasible, Never, PlanDocument, PlanStatus, method_named

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
    problem = problem_of(decode_sizing(document))
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
    problem = problem_of(decode_sizing(document))
    optimum = max(max_rate(problem, placement) for placement in placements(problem))
    assume(optimum > 0.01)
    result = solve(problem, stop=Never(), seed=0, params=SizingParams(exact_work=0))
    assert isinstance(result, SizingResult)
    assert 0.85 * optimum <= result.source_rate <= optimum * (1 + 1e-9)
    assert optimum <= result.fluid_bound


@quick
@given(documents())
def test_the_same_seed_gives_the_same_plan(document):
    first, second = answer(document, "hetero"), answer(document, "hetero")
    assert first == second
