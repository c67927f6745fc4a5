"""Plans that do not bring what they promise are not made for ever: after two the app waits, and says for whom."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1, a_load, a_node, a_round, a_window, kg
from tests.narrow import of_type
from trimtab_controller.decider.events import (
    Action,
    Decided,
    ExecutionChanged,
    IntentsChanged,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import TRY_AGAIN_S, MispredictedWorker, RoundMeasured
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.values.reasons import ConcernKind, SkipReason
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.solver.answer import Answer
from trimtab_protocol.messages.intents import Drain, Intent, Pause
from trimtab_protocol.messages.names import Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow, Snapshot

W2 = WorkerId("w2")
CORES = 0.1
WINDOW_S = 10.0
KEY_GROUPS = [kg(partition) for partition in range(12)]
PAUSE = Pause(by="op", at=1.0, reason="looked at it")


class Job:
    """Two workers of one core, twelve key groups of 0.1 cores each; the execution does at once what is decided.

    `charged[worker]` = the share of the true cost that the worker says its key groups have.
    """

    def __init__(self, on_w0: int = 9) -> None:
        self.now = 1000.0
        self.owners = {each: W0 if each.partition < on_w0 else W1 for each in KEY_GROUPS}
        self.charged: dict[WorkerId, float] = {W0: 1.0, W1: 1.0}
        self.cores = dict.fromkeys(KEY_GROUPS, CORES)
        self.used: dict[WorkerId, float] = {W0: 0.6, W1: 0.6}
        self.generation = 5
        self.plans = 0
        self.execution = Execution(generation=1)
        self.decider = Decider(
            Settings(load_distance=5.0, min_interval_s=0.0, min_windows=2, min_gain=0.5),
            Requirements(max_age_s=45.0),
            self.execution,
            acting=True,
        )
        self._carry_out(None)

    def _carry_out(self, moved: Planned | None) -> None:
        if moved is not None:
            self.plans += 1
            self.owners |= {move.key_group: move.target for move in moved.plan.moves}
            done = a_round(self.now + 1.0, plan=f"1.{self.plans}", started_at=self.now, planned=0.0)
            self.execution = replace(self.execution, rounds={APP: done})
            self.now += 1.0
        placement = placement_of("c", APP, Epoch(1, 1), self.owners, None)
        self.execution = replace(self.execution, placements={APP: placement})
        self.decider.on_event(self.now, ExecutionChanged(execution=self.execution))

    def intents(self, *intents: Intent) -> None:
        self.decider.on_event(self.now, IntentsChanged(intents=intents))

    def window(self) -> list[Action]:
        """The next whole window; what follows from it, the solver's question left out."""
        start_s, self.now = self.now, self.now + WINDOW_S
        actions = self.decider.on_event(self.now, SnapshotArrived(snapshot=self._snapshot(start_s)))
        if any(isinstance(action, Solve) for action in actions):
            actions = [action for action in actions if not isinstance(action, Solve)]
            actions += self.decider.on_event(self.now, self._evened())
        for action in actions:
            if isinstance(action, Decided) and isinstance(action.decision, Planned):
                self._carry_out(action.decision)
        return actions

    def windows(self, count: int) -> list[Action]:
        return [action for _ in range(count) for action in self.window()]

    def _evened(self) -> SolverAnswered:
        """At most two key groups go to the worker that looks least loaded."""
        evaluation = self.decider.known.evaluations[APP]
        loads = evaluation.worker_loads
        source, target = max(loads, key=loads.__getitem__), min(loads, key=loads.__getitem__)
        count = min(2, round((loads[source] - loads[target]) / (200.0 * CORES)))
        view = of_type(SmoothedView, self.decider.known.views[APP])
        moves = [place for place, row in enumerate(view.key_groups) if row.owner == source][:count]
        to = [worker.id for worker in view.workers].index(target)
        return SolverAnswered(
            answer=Answer(
                moves=tuple((place, to) for place in moves),
                status="optimal",
                before=evaluation.load_distance or 0.0,
                load_distance=0.0,
                lower_bound=0.0,
                solve_s=0.1,
            )
        )

    def _snapshot(self, start_s: float) -> Snapshot:
        hosts = [HostId(f"h-{worker}") for worker in self.charged]
        return a_window(
            self.now,
            [
                a_node(worker, host=host, capacity=1.0, cpu=self.used.get(worker), generation=self.generation)
                for worker, host in zip(self.charged, hosts, strict=True)
            ],
            [
                a_load(each, owner, self.charged[owner] * self.cores[each], tuples_in_s=10.0, state_bytes=1000)
                for each, owner in self.owners.items()
            ],
            start_ms=round(start_s * 1000),
            hosts=tuple(HostWindow(host=host, covered_s=10.0, cpu=2.0, cores=4.0, basis=Basis.HOST) for host in hosts),
        )


def measured(actions: list[Action]) -> list[RoundMeasured]:
    return [action for action in actions if isinstance(action, RoundMeasured)]


