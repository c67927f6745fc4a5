"""Restores whose targets are given: the slots are kept, each task runs once, and the end is near the optimum."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.dyndl.fitting import LocalRestore, RestoreSample, fit_cost, isotonic, network_prior
from trimtab_models.dyndl.given import GivenProblem, GivenSchedule, solve_given, with_costs
from trimtab_models.instances.scheduling import AffineCost, RemoteCost, TableCost

quick = settings(max_examples=80, deadline=None)
steps = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=4)
costs = steps.map(lambda each: TableCost(values=tuple(1.0 + sum(each[: n + 1]) for n in range(len(each)))))


@st.composite
def problems(draw: st.DrawFn, *, servers: int = 3, tasks: int = 12) -> GivenProblem:
    count, size = draw(st.integers(1, servers)), draw(st.integers(0, tasks))
    times = st.floats(0, 5, width=32)
    return GivenProblem(
        server=np.array(draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size)), np.int64),
        size=np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 2.5, 20.0]), min_size=size, max_size=size))),
        local=np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_),
        slots=np.array(draw(st.lists(st.integers(1, 4), min_size=count, max_size=count)), np.int64),
        costs=[draw(costs) for _ in range(count)],
        running=[draw(st.lists(times, max_size=3)) for _ in range(count)],
    )


def ends(problem: GivenProblem, found: GivenSchedule) -> list[float]:
    """When each task ends, by the model's formula."""
    rows = []
    for task, server in enumerate(problem.server.tolist()):
        remote = int((~problem.local[problem.server == server]).sum()) + len(problem.running[server])
        factor = 1.0 if problem.local[task] else problem.costs[server].at(min(int(found.slots[server]), remote))
        rows.append(float(found.start[task] + problem.size[task] * factor))
    return rows


@quick
@given(problems())
def test_never_more_than_the_slots_each_task_once_and_at_most_twice_the_bound(problem: GivenProblem) -> None:
    found = solve_given(problem)
    assert sorted(found.order.tolist()) == list(range(len(problem.server)))
    assert (found.slots <= problem.slots).all()
    finish = ends(problem, found)
    for task, server in enumerate(problem.server.tolist()):
        at = found.start[task]
        busy = sum(
            found.start[other] <= at < finish[other] - 1e-9
            for other, on in enumerate(problem.server.tolist())
            if on == server
        )
        assert busy <= found.slots[server]
    assert found.makespan == pytest.approx(max(finish, default=0.0))
    assert found.lower_bound <= found.makespan + 1e-9
    assert found.makespan <= 2.0 * found.lower_bound + 1e-9


@quick
@given(problems(servers=1, tasks=4))
def test_nothing_is_below_the_bound_and_nothing_beats_half_of_what_is_found(problem: GivenProblem) -> None:
    best = optimum(problem)
    found = solve_given(problem)
    assert found.lower_bound <= best + 1e-6
    assert best - 1e-6 <= found.makespan <= 2.0 * best + 1e-6


def optimum(problem: GivenProblem) -> float:
    """The least makespan over all numbers of slots and all assignments to them."""
    tasks = len(problem.server)
    if not tasks:
        return 0.0
    best = math.inf
    running = sorted(problem.running[0], reverse=True)
    remote = int((~problem.local).sum()) + len(running)
    for slots in range(1, min(int(problem.slots[0]), tasks + len(running)) + 1):
        begin = [0.0] * slots
        for left in running:
            begin[begin.index(min(begin))] += left
        factor = problem.costs[0].at(max(1, min(slots, remote)))
        takes = [float(s) * (1.0 if local else factor) for s, local in zip(problem.size, problem.local, strict=True)]
        for slot_of in itertools.product(range(slots), repeat=tasks):
            loads = list(begin)
            for slot, seconds in zip(slot_of, takes, strict=True):
                loads[slot] += seconds
            best = min(best, max(loads[slot] for slot in slot_of))
    return best


