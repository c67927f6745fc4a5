"""The DynDL schedulers on situations that have a name: the paper's tables, the settlements, the edges."""

import json
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.dyndl.generate import Experiment, encode_scheduling, generate
from tests.narrow import of_type
from trimtab_models.dyndl import offline as dyndl_off
from trimtab_models.dyndl.methods import METHODS
from trimtab_models.dyndl.offline import RemoteRoom, plan_local, solve_list, solve_offline
from trimtab_models.dyndl.online import OnlineParams, Start, Wait, WaitingPolicy, WaitingRule, simulate, solve_online
from trimtab_models.dyndl.problem import RemoteTaskCosts, ScheduleProblem, problem_of
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.instances.scheduling import AffineCost, RemoteCost, TableCost
from trimtab_models.solving import Deadline, Infeasible, Never, PlanStatus

HALF = {"kind": "affine", "a": 1, "b": 0.5, "cap": None}
TABLE_2 = {
    "version": 1,
    "servers": [
        {"id": "s1", "cores": [0.75, 0.5], "g": HALF},
        {"id": "s2", "cores": [0.25, 2], "g": HALF},
        {"id": "s3", "cores": [2.25, 14], "g": HALF},
        {"id": "s4", "cores": [2.5, 3.75], "g": HALF},
    ],
    "tasks": [
        {"id": "t1", "replicas": ["s1", "s2"]},
        {"id": "t2", "replicas": ["s2", "s4"]},
        {"id": "t3", "replicas": ["s2", "s3"]},
        {"id": "t4", "replicas": ["s2", "s3"]},
        {"id": "t5", "replicas": ["s3", "s4"]},
    ],
    "wait": 0.25,
}
FLAT = AffineCost(a=1.5, b=0.0)


def problem(
    cores: list[list[float]], replicas: list[tuple[int, ...]], costs: list[RemoteCost] | None = None, wait: float = 3.0
) -> ScheduleProblem:
    """A problem by its rows of cores; a remote task costs 1.5 unless said otherwise."""
    return ScheduleProblem(
        core_load=np.array([load for row in cores for load in row], float),
        server_of=np.repeat(np.arange(len(cores)), [len(row) for row in cores]),
        replicas=tuple(replicas),
        costs=RemoteTaskCosts(costs or [FLAT] * len(cores)),
        wait=wait,
    )


def offline(problem: ScheduleProblem) -> ScheduleResult:
    return of_type(ScheduleResult, solve_offline(problem, stop=Never()))


def online(problem: ScheduleProblem, waiting: WaitingRule, **arguments: Any) -> ScheduleResult:
    result = solve_online(problem, stop=Never(), params=OnlineParams(waiting=waiting), **arguments)
    assert isinstance(result, ScheduleResult)
    return result


def planned(document: dict[str, Any], method: str) -> dict[str, Any]:
    """The plan for `document`, after the checks that anybody can make who has both."""
    answer = METHODS[method].solve(METHODS[method].read(json.dumps(document).encode()), Never(), 0)
    assert not isinstance(answer, Infeasible)
    check_plan(document, answer.document, method)
    return answer.document


def check_plan(document: dict[str, Any], plan: dict[str, Any], method: str) -> None:
    """Recomputes everything from the assignment, by the model's formula and without our code."""
    servers = {server["id"]: server for server in document["servers"]}
    load = {(id_, at): free for id_, server in servers.items() for at, free in enumerate(server["cores"])}
    assert plan["assignment"].keys() == {task["id"] for task in document["tasks"]}
    remote = dict.fromkeys(servers, 0)
    for task in document["tasks"]:
        placed = plan["assignment"][task["id"]]
        assert placed["local"] == (placed["server"] in task["replicas"])
        assert load[placed["server"], placed["core"]] != "inf"
        remote[placed["server"]] += not placed["local"]
    for placed in plan["assignment"].values():
        cost = 1.0 if placed["local"] else cost_of(servers[placed["server"]]["g"], remote[placed["server"]])
        load[placed["server"], placed["core"]] += cost
    ends = [load[placed["server"], placed["core"]] for placed in plan["assignment"].values()]
    assert plan["makespan"] == pytest.approx(max(ends, default=0))
    assert plan["remote_tasks"] == sum(remote.values())
    assert plan["lower_bound"] <= plan["makespan"]
    assert ("event_makespan" in plan) == (method in ("dyndl-on", "hadoop", "delay"))
    assert ("phase1_makespan" in plan) == (method in ("dyndl-off", "list"))


