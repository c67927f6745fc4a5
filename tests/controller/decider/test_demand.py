"""Demand: what a saturated worker is asked for, exactly the use of all others, and what is blocked."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.controller.decider.decider_situations import a_round
from tests.controller.decider.saturated_job import APP, WINDOW_S, Job, kg
from trimtab_controller.decider.events import Action, Decided, ExecutionChanged, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.values.reasons import ConcernKind, SkipReason
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.demand import NO_DEMAND_HISTORY, Blocked, WindowDemands, follow_demand
from trimtab_controller.decider.window.owned import Owned, OwnedTable
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

W0, W1, W2 = (WorkerId(f"w{place}") for place in range(3))
CATCH_UP_S = 100.0


def demands(snapshots: Iterable[Snapshot]) -> WindowDemands:
    """After the last of these windows."""
    history, found = NO_DEMAND_HISTORY, None
    for snapshot in snapshots:
        found, history = follow_demand(snapshot, history, catch_up_s=CATCH_UP_S, smoothing=0.5)
    assert found is not None
    return found


def of(found: WindowDemands, *key_groups: KeyGroup) -> list[float]:
    return [found.key_groups[each.app, each.operator][each.partition] for each in key_groups]


def uses(snapshot: Snapshot) -> dict[KeyGroup, float]:
    return {row.key_group: 100.0 * row.cpu for row in snapshot.key_groups if row.cpu is not None}


def a_hot_job() -> Job:
    """w0 has 45 % of a core for key groups and is asked for 60 %; kg 0 is hot; the others have room."""
    return Job(
        owners={kg(0): W0, kg(1): W0, kg(2): W1, kg(3): W2},
        rates={kg(0): 50.0, kg(1): 10.0, kg(2): 20.0, kg(3): 20.0},
    )


def test_a_saturated_worker_is_asked_for_what_arrives_and_for_its_backlog() -> None:
    job = a_hot_job()
    windows = [job.window() for _ in range(4)]
    found = demands(windows)

    assert uses(windows[-1])[kg(0)] < 38.0, "it is starved of CPU"
    assert of(found, kg(0), kg(1)) == pytest.approx(
        [100 * 0.01 * (50.0 + job.backlog[kg(0)] / CATCH_UP_S), 100 * 0.01 * (10.0 + job.backlog[kg(1)] / CATCH_UP_S)],
        rel=0.01,
    )
    assert of(found, kg(2), kg(3)) == [20.0, 20.0]
    assert found.workers[W0].pct == pytest.approx(2 * (5.0 + sum(of(found, kg(0), kg(1)))))
    assert found.workers[W0].pct == pytest.approx(136.0, abs=1.0)
    assert (found.workers[W1].pct, found.workers[W1].fixed_pct) == (pytest.approx(50.0), pytest.approx(10.0))


def test_a_key_group_that_waits_for_something_else_is_blocked_and_asks_for_no_more_than_it_uses() -> None:
    job = Job(
        owners={kg(0): W0, kg(1): W0, kg(2): W1}, rates={kg(0): 30.0, kg(1): 5.0, kg(2): 5.0}, stuck={kg(0): 10.0}
    )
    windows = [job.window() for _ in range(3)]
    assert demands(windows).workers[W0].blocked is None, "two windows of growth may be chance"
    windows.append(job.window())
    found = demands(windows)

    assert of(found, *job.owners) == list(uses(windows[-1]).values())
    assert found.workers[W0].blocked == Blocked(count=1, first=(kg(0),), backlog=round(4 * 20 * WINDOW_S))
    assert (found.workers[W1].blocked, found.workers[W0].pct) == (None, pytest.approx(2 * (5.0 + 10.0 + 5.0)))

    job.stuck = {}
    windows += [job.window() for _ in range(2)]
    assert demands(windows).workers[W0].blocked is None


@pytest.mark.parametrize(
    ("asked", "done", "why"),
    [
        pytest.param(30.0, 10.0, {"host_cores": 0.6}, id="its host is full"),
        pytest.param(30.0, 10.0, {"waiting": {W0: 0.75}}, id="other programs keep it from the cores"),
        pytest.param(150.0, 80.0, {"capacity": 4.0}, id="its event loop is one thread, and fills a core"),
    ],
)
def test_a_worker_that_gets_no_more_cpu_is_busy_and_not_blocked(asked: float, done: float, why: dict[str, Any]) -> None:
    job = Job(owners={kg(0): W0}, rates={kg(0): asked}, stuck={kg(0): done}, **why)
    found = demands([job.window() for _ in range(5)])

    assert found.workers[W0].blocked is None
    assert of(found, kg(0)) == [pytest.approx(asked + job.backlog[kg(0)] / CATCH_UP_S)]


def test_what_is_worked_off_after_a_restart_is_not_what_arrives() -> None:
    """20 inputs/s arrive, 560 wait; the worker does 45/s until it has caught up, 22 s later."""
    job = Job(owners={kg(0): W0, kg(1): W1}, rates={kg(0): 20.0, kg(1): 20.0}, backlog={kg(0): 560.0})
    windows = [job.window() for _ in range(3)]
    assert uses(windows[-1])[kg(0)] == pytest.approx(45.0)
    assert of(demands(windows), kg(0)) == [pytest.approx(20.0 + job.backlog[kg(0)] / CATCH_UP_S)]

    windows += [job.window() for _ in range(2)]
    assert 20.0 < uses(windows[-1])[kg(0)] < 40.0, "the rest of it, in a window that is not full"
    assert job.backlog[kg(0)] == 0.0
    assert of(demands(windows), kg(0)) == [pytest.approx(20.0)]
    windows.append(job.window())
    assert of(demands(windows), kg(0)) == [uses(windows[-1])[kg(0)]]


def test_a_backlog_moves_with_its_key_group() -> None:
    job = a_hot_job()
    windows = [job.window() for _ in range(6)]
    before = of(demands(windows), kg(0))[0]
    job.owners[kg(0)] = W1
    for _ in range(2):
        windows.append(job.window())
        assert of(demands(windows), kg(0), kg(2)) == pytest.approx(
            [50.0 + job.backlog[kg(0)] / CATCH_UP_S, 20.0 + job.backlog[kg(2)] / CATCH_UP_S], abs=0.2
        )
    assert of(demands(windows), kg(0))[0] == pytest.approx(before, abs=2.0)
    assert of(demands(windows), kg(1))[0] == pytest.approx(10.0, abs=1.0), "w0 works its own off"


@pytest.mark.parametrize("jump", [1_000_000.0, -1_000.0])
def test_a_backlog_that_jumps_once_is_no_arrival(jump: float) -> None:
    job = a_hot_job()
    job.backlog = {kg(0): 1_000.0}
    windows = [job.window() for _ in range(5)]
    job.backlog[kg(0)] += jump
    windows.append(job.window())

    counted = 50.0 + round(job.backlog[kg(0)]) / CATCH_UP_S
    assert of(demands(windows), kg(0)) == [pytest.approx(counted, rel=0.01)]


def test_a_key_group_that_has_done_nothing_yet_costs_what_its_operator_costs_there() -> None:
    job = a_hot_job()
    job.owners[kg(9)] = W0
    job.rates[kg(9)] = 3.0
    job.stuck = {kg(9): 0.0}
    found = demands([job.window() for _ in range(5)])
    assert of(found, kg(9)) == [pytest.approx(3.0 + job.backlog[kg(9)] / CATCH_UP_S)]

    alone = Job(owners={kg(0): W0}, rates={kg(0): 3.0}, stuck={kg(0): 0.0}, host_cores=0.6)
    assert of(demands([alone.window() for _ in range(50)]), kg(0)) == [0.0], "nobody knows its cost: its use"


def test_an_operator_behind_a_saturated_one_is_asked_for_what_it_will_get() -> None:
    """w0 is asked for 60 inputs/s and emits one delay each, to a key group of its own and to one on w1."""
    first, here, there = kg(0, "extract"), kg(0, "sums"), kg(1, "sums")
    job = Job(
        owners={first: W0, here: W0, there: W1},
        rates={first: 60.0},
        flows={(first, here): 0.5, (first, there): 0.5},
    )
    windows = [job.window() for _ in range(5)]
    assert uses(windows[-1])[there] < 16.0
    asked = 60.0 + job.backlog[first] / CATCH_UP_S
    assert of(demands(windows), first, there) == pytest.approx([asked, asked / 2], rel=0.02)
    assert of(demands(windows), here)[0] == pytest.approx(asked / 2, rel=0.05)


def test_a_cycle_of_flows_ends() -> None:
    one, other = kg(0, "a"), kg(0, "b")
    job = Job(owners={one: W0, other: W0}, rates={one: 60.0}, flows={(one, other): 1.0})
    windows = [job.window() for _ in range(4)]
    back = replace(windows[-1].pairs[0], source=other, target=one)
    windows[-1] = replace(windows[-1], pairs=(*windows[-1].pairs, back))
    assert all(demand < 20 * 60.0 for demand in of(demands(windows), one, other))


def test_a_view_takes_the_demand_of_the_key_groups_that_were_reported() -> None:
    job = a_hot_job()
    found = demands([job.window() for _ in range(4)])
    rows = [
        Owned(key_group=each, owner=owner, load=1.0, state_bytes=None)
        for each, owner in [*job.owners.items(), (kg(7), W1), (kg(0, "other"), W1)]
    ]
    table = found.of_table(OwnedTable.of(APP, rows))
    assert [row.load for row in table] == [*of(found, *job.owners), 1.0, 1.0]


def test_of_many_blocked_key_groups_the_first_are_named_and_all_counted() -> None:
    owners = {kg(place, operator): (W0, W1)[place % 2] for operator in ("a", "b") for place in range(40)}
    job = Job(owners=owners, rates=dict.fromkeys(owners, 0.5), stuck=dict.fromkeys(owners, 0.1))
    found = demands([job.window() for _ in range(5)])

    blocked = [found.workers[each].blocked for each in (W0, W1, W2)]
    assert [each and (each.count, each.first) for each in blocked] == [
        (40, tuple(kg(place, "a") for place in range(start, 10, 2))) for start in (0, 1)
    ] + [None]
    assert sum(each.backlog for each in blocked if each) == sum(round(left) for left in job.backlog.values())


# ---- a job at 130 % of one worker's capacity and 70 % of the cluster's is planned right in the first round


WORKERS = tuple(WorkerId(f"w{place}") for place in range(3))
SETTINGS = Settings(min_interval_s=0.0)


class Steered:
    """A job and a decider; the execution does at once what is planned."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.plans: list[Planned] = []
        self.measured: list[RoundMeasured] = []
        self.skips: list[SkipReason] = []
        self.execution = Execution(generation=1)
        self.decider = Decider(SETTINGS, Requirements(max_age_s=45.0), self.execution, acting=True)
        self._place()

    def window(self) -> None:
        snapshot = self.job.window()
        self.now = snapshot.end_ms / 1000.0
        self._see(self.decider.on_event(self.now, SnapshotArrived(snapshot=snapshot)))

    def _see(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Solve(view=view):
                    found = answer(question_of(view, SETTINGS, 5.0))
                    self._see(self.decider.on_event(self.now, SolverAnswered(answer=found)))
                case Decided(decision=Planned() as planned):
                    self.plans.append(planned)
                    moves = planned.plan.moves
                    self.job.owners = {**self.job.owners, **{move.key_group: move.target for move in moves}}
                    done = a_round(self.now, plan=f"1.{len(self.plans)}", planned=planned.plan.planned)
                    self.execution = replace(self.execution, rounds={APP: replace(done, started_at=self.now)})
                    self._place()
                case Decided(decision=Skip(reason=reason)):
                    self.skips.append(reason)
                case RoundMeasured():
                    self.measured.append(action)

    def _place(self) -> None:
        placement = placement_of("c", APP, Epoch(1, 1), self.job.owners, None)
        self.execution = replace(self.execution, placements={APP: placement})
        self.decider.on_event(0.0, ExecutionChanged(execution=self.execution))

    @property
    def asked(self) -> dict[WorkerId, float]:
        """Percent of the capacity of each worker."""
        return {worker: use.demand_pct or 0.0 for worker, use in self.decider.known.use.workers.items()}

    @property
    def concerns(self) -> set[ConcernKind]:
        return {concern.kind for concern in self.decider.known.concerns}


def twelve(**changes: object) -> Job:
    """w0 is asked for 60 inputs/s and its own 5 % of a core, the others for 15; all have half a core.

    Each has four key groups; of those of w0 the first takes half of its input.
    """
    owners = {kg(place): WORKERS[place // 4] for place in range(12)}
    rates = dict.fromkeys(owners, 3.75) | {kg(0): 30.0, kg(1): 10.0, kg(2): 10.0, kg(3): 10.0}
    return replace(Job(owners=owners, rates=rates), **changes)


def test_a_saturated_worker_is_relieved_by_the_first_plan_as_planned_and_nobody_is_over_capacity() -> None:
    steered = Steered(twelve())
    for _ in range(SETTINGS.min_windows):
        steered.window()
    [first] = steered.plans
    assert steered.asked[WORKERS[0]] == pytest.approx(134.0, abs=3.0)
    assert first.plan.before > 45.0, "by use it would be 40 at most: 100 % against 40 and 40"
    assert WORKERS[0] in {move.source for move in first.plan.moves}

    waiting = sum(steered.job.backlog.values())
    steered.window()
    [measured] = steered.measured
    assert (measured.missed, measured.incomparable) == ((), None)
    assert measured.load_distance == pytest.approx(first.plan.planned, abs=SETTINGS.load_distance)
    assert max(steered.asked.values()) < 100.0
    assert sum(steered.job.backlog.values()) < waiting / 2

    for _ in range(6):
        steered.window()
    assert (len(steered.plans), sum(steered.job.backlog.values())) == (1, 0.0)
    assert (steered.concerns, set(steered.skips[-3:])) == (set(), {SkipReason.INSIDE_BAND})
    assert sum(steered.asked.values()) / 3 == pytest.approx(70.0, abs=0.5)


def test_a_job_asked_for_more_than_all_have_is_told_though_it_is_even() -> None:
    job = twelve(rates={kg(place): 30.0 for place in range(12)})
    steered = Steered(job)
    for _ in range(4):
        steered.window()
    assert steered.plans == []
    assert ConcernKind.OVER_CAPACITY in steered.concerns
    assert all(asked > 200.0 for asked in steered.asked.values())


def test_nothing_moves_for_a_job_that_waits_for_something_else() -> None:
    job = twelve(rates={kg(place): 10.0 for place in range(12)}, stuck={kg(place): 4.0 for place in range(12)})
    steered = Steered(job)
    for _ in range(8):
        steered.window()
    assert (steered.plans, steered.concerns) == ([], {ConcernKind.BLOCKED})
    [concern] = steered.decider.known.concerns
    assert concern.workers == WORKERS
    assert concern.detail.startswith(
        "960 inputs of 4 key groups wait at w0, which uses 42 % of its capacity: app/sums/0, app/sums/1"
    )

    half = Steered(twelve(rates={kg(0): 30.0}, stuck={kg(0): 4.0}))
    for _ in range(8):
        half.window()
    assert half.plans == []
    assert [concern.workers for concern in half.decider.known.concerns] == [(WORKERS[0],)]