@quick
@given(problems(), costs)
def test_under_other_costs_the_slots_stay_and_the_bound_holds(problem: GivenProblem, cost: TableCost) -> None:
    found = solve_given(problem)
    told = with_costs(problem, found, [cost] * len(problem.slots))
    assert told.slots.tolist() == found.slots.tolist()
    assert told.lower_bound <= told.makespan + 1e-9


def one_server(*sizes: float, slots: int = 4, cost: RemoteCost, local: int = 0) -> GivenProblem:
    """The first `local` tasks are local."""
    return GivenProblem(
        server=np.zeros(len(sizes), np.int64),
        size=np.array(sizes),
        local=np.arange(len(sizes)) < local,
        slots=np.array([slots]),
        costs=[cost],
        running=[()],
    )


def test_restores_that_do_not_slow_each_other_down_use_all_slots() -> None:
    found = solve_given(one_server(1, 1, 1, 1, cost=TableCost(values=(2.0,))))
    assert (found.slots.tolist(), found.makespan) == ([4], 2.0)


def test_restores_that_share_one_link_go_one_after_another() -> None:
    found = solve_given(one_server(1, 1, 1, 1, cost=TableCost(values=(1.0, 2.0, 3.0, 4.0))))
    assert (found.slots.tolist(), found.makespan) == ([1], 4.0)


def test_a_middle_way_is_found_where_it_is_best() -> None:
    found = solve_given(one_server(1, 1, 1, 1, 1, 1, cost=TableCost(values=(1.0, 1.2, 1.9, 4.0))))
    assert found.slots.tolist() == [2], "6, 3.6, 3.8 and 8 units"


def test_local_restores_come_first_and_then_the_largest() -> None:
    found = solve_given(one_server(1, 1, 2, 9, 5, slots=1, cost=TableCost(values=(2.0,)), local=2))
    assert found.order.tolist() == [0, 1, 3, 4, 2]


def test_servers_do_not_wait_for_each_other() -> None:
    one = one_server(1.0, 4.0, 4.0, cost=TableCost(values=(1.0,)))
    problem = replace(
        one, server=np.array([0, 1, 1]), slots=np.array([1, 1]), costs=[*one.costs] * 2, running=[(3.0,), ()]
    )
    found = solve_given(problem)
    assert found.start.tolist() == [3.0, 0.0, 4.0]
    assert Counter(found.order.tolist()) == Counter(range(3))


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="one of 1"):
        replace(one_server(1.0, cost=TableCost(values=(1.0,))), server=np.array([1]))


# ---- fitting g_s from measured restores


LOCAL = LocalRestore(duration_s=2.0, state_bytes=1e6)
PRIOR = AffineCost(a=1.0, b=0.5)


def restores(concurrent: int, costs: list[float], state_bytes: float = 1e6) -> list[RestoreSample]:
    """Restores that cost so many local ones of their size."""
    seconds = [cost * LOCAL.duration_s * state_bytes / LOCAL.state_bytes for cost in costs]
    return [RestoreSample(concurrent=concurrent, duration_s=each, state_bytes=state_bytes) for each in seconds]


def test_without_samples_the_curve_is_the_prior():
    fitted = fit_cost([], local=LOCAL, prior=PRIOR, slots=4)
    assert fitted.median.values == fitted.high.values == (1.5, 2.0, 2.5, 3.0)


def test_the_prior_shares_what_the_foreground_leaves_of_the_network():
    def prior(share: float) -> list[float]:
        found = network_prior(share)
        return [found.at(n) for n in (1, 2, 4)]

    assert prior(0.25) == [1.0, 1.25, 1.75]  # four restores fit side by side: 1 to 4 of them are hardly slower
    assert prior(1.0) == [1.0, 2.0, 4.0]
    assert prior(4.0) == [4.0, 8.0, 16.0]