def cost_of(g: dict[str, Any], n: int) -> float:
    if g["kind"] == "table":
        return float(g["values"][min(n, len(g["values"])) - 1])
    return g["a"] + g["b"] * min(n, math.inf if g["cap"] is None else g["cap"])


@pytest.mark.parametrize(
    ("method", "makespan"),
    [("hadoop", 3.5), ("delay", 3.25), ("dyndl-on", 3.25), ("dyndl-off", 3.0), ("list", 3.25)],
)
def test_table_2_gives_the_papers_makespans(method, makespan):
    assert planned(TABLE_2, method)["makespan"] == makespan


def test_table_2_is_balanced_at_3_25_before_tasks_become_remote():
    assert planned(TABLE_2, "dyndl-off")["phase1_makespan"] == 3.25


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_plans_of_generated_instances_are_worth_what_they_say(method, seed):
    experiment = Experiment(tasks=60, servers=9, core_num=4, alpha=seed * 10, beta=10 ** (seed + 1))
    document = encode_scheduling(generate(experiment, seed=seed))
    document["servers"][2]["cores"] = ["inf"] * 4
    document["servers"][3]["g"] = {"kind": "table", "values": [1.25, 3.0, "inf"]}
    document["servers"].append({"id": "no core", "cores": [], "g": HALF})
    document["tasks"][5]["replicas"] = ["no core"]
    document["tasks"][6]["replicas"] = []
    assert planned(document, method)["remote_tasks"] >= 2
    assert planned(document, method) == planned(document, method)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (AffineCost(a=1, b=0.5), [1.5, 2.0, 2.5, 3.0]),
        (AffineCost(a=1, b=0.5, cap=2), [1.5, 2.0, 2.0, 2.0]),
        (TableCost(values=(1.5, 4.0)), [1.5, 4.0, 4.0, 4.0]),
        (TableCost(values=(2.0, math.inf)), [2.0, math.inf, math.inf, math.inf]),
    ],
)
def test_costs_are_the_same_one_by_one_and_all_at_once(cost, expected):
    assert [cost.at(n) for n in (1, 2, 3, 4)] == expected
    others = [AffineCost(a=3, b=3), cost, TableCost(values=(7.0, 8.0, 9.0))]
    costs = RemoteTaskCosts(others)
    assert [costs.at(np.full(3, n))[1] for n in (1, 2, 3, 4)] == expected
    assert costs.limit[1] == (1 if math.inf in expected else math.inf)


def test_settlement_1_remote_tasks_count_for_each_other_also_one_after_another():
    result = offline(problem([[0.0]], [(), ()], [AffineCost(a=1, b=1)]))
    assert result.score.makespan == 2 * 3.0


def test_settlement_2_what_just_fits_fits():
    """1.2 + 1.1 and 2.3 differ as floats; the quotient is just below 1."""
    room = RemoteRoom(problem([[1.2]], [(), ()], [AffineCost(a=1.1, b=0)]), np.array([1.2]))
    assert room.most(2.3).tolist() == [1]
    assert room.most(2.3 - 1e-6).tolist() == [0]


def test_settlement_2_ties_go_by_task_id_and_all_tasks_remote_is_no_deadline_but_a_candidate():
    steep = TableCost(values=(1.5, 100.0))
    tied = offline(problem([[1.0, 1.0], [0.0]], [(0,), (0,)], [FLAT, steep]))
    assert (tied.score.local.tolist(), tied.score.makespan) == ([False, True], 2.0)
    all_remote = offline(problem([[100.0], [0.0]], [(0,), (0,)]))
    assert (all_remote.score.local.tolist(), all_remote.score.makespan) == ([False, False], 3.0)


