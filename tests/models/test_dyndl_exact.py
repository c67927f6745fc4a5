"""The exact tier: the optimum of small instances, bounds and determinism in between."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.dyndl.exact import ExactParams, options, solve_exact
from benchmarks.dyndl.generate import Experiment, generate
from tests.models.test_dyndl_properties import optimum, problems
from tests.narrow import of_type
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.problem import RemoteTaskCosts, ScheduleProblem, problem_of
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.instances.scheduling import AffineCost
from trimtab_models.solving import Deadline, Infeasible, Never, PlanStatus

quick = settings(max_examples=25)


@quick
@given(problems(servers=2))
def test_small_instances_are_solved_to_the_optimum(problem):
    result = solve_exact(problem, stop=Never())
    best = optimum(problem)
    assert isinstance(result, Infeasible) == (best == math.inf or not problem.usable.any())
    if isinstance(result, ScheduleResult):
        assert result.score.makespan == pytest.approx(best)
        assert (result.status, result.lower_bound) == (PlanStatus.OPTIMAL, result.score.makespan)


def test_the_optimum_of_table_2_is_3():
    loads = [[0.75, 0.5], [0.25, 2.0], [2.25, 14.0], [2.5, 3.75]]
    table_2 = ScheduleProblem(
        core_load=np.array(loads).ravel(),
        server_of=np.repeat(np.arange(4), 2),
        replicas=((0, 1), (1, 3), (1, 2), (1, 2), (2, 3)),
        costs=RemoteTaskCosts([AffineCost(a=1, b=0.5)] * 4),
    )
    result = of_type(ScheduleResult, solve_exact(table_2, stop=Never()))
    assert (result.score.makespan, result.status) == (3.0, PlanStatus.OPTIMAL)


def test_the_options_of_a_server_are_those_that_no_other_includes():
    cluster = ScheduleProblem(
        core_load=np.array([0.0, 0.5, math.inf]),
        server_of=np.zeros(3, np.int64),
        replicas=((0,),) * 9,
        costs=RemoteTaskCosts([AffineCost(a=1, b=0.5)]),
    )
    found = [(option.remote, option.local) for option in options(cluster, 0, 3.0, 3)]
    assert found == [(2, 1), (1, 4), (0, 5)]  # three remote tasks of 2.5 take two cores until 5


def middling(seed: int) -> ScheduleProblem:
    return problem_of(generate(Experiment(tasks=60, servers=12, core_num=4, beta=40, theta=0.5), seed=seed))


def test_between_the_cheap_bound_and_the_makespan_of_dyndl_off():
    first, result = solve_offline(middling(1), stop=Never()), solve_exact(middling(1), stop=Never())
    assert isinstance(first, ScheduleResult)
    assert isinstance(result, ScheduleResult)
    assert first.lower_bound <= result.lower_bound <= result.score.makespan <= first.score.makespan
    assert result.status is PlanStatus.OPTIMAL
    again = of_type(ScheduleResult, solve_exact(middling(1), stop=Never()))
    assert (again.core == result.core).all()


@pytest.mark.parametrize("effort", [0.0, 0.001])
def test_without_effort_it_is_dyndl_off(effort):
    first = solve_offline(middling(2), stop=Never())
    result = solve_exact(middling(2), stop=Never(), params=ExactParams(effort=effort))
    assert isinstance(first, ScheduleResult)
    assert isinstance(result, ScheduleResult)
    assert result.lower_bound >= first.lower_bound
    assert result.score.makespan <= first.score.makespan


def test_cut_short_it_returns_what_it_has():
    asked = iter(range(30))
    result = of_type(ScheduleResult, solve_exact(middling(3), stop=Deadline(lambda: next(asked, 10**9), at_s=10**6)))
    assert result.lower_bound <= result.score.makespan
