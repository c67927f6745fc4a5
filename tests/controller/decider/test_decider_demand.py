"""A job at 130 % of one worker's capacity and 70 % of the cluster's is planned right in the first round."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import a_round
from tests.controller.decider.saturated_job import APP, Job, kg
from trimtab_controller.decider.events import Action, Decided, ExecutionChanged, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.values.reasons import ConcernKind, SkipReason
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import Epoch, WorkerId

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
                    done = replace(a_round(self.now), plan=f"1.{len(self.plans)}", planned=planned.plan.planned)
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