def test_settlement_3_paths_are_followed_where_no_single_move_helps():
    """Greedy: two tasks on the first server, one on the second, none on the third."""
    plan = plan_local(problem([[0.0], [0.0], [0.0]], [(0, 1), (1, 2), (0,)]), Never())
    assert plan.finish.tolist() == [1.0, 1.0, 1.0]


def test_settlement_4_a_failed_search_closes_all_that_it_visited(monkeypatch):
    searches = []

    def counted(*arguments):
        searches.append(arguments[-1])
        return find_path(*arguments)

    find_path = dyndl_off._find_path
    monkeypatch.setattr(dyndl_off, "_find_path", counted)
    ring = problem([[0.0]] * 50, [(at, (at + 1) % 50) for at in range(50)])
    assert plan_local(ring, Never()).makespan == 1.0
    assert len(searches) == 1


def test_settlement_5_the_fill_sees_how_further_tasks_slow_down_the_others():
    """By the end on one core the first server would end the third task at 6.5; but its other two then end at 7."""
    first = TableCost(values=(1.9, 2.0, 3.5))
    result = offline(problem([[0.0, 3.0], [5.8]], [(), (), ()], [first, AffineCost(a=1, b=0)]))
    assert result.score.makespan == pytest.approx(6.8)


def test_settlement_6_waiting_counts_from_the_moment_the_core_became_idle():
    cluster = problem([[0.0], [50.0]], [(1,), (1,), (1,)], [AffineCost(a=4, b=1)] * 2, wait=3.0)
    policy = WaitingPolicy(cluster, WaitingRule.ADAPTIVE)
    assert policy.decide(2.0, 0, 1.0) == Wait(until=4.0)
    assert policy.decide(4.0, 0, 1.0) == Start(task=0, local=False)
    assert policy.decide(9.0, 0, 9.0) == Wait(until=14.0)  # max(g(1), W)
    assert policy.decide(50.0, 1, 50.0) == Start(task=1, local=True)
    assert policy.decide(14.0, 0, 9.0) == Start(task=2, local=False)
    assert policy.decide(99.0, 0, 90.0) == Wait(until=math.inf)


def test_settlement_6_at_equal_times_ends_then_local_offers_then_waits():
    """At 3 the first core's wait is over, and the second core, which has the data, becomes idle."""
    result = online(problem([[0.0], [2.0]], [(1,), (1,)], wait=3.0), WaitingRule.FIXED)
    assert (result.score.local.tolist(), result.event_makespan) == ([True, True], 4.0)


def test_settlement_6_the_lowest_id_or_a_seeded_random_task():
    far = problem([[0.0] * 4, [100.0]], [(1,)] * 4, wait=0.0)

    def order(**arguments: Any) -> list[int]:
        policy = WaitingPolicy(far, WaitingRule.NONE, **arguments)
        return [decision.task for _ in range(4) if isinstance(decision := policy.decide(0.0, 0, 0.0), Start)]

    assert order() == [0, 1, 2, 3]
    orders = {tuple(order(seed=seed)) for seed in range(20)}
    assert len(orders) > 5
    assert {tuple(sorted(each)) for each in orders} == {(0, 1, 2, 3)}
    assert order(seed=7) == order(seed=7)


def test_settlement_7_tasks_without_a_usable_replica_are_remote():
    result = offline(problem([[math.inf], [], [0.0]], [(0,), (1,), (), (2,)]))
    assert result.score.local.tolist() == [False, False, False, True]
    assert result.score.makespan == 5.5


