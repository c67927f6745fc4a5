"""LTFPA, HTA and BAR: schedules that hold what every schedule must; no figures are asserted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.dyndl.generate import Experiment, generate
from benchmarks.dyndl.reconstructions import LongestQueuePolicy, solve_bar, solve_hta, solve_ltfpa
from tests.models.test_dyndl_properties import problems
from tests.narrow import of_type
from trimtab_models.dyndl.online import Start
from trimtab_models.dyndl.problem import RemoteTaskCosts, ScheduleProblem, problem_of
from trimtab_models.dyndl.result import ScheduleResult, evaluate
from trimtab_models.instances.scheduling import AffineCost
from trimtab_models.solving import Deadline, Infeasible, Never

SOLVERS = [solve_ltfpa, solve_hta, solve_bar]
quick = settings(max_examples=30)


@pytest.mark.parametrize("solver", SOLVERS)
@quick
@given(problems(servers=3, cores=3, tasks=12))
def test_a_schedule_is_finite_and_worth_what_it_says(solver, problem):
    result = solver(problem, stop=Never())
    if isinstance(result, ScheduleResult):
        assert result.lower_bound <= result.score.makespan < math.inf
        assert result.score.makespan == evaluate(problem, result.core).makespan
        again = of_type(ScheduleResult, solver(problem, stop=Never()))
        assert (again.core == result.core).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_usable_core_is_infeasible(solver):
    none = ScheduleProblem(
        core_load=np.array([math.inf]),
        server_of=np.array([0]),
        replicas=((0,),),
        costs=RemoteTaskCosts([AffineCost(a=1, b=1)]),
    )
    assert solver(none, stop=Never()) == Infeasible(reason="no usable core")


@pytest.mark.parametrize("solver", [solve_hta, solve_bar])
def test_cut_short_there_is_a_schedule(solver):
    problem = problem_of(generate(Experiment(tasks=50, servers=10, core_num=4), seed=1))
    of_type(ScheduleResult, solver(problem, stop=Deadline(lambda: 1.0, at_s=0.0)))


def test_ltfpa_joins_the_queue_that_serves_first_and_helps_the_one_that_lasts_longest():
    problem = ScheduleProblem(
        core_load=np.array([0.0, 9.0, 9.5]),
        server_of=np.arange(3),
        replicas=((1, 2), (1, 2), (1,), (1,)),
        costs=RemoteTaskCosts([AffineCost(a=1.5, b=0.5)] * 3),
    )
    policy = LongestQueuePolicy(problem)
    assert policy.decide(0.0, 0, 0.0) == Start(task=0, local=False)  # of the second server, which would last until 12
    assert not isinstance(policy.decide(8.6, 0, 8.6), Start)  # until 11: no later than a remote task started now
    assert [policy.take_local(server) for server in (1, 2, 1, 1)] == [2, 1, 3, None]


def test_bar_stops_where_hta_goes_on():
    problem = problem_of(generate(Experiment(tasks=100, servers=10, core_num=8, beta=1_000), seed=2))
    hta, bar = solve_hta(problem, stop=Never()), solve_bar(problem, stop=Never())
    assert isinstance(hta, ScheduleResult)
    assert isinstance(bar, ScheduleResult)
    assert bar.score.remote_tasks <= hta.score.remote_tasks