def last_skip(actions: list[Action]) -> Skip:
    decisions = [action.decision for action in actions if isinstance(action, Decided)]
    assert isinstance(decisions[-1], Skip), decisions[-1]
    return decisions[-1]


@pytest.fixture
def blind() -> Job:
    """w1 says that its key groups cost nothing; two plans have been made for it."""
    job = Job()
    job.charged[W1] = 0.0
    job.windows(6)
    return job


def test_a_worker_that_is_measured_as_zero_is_given_no_more_after_two_plans() -> None:
    job = Job()
    job.charged[W1] = 0.0

    actions = job.windows(12)

    assert job.plans == 2
    assert [each.missed for each in measured(actions)] == [
        (MispredictedWorker(worker=W1, planned=pytest.approx(20.0), measured=0.0),),
        (MispredictedWorker(worker=W1, planned=pytest.approx(20.0), measured=0.0),),
    ]
    skip = last_skip(actions)
    assert skip == Skip(
        reason=SkipReason.PLANS_MISS,
        detail=(
            "app: load distance 25.0 above 5.0, but plans 1.1, 1.2 did not bring what was planned (noise 0.5): "
            "w1 20.0 % planned, 0.0 % measured; no further plan for balance"
        ),
    )
    [concern] = job.decider.known.concerns
    assert (concern.kind, concern.app, concern.workers) == (ConcernKind.PLANS_MISS, APP, (W1,))


@pytest.mark.parametrize("what", ["agreed", "restarted", "gone", "resumed", "hour"])
def test_it_ends_by_itself_or_by_an_operator(blind: Job, what: str) -> None:
    assert last_skip(blind.window()).reason is SkipReason.PLANS_MISS
    match what:
        case "agreed":
            blind.charged[W1] = 1.0
        case "restarted":
            blind.generation += 1
        case "gone":
            del blind.charged[W1]
            blind.charged[W2] = 0.0
            blind.owners = {each: W2 if owner == W1 else owner for each, owner in blind.owners.items()}
            blind._carry_out(None)
        case "resumed":
            blind.intents(PAUSE)
            assert last_skip(blind.window()).reason is SkipReason.PAUSED
            blind.intents()
        case "hour":
            blind.now += TRY_AGAIN_S
    blind.windows(3 if what == "agreed" else 1)

    assert blind.decider.known.concerns == ()


def test_after_an_hour_one_more_round_is_tried(blind: Job) -> None:
    blind.now += TRY_AGAIN_S

    actions = blind.windows(8)

    assert blind.plans == 3
    assert last_skip(actions).reason is SkipReason.PLANS_MISS


@pytest.mark.parametrize("what", ["restarted", "hour"])
def test_while_the_mispredicted_worker_is_over_its_capacity_nothing_ends_it(blind: Job, what: str) -> None:
    blind.used[W1] = 1.1
    blind.windows(3)
    blind.generation += what == "restarted"
    blind.windows(round(TRY_AGAIN_S / WINDOW_S) + 4 if what == "hour" else 4)

    assert blind.plans == 2
    assert {concern.kind for concern in blind.decider.known.concerns} == {
        ConcernKind.OVER_CAPACITY,
        ConcernKind.PLANS_MISS,
    }


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        ("drain", "w0 began to be drained"),
        ("join", "w2 joined"),
        ("load", "loads differ by 52.0 between two windows, the plan was to bring 20.0"),
        ("rate", "the load of key groups that did not move has changed"),
        ("operators", "the app has other key groups"),
    ],
)
def test_a_round_that_cannot_be_compared_says_so_and_is_no_miss(happens: str, why: str) -> None:
    job = Job(on_w0=12 if happens == "rate" else 9)
    job.charged[W1] = 0.0
    job.windows(2)
    assert job.plans == 1
    match happens:
        case "drain":
            job.intents(Drain(worker=W0, by="op", at=1.0, reason="kernel"))
        case "join":
            job.charged[W2] = 1.0
        case "load":
            job.cores = {each: cores * (1.0 + each.partition % 2) for each, cores in job.cores.items()}
        case "rate":
            job.cores = dict.fromkeys(KEY_GROUPS, 1.1 * CORES)
        case "operators":
            job.owners[KeyGroup(APP, OPERATOR, 12)] = W0
            job.cores[KeyGroup(APP, OPERATOR, 12)] = CORES
    [found] = measured(job.window())

    assert (found.incomparable, found.missed) == (why, ())
    assert (found.load_distance is None) == (happens not in ("load", "rate"))
    assert job.decider.known.concerns == ()


def test_a_plan_of_a_predecessor_is_measured_and_not_judged() -> None:
    job = Job()
    job.charged[W1] = 0.0
    job.execution = replace(job.execution, rounds={APP: a_round(job.now, plan="0.9", started_at=job.now - 5.0)})
    job._carry_out(None)

    [found] = measured(job.window())

    assert (found.plan, found.missed, found.incomparable) == ("0.9", (), None)
    assert found.load_distance == pytest.approx(45.0)