def test_settlement_8_online_runs_report_the_models_makespan_and_the_event_time():
    """Waiting is no load; and the first of two remote tasks is put off by the second."""
    waited = online(problem([[0.0], [99.0]], [(1,)], wait=3.0), WaitingRule.FIXED)
    assert (waited.score.makespan, waited.event_makespan) == (1.5, 4.5)
    rising = [AffineCost(a=1, b=1)] * 2
    joined = online(problem([[0.0, 1.0], [99.0]], [(1,), (1,)], rising), WaitingRule.NONE)
    assert (joined.score.makespan, joined.event_makespan) == (4.0, 4.0)
    one_core = online(problem([[0.0], [99.0]], [(1,), (1,)], rising), WaitingRule.NONE)
    assert (one_core.score.makespan, one_core.event_makespan) == (6.0, 5.0)


def test_more_forced_tasks_than_places_at_a_finite_cost_are_infeasible():
    single = TableCost(values=(2.0, math.inf))
    answer = of_type(Infeasible, solve_offline(problem([[0.0], [0.0]], [(), (), ()], [single, single]), stop=Never()))
    assert answer.reason.startswith("no usable core for 3 tasks without a usable replica: the servers take 2 ")


@pytest.mark.parametrize(
    "solver", [solve_offline, solve_list, *[
        lambda *args, waiting=waiting, **more: solve_online(*args, params=OnlineParams(waiting=waiting), **more)
        for waiting in WaitingRule
    ]]
)  # fmt: skip
def test_the_last_finite_remote_place_is_kept_for_a_task_that_can_only_be_remote(solver):
    single = TableCost(values=(2.0, math.inf))
    cluster = problem([[0.0], [9.0]], [(1,), ()], [single, TableCost(values=(math.inf,))], wait=0.0)
    result = solver(cluster, stop=Never())
    assert (result.core.tolist(), result.score.makespan) == ([1, 0], 10.0)


@pytest.mark.parametrize("method", METHODS)
def test_no_tasks_are_done_at_once(method):
    plan = planned(TABLE_2 | {"tasks": []}, method)
    assert (plan["makespan"], plan["lower_bound"], plan["remote_tasks"], plan["assignment"]) == (0, 0, 0, {})


def test_a_makespan_at_the_bound_is_optimal():
    near = offline(problem([[0.0], [0.0]], [(0,), (1,)]))
    assert (near.status, near.lower_bound, near.ratio) == (PlanStatus.OPTIMAL, 1.0, 1.0)
    far = online(problem([[0.0], [0.25]], [(1,)]), WaitingRule.NONE)
    assert (far.status, far.lower_bound, far.ratio) == (PlanStatus.FEASIBLE, 1.25, 1.2)


def test_huge_loads_and_many_remote_tasks_on_one_server():
    result = offline(problem([[1e15, 1e15, math.inf]], [()] * 2_000, [AffineCost(a=1, b=0.5, cap=2)]))
    assert result.score.makespan == 1e15 + 2_000
    assert result.status is PlanStatus.OPTIMAL


@pytest.mark.parametrize("questions", [0, 1, 5, 50])
def test_cut_short_there_is_a_schedule_and_a_bound_all_the_same(questions):
    cluster = problem_of(generate(Experiment(tasks=300, servers=30, core_num=4, beta=100), seed=3))
    asked = iter(range(questions))
    result = of_type(ScheduleResult, solve_offline(cluster, stop=Deadline(lambda: next(asked, 10**9), at_s=10**6)))
    assert result.lower_bound <= offline(cluster).score.makespan <= result.score.makespan


def test_a_policy_of_ones_own_can_be_simulated():
    class Remote:
        """Starts everything at once on the first core."""

        def __init__(self) -> None:
            self.left = [2, 1, 0]

        def take_local(self, server: int) -> int | None:
            return None

        def decide(self, now: float, server: int, idle_since: float) -> Start | Wait:
            return Start(task=self.left.pop(), local=False) if self.left and not server else Wait(until=math.inf)

    result = simulate(problem([[0.0], [0.0]], [(1,)] * 3), Remote(), Never())
    assert (result.core.tolist(), result.event_makespan) == ([0, 0, 0], 4.5)
