"""ALBIC with the costs that the decider measures itself: what saves is brought together, what does not stays."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import a_round
from tests.controller.decider.hosted_job import Ticks
from tests.controller.decider.talking_job import APP, HEAD, QUIET, TAIL, TalkingJob, kg
from tests.narrow import of_type
from trimtab_controller.decider.events import Decided, ExecutionChanged, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies import trial
from trimtab_controller.decider.policies.instance import instance_of, question_of
from trimtab_controller.decider.values.decision import Decision, Planned, Skip, describe
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.collocation import loads_foreseen, saved_since
from trimtab_controller.decider.window.view import PlannableView, SmoothedView
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.solver.answer import Method
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import Epoch
from trimtab_protocol.messages.snapshot import Snapshot

ALBIC = Settings(method=Method.ALBIC, max_migrations=8, min_windows=2)
MILP = replace(ALBIC, method=Method.MILP)


class Watched:
    """A job whose plans are carried out at once."""

    def __init__(self, job: TalkingJob, settings: Settings, *, acting: bool = False) -> None:
        self.job, self.settings, self.acting = job, settings, acting
        self.decider = Decider(settings, Requirements(max_age_s=1e9), Execution(generation=1), acting=acting)
        self.decisions: list[Decision] = []
        self.measured: list[RoundMeasured] = []
        self.moves = self.plans = 0

    def run(self, windows: int) -> "Watched":
        for _ in range(windows):
            self.decide(self.job.window())
        return self

    def decide(self, snapshot: Snapshot) -> Decision:
        now = snapshot.end_ms / 1000.0
        actions = self.decider.on_event(now, SnapshotArrived(snapshot=snapshot))
        if isinstance(actions[-1], Solve):
            found = answer(question_of(actions[-1].view, self.settings, 0.3), Ticks())
            actions = [*actions, *self.decider.on_event(now, SolverAnswered(answer=found))]
        self.measured += [each for each in actions if isinstance(each, RoundMeasured)]
        decision = next(each.decision for each in actions if isinstance(each, Decided))
        self.decisions.append(decision)
        if isinstance(decision, Planned):
            self.moves += len(decision.plan.moves)
            for move in decision.plan.moves:
                self.job.owners[move.key_group] = move.target
        if self.acting and not isinstance(decision, Skip):
            self._carry_out(now, isinstance(decision, Planned))
        return decision

    def _carry_out(self, now: float, planned: bool) -> None:
        self.plans += planned
        done = a_round(now, plan=f"1.{self.plans}", started_at=now, planned=0.0)
        placement = placement_of("c", APP, Epoch(1, 1), self.job.owners, None)
        execution = Execution(generation=1, placements={APP: placement}, rounds={APP: done} if self.plans else {})
        self.decider.on_event(now, ExecutionChanged(execution=execution))

    @property
    def view(self) -> SmoothedView:
        return of_type(SmoothedView, self.decider.known.views[APP])


@pytest.fixture(scope="module")
def brought_together() -> tuple[int, Watched]:
    """How many pairs were apart at first, and the job after 15 windows; half of them bring it together."""
    watched = Watched(TalkingJob(pairs=48, rate=150.0), ALBIC)
    return watched.job.remote, watched.run(15)


def test_what_saves_is_measured_and_brought_together(brought_together: tuple[int, Watched]) -> None:
    before, watched = brought_together
    assert watched.job.remote <= 0.05 * before
    plans = [each.plan for each in watched.decisions if isinstance(each, Planned)]
    assert all("saving" in describe(Planned(plan=each)) for each in plans)
    first = next(each for each in plans if each.collocation is not None)
    assert first.collocation is not None
    assert first.collocation.saved_pp > 0.5
    known = watched.decider.known.together[APP]
    assert known.obtainable == 1.0
    assert known.worth == pytest.approx(0.0, abs=0.05)


def test_loads_and_savings_are_predicted_and_compared_with_what_is_measured() -> None:
    noise = replace(QUIET, key_groups=0.1, windows=0.02)
    settings = replace(ALBIC, max_migrations=6, min_interval_s=0.0, min_gain=0.2)
    watched = Watched(TalkingJob(pairs=48, rate=60.0, noise=noise), settings, acting=True).run(20)
    found = [each for each in watched.measured if each.saving is not None]
    assert len(found) >= 3
    for each in found:
        assert each.saving is not None
        assert each.saving.measured_pp == pytest.approx(each.saving.planned_pp, abs=0.7)
        assert not each.missed
    assert sum(each.saving.measured_pp or 0.0 for each in found if each.saving) > 2.0


def test_loads_are_foreseen_with_what_becomes_local_and_what_becomes_remote() -> None:
    job = TalkingJob(pairs=24, noise=QUIET)
    before = Watched(job, replace(MILP, load_distance=50.0)).run(6).view
    assert set(before.remote_costs) == {HEAD, TAIL}
    for each in range(job.pairs):  # those together part, and the others come together
        together = job.owners[kg(HEAD, each)] == job.owners[kg(TAIL, each)]
        head = job.owners[kg(HEAD, each)]
        job.owners[kg(TAIL, each)] = next(name for name in job.names if (name == head) is not together)
    after = Watched(job, replace(MILP, load_distance=50.0)).run(1).view
    assert loads_foreseen(before, after.owned) == pytest.approx(after.owned.load, rel=1e-6)
    assert saved_since(before, after) == pytest.approx(float(before.owned.load.sum() - after.owned.load.sum()) / 3)
    assert saved_since(before, replace(after, flows={})) is None


@pytest.mark.parametrize("seed", range(3))
def test_a_job_without_communication_cost_is_planned_as_for_balance_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "TRIAL_PAIRS", 0)

    def played(settings: Settings) -> list[Decision]:
        job = TalkingJob(pairs=24, rate=400.0, sending=0.0, receiving=0.0, seed=seed)
        job.rates[:8] *= 3.0
        return Watched(job, settings).run(12).decisions

    for ours, theirs in zip(played(ALBIC), played(MILP), strict=True):
        if isinstance(theirs, Planned):
            assert isinstance(ours, Planned)
            assert ours.plan.moves == theirs.plan.moves
        else:
            assert isinstance(theirs, Skip)
            assert isinstance(ours, Skip)
            assert ours.reason is theirs.reason


def test_snapshots_carry_the_costs_and_a_replay_finds_the_same_plan() -> None:
    job = TalkingJob(pairs=24, noise=QUIET)
    watched = Watched(job, replace(ALBIC, load_distance=0.1, min_gain=100.0)).run(6)
    options = instance_of(PlannableView.of(watched.view), ALBIC).options
    assert options.serialise_cost == pytest.approx(100.0 * 100e-6)
    assert options.deserialise_cost == pytest.approx(100.0 * 120e-6)
    none = TalkingJob(pairs=24, sending=0.0, receiving=0.0)
    assert instance_of(PlannableView.of(Watched(none, ALBIC).run(6).view), ALBIC).options.serialise_cost == 0.0