def test_samples_pull_the_curve_away_from_the_prior_by_their_number():
    few = fit_cost(restores(1, [3.5] * 10), local=LOCAL, prior=PRIOR, slots=1)
    many = fit_cost(restores(1, [3.5] * 990), local=LOCAL, prior=PRIOR, slots=1)
    assert few.median.values == pytest.approx((2.5,))
    assert many.median.values == pytest.approx((3.48,))


def test_durations_are_normalised_by_bytes():
    small = fit_cost(restores(2, [4.0] * 50, state_bytes=1e3), local=LOCAL, prior=PRIOR, slots=3)
    large = fit_cost(restores(2, [4.0] * 50, state_bytes=1e9), local=LOCAL, prior=PRIOR, slots=3)
    assert small.median.values == pytest.approx(large.median.values)


def test_linear_beyond_what_was_observed_and_constant_beyond_the_slots():
    fitted = fit_cost(restores(2, [4.0] * 90), local=LOCAL, prior=PRIOR, slots=4)
    second = 0.9 * 4.0 + 0.1 * 2.0
    assert fitted.median.values == pytest.approx((1.5, second, second + 0.5, second + 1.0))
    assert fitted.median.at(100) == fitted.median.values[-1]
    over = fit_cost(restores(9, [4.0] * 90), local=LOCAL, prior=PRIOR, slots=2)
    assert over.median.values == pytest.approx((1.5, second))


def test_plans_are_made_with_the_90th_percentile():
    costs = [2.0] * 80 + [6.0] * 20
    fitted = fit_cost(restores(1, costs * 100), local=LOCAL, prior=PRIOR, slots=2)
    assert fitted.median.values[0] == pytest.approx(2.0, abs=0.01)
    assert fitted.high.values[0] == pytest.approx(6.0, abs=0.01)


def test_a_curve_that_was_measured_is_found_again():
    random = np.random.default_rng(5)
    truth = [1.8, 2.0, 3.5, 3.5, 6.0]
    samples = [
        sample
        for n, cost in enumerate(truth, start=1)
        for sample in restores(n, (cost * random.lognormal(0, 0.2, 400)).tolist())
    ]
    fitted = fit_cost(samples, local=LOCAL, prior=PRIOR, slots=5)
    assert fitted.median.values == pytest.approx(truth, rel=0.06)


curves = st.lists(st.floats(0, 10), min_size=1, max_size=7)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 20)), max_size=30), st.integers(1, 6))
def test_fitted_curves_are_costs_that_the_model_takes(measured, slots):
    samples = [sample for n, cost in measured for sample in restores(n, [cost])]
    fitted = fit_cost(samples, local=LOCAL, prior=PRIOR, slots=slots)
    assert len(fitted.median.values) == len(fitted.high.values) == slots
    assert all(low <= high for low, high in zip(fitted.median.values, fitted.high.values, strict=True))


@settings(max_examples=50)
@given(curves, st.randoms(use_true_random=False))
def test_the_isotonic_curve_is_the_min_max_of_means(values, random):
    """The twin: at each place the largest, over starts, of the smallest mean up to an end."""
    weights = [random.choice([1.0, 2.0, 5.0]) for _ in values]
    twin = []
    for at in range(len(values)):
        best = -math.inf
        for start in range(at + 1):
            ends = range(at + 1, len(values) + 1)
            means = [np.average(values[start:end], weights=weights[start:end]) for end in ends]
            best = max(best, min(means))
        twin.append(best)
    assert isotonic(np.array(values), np.array(weights)) == pytest.approx(twin)


@pytest.mark.parametrize(
    "broken", [{"concurrent": 0}, {"duration_s": -1.0}, {"state_bytes": 0.0}, {"duration_s": math.nan}]
)
def test_a_restore_that_cannot_have_been_is_refused(broken):
    with pytest.raises(ValueError):
        RestoreSample(**{"concurrent": 1, "duration_s": 1.0, "state_bytes": 1.0} | broken)
