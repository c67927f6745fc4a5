"""What the benchmarks of DynDL hold beside it: an exact solver, the reconstructions LTFPA, HTA and BAR, a generator."""

import math

import pytest
from hypothesis import given, settings

from benchmarks.dyndl.exact import ExactParams, options, solve_exact
from benchmarks.dyndl.generate import Experiment, generate
from benchmarks.dyndl.reconstructions import LongestQueuePolicy, solve_bar, solve_hta, solve_ltfpa
from tests.models.test_dyndl_properties import optimum, problems
from tests.models.test_dyndl_schedules import TABLE_2
from tests.models.test_dyndl_schedules import problem as by_rows
from tests.narrow import of_type
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.online import Start
from trimtab_models.dyndl.problem import problem_of
from trimtab_models.dyndl.result import ScheduleResult, evaluate
from trimtab_models.instances.reading import instance_in
from trimtab_models.instances.scheduling import AffineCost, SchedulingInstance
from trimtab_models.solving import Deadline, Infeasible, Never, PlanStatus

RECONSTRUCTIONS = [solve_ltfpa, solve_hta, solve_bar]
quick = settings(max_examples=25)


def schedule(solver, problem, **arguments):
    return of_type(ScheduleResult, solver(problem, **{"stop": Never()} | arguments))


def generated(seed, **changes):
    return problem_of(generate(Experiment(**{"tasks": 60, "servers": 12, "core_num": 4} | changes), seed=seed))


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
    result = schedule(solve_exact, problem_of(instance_in(TABLE_2, SchedulingInstance)))
    assert (result.score.makespan, result.status) == (3.0, PlanStatus.OPTIMAL)


def test_the_options_of_a_server_are_those_that_no_other_includes():
    cluster = by_rows([[0.0, 0.5, math.inf]], [(0,)] * 9, [AffineCost(a=1, b=0.5)])
    found = [(option.remote, option.local) for option in options(cluster, 0, 3.0, 3)]
    assert found == [(2, 1), (1, 4), (0, 5)]  # three remote tasks of 2.5 take two cores until 5


@pytest.mark.parametrize("effort", [None, 0.0, 0.001])
def test_between_the_cheap_bound_and_the_makespan_of_dyndl_off(effort):
    problem = generated(1, beta=40, theta=0.5)
    params = ExactParams() if effort is None else ExactParams(effort=effort)
    first, result, again = (
        schedule(solve_offline, problem),
        *(schedule(solve_exact, problem, params=params) for _ in range(2)),
    )
    assert first.lower_bound <= result.lower_bound <= result.score.makespan <= first.score.makespan
    assert effort is not None or result.status is PlanStatus.OPTIMAL
    assert (again.core == result.core).all()


def test_cut_short_it_returns_what_it_has():
    asked = iter(range(30))
    problem = generated(3, beta=40, theta=0.5)
    result = schedule(solve_exact, problem, stop=Deadline(lambda: next(asked, 10**9), at_s=10**6))
    assert result.lower_bound <= result.score.makespan
    for solver in (solve_hta, solve_bar):
        schedule(solver, problem, stop=Deadline(lambda: 1.0, at_s=0.0))


@pytest.mark.parametrize("solver", RECONSTRUCTIONS)
@quick
@given(problems(servers=3, cores=3, tasks=12))
def test_a_reconstructed_schedule_is_finite_and_worth_what_it_says(solver, problem):
    """No figures are asserted."""
    result = solver(problem, stop=Never())
    if not problem.usable.any():
        assert result == Infeasible(reason="no usable core")
    if isinstance(result, ScheduleResult):
        assert result.lower_bound <= result.score.makespan < math.inf
        assert result.score.makespan == evaluate(problem, result.core).makespan
        assert (schedule(solver, problem).core == result.core).all()


def test_ltfpa_joins_the_queue_that_serves_first_and_helps_the_one_that_lasts_longest():
    problem = by_rows([[0.0], [9.0], [9.5]], [(1, 2), (1, 2), (1,), (1,)], [AffineCost(a=1.5, b=0.5)] * 3)
    policy = LongestQueuePolicy(problem)
    assert policy.decide(0.0, 0, 0.0) == Start(task=0, local=False)  # of the second server, which would last until 12
    assert not isinstance(policy.decide(8.6, 0, 8.6), Start)  # until 11: no later than a remote task started now
    assert [policy.take_local(server) for server in (1, 2, 1, 1)] == [2, 1, 3, None]


def test_bar_stops_where_hta_goes_on():
    problem = generated(2, tasks=100, servers=10, core_num=8, beta=1_000)
    hta, bar = schedule(solve_hta, problem), schedule(solve_bar, problem)
    assert bar.score.remote_tasks <= hta.score.remote_tasks


def test_settlement_9_the_generator_of_the_papers_experiments():
    experiment = Experiment(tasks=200, servers=10, core_num=4, alpha=5, beta=3, theta=2.0)
    instance = generate(experiment, seed=1)
    for number, server in enumerate(instance.servers):
        assert len(server.cores) == 4
        assert all(load == int(load) and 0 <= load < 5 * number + 3 for load in server.cores)
        assert [server.g.at(n) for n in (1, 4, 5)] == [3.0, 9.0, 9.0]
    assert {len(set(task.replicas)) for task in instance.tasks} == {3}
    assert {len(task.replicas) for task in generate(Experiment(servers=2), seed=1).tasks} == {2}
    assert instance == generate(experiment, seed=1)
