"""The decider changes the size of an app: as configured, by an operator's word, and back when an operator says so."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_scaling, kg
from tests.controller.decider.deciders import BALANCED, NEEDS, PAUSE, SETTINGS, answer, execution, only, window
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import (
    ExecutionChanged,
    HookEnded,
    IntentsChanged,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Decision, Resized, Skip, describe, names_of
from trimtab_controller.decider.values.plan_settings import AppPlans, PlanSettings
from trimtab_controller.decider.values.reasons import ConcernKind, SkipReason
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.disruption import Cause, Disruption, DisruptionSettings, Pauses
from trimtab_controller.execution.state import AppSize, Execution, ScalingPhase, SizeChange, WorkerScaling
from trimtab_controller.solver.answer import Method
from trimtab_controller.solver.balance import answer as solved
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Drain, Intent, RollingRestart, Scale, Undrain
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import PairWindow

W2, W3 = WorkerId("w2"), WorkerId("w3")
ACT = ScalingSettings(mode=Mode.ACT, scale_up_delay_s=20.0, scale_down_delay_s=20.0)
CHANGE = SizeChange(at=900.0, before=1, after=2, rate=1.0)


def decider(present: Execution, *intents: Intent, scaling: ScalingSettings = ACT, acting: bool = True) -> Decider:
    made = Decider(SETTINGS, NEEDS, present, acting=acting, scaling=scaling)
    made.on_event(1000.0, IntentsChanged(intents=intents))
    return made


def seen(end_s: float, cpu: float, *pool: WorkerId, again: tuple[WorkerId, ...] = (W1,)) -> SnapshotArrived:
    """Two workers of one core, each with a key group that takes so much of it, and workers that can be started.

    `again`: those that run and can be started again.
    """
    snapshot = window(BALANCED, end_s, cpu=cpu).snapshot
    nodes = tuple(
        replace(row, cpu=cpu, standbys=0, declared=APP if row.worker in again else None) for row in snapshot.nodes
    )
    idle = tuple(
        replace(
            nodes[0], worker=worker, host=HostId(f"h{worker[1:]}"), app=None, state=WorkerState.AWAY, cpu=None,
            steering=False, absence=Absence.STOPPED, declared=APP,
        )
        for worker in pool
    )  # fmt: skip
    return SnapshotArrived(snapshot=replace(snapshot, nodes=(*nodes, *idle)))


def started(worker: WorkerId = W1, phase: ScalingPhase = ScalingPhase.DONE, at: float = 900.0) -> dict:
    """Scalings in which the controller started w1 for the app."""
    return {worker: a_scaling(CommandKind.START, worker, at, phase, app=APP, issued_at=at - 1.0)}


def decisions(made: Decider, cpu: float, *pool: WorkerId, windows: int = 2) -> list[Decision]:
    """Of so many windows; the solver answers."""
    found = []
    for number in range(windows):
        actions = made.on_event(1011.0 + 10.0 * number, seen(1010.0 + 10.0 * number, cpu, *pool))
        if isinstance(actions[-1], Solve):
            question = question_of(actions[-1].view, SETTINGS, 1.0)
            actions = made.on_event(1012.0 + 10.0 * number, SolverAnswered(answer=solved(question)))
        found.append(only(actions))
    return found


def test_workers_of_the_pool_are_started_when_the_need_has_lasted() -> None:
    made = decider(execution(BALANCED))
    first, second = decisions(made, 0.95, W2, W3)
    assert isinstance(first, Skip)
    assert isinstance(second, Resized)
    assert (list(second.start), second.drain) == ([W2], ())
    assert second.change == SizeChange(at=1021.0, before=2, after=3, rate=2.0)
    assert names_of(second) == ("resize", "out")
    assert describe(second) == (
        "app: start w2 on h2: 2 workers, demand 1.90 of 2.00 cores (95%), wanted 3: demand above 85% for 20 s"
    )
    assert made.known.sizes[APP].desired == 3


@pytest.mark.parametrize("before", [{}, started(W2, at=500.0)])
def test_no_other_worker_is_started_while_an_agent_starts_one_again_that_has_crashed(
    before: dict[WorkerId, WorkerScaling],
) -> None:
    """It has lost its key groups meanwhile, so nothing else counts it."""
    made = decider(execution(BALANCED, scalings=before))

    def decide(end_s: float) -> Decision:
        snapshot = seen(end_s, 0.95, W2, W3).snapshot
        nodes = (replace(row, absence=Absence.STARTING) if row.worker == W2 else row for row in snapshot.nodes)
        return only(made.on_event(end_s + 1.0, SnapshotArrived(snapshot=replace(snapshot, nodes=tuple(nodes)))))

    first = [decide(1010.0 + 10.0 * window) for window in range(int(ACT.restart_s / 10.0))]
    assert all(isinstance(found, Skip) for found in first)
    assert made.known.sizes[APP].detail.endswith("waiting for w2 to run")
    found = decide(1010.0 + ACT.restart_s)
    assert isinstance(found, Resized), "it counts for as long as any other worker that was started"
    assert list(found.start) == [W3]


@pytest.mark.parametrize(("mode", "acting"), [(Mode.ADVISE, True), (Mode.ACT, False)])
def test_who_only_advises_says_what_is_wanted(mode: Mode, acting: bool) -> None:
    made = decider(execution(BALANCED), scaling=replace(ACT, mode=mode), acting=acting)
    assert all(isinstance(found, Skip) for found in decisions(made, 0.95, W2))
    told = made.known.sizes[APP]
    said = "advise" if acting else "dry run"
    assert told.detail.endswith(f"wanted 3: demand above 85% for 20 s ({said}: nothing is changed)")
    assert (told.desired, made.known.concerns[-1:]) == (3, ())


def test_an_app_follows_its_own_settings() -> None:
    own = replace(ACT, mode=Mode.OFF, apps={APP: {"mode": Mode.ACT, "max_utilisation": 0.99, "min_workers": 3}})
    made = decider(execution(BALANCED), scaling=own)
    _, found = decisions(made, 0.95, W2)
    assert isinstance(found, Resized)
    assert found.detail.endswith("wanted 3: min_workers is 3 for 20 s")
    assert made.known.sizes[APP].own == ("max_utilisation = 0.99", "min_workers = 3", 'mode = "act"')


def test_in_a_freeze_of_its_plans_no_app_changes_its_size_by_itself() -> None:
    plans = PlanSettings(apps={APP: AppPlans(freeze=("* * * * *",))})
    made = Decider(SETTINGS, NEEDS, execution(BALANCED), acting=True, scaling=ACT, plans=plans)
    assert all(isinstance(found, Skip) for found in decisions(made, 0.95, W2))
    assert made.known.sizes[APP].detail.endswith(", but [plans] freeze holds: * * * * * (UTC)")
    word = Scale(app=APP, workers=3, by="ann", at=1.0, reason="a sale")
    made.on_event(1022.0, IntentsChanged(intents=(word,)))
    assert isinstance(only(made.on_event(1031.0, seen(1030.0, 0.95, W2))), Resized), "an operator's word counts"


def test_mode_off_says_nothing_but_a_word_acts() -> None:
    off = replace(ACT, mode=Mode.OFF)
    made = decider(execution(BALANCED), scaling=off)
    decisions(made, 0.95, W2)
    assert made.known.sizes == {}
    word = Scale(app=APP, workers=3, by="ann", at=1.0, reason="a sale")
    found = only_one(Resized, decisions(decider(execution(BALANCED), word, scaling=off), 0.5, W2, windows=1))
    assert list(found.start) == [W2]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_worker_that_a_rolling_restart_takes_away_needs_no_other_in_its_place(stopped: bool) -> None:
    wish = RollingRestart(app=APP, workers=(W0, W1), by="ann", at=900.0, reason="release")
    word = Scale(app=APP, workers=2, by="ann", at=1.0, reason="a sale")
    owners = {kg(0): W1, kg(1): W1} if stopped else BALANCED
    scalings = {W0: a_scaling(CommandKind.STOP, W0, 950.0)} if stopped else {}
    made = decider(execution(owners, scalings=scalings), wish, word)
    for number in range(3):
        at = 1010.0 + 10.0 * number
        snapshot = window(owners, at, cpu=0.3).snapshot
        pool = seen(at, 0.3, W0, W2).snapshot.nodes[-2:]
        here = [replace(row, declared=APP) for row in snapshot.nodes if row.worker == W1 or not stopped]
        nodes = (*here, *pool[not stopped :])
        found = made.on_event(at + 1.0, SnapshotArrived(snapshot=replace(snapshot, nodes=nodes)))
        assert not [each for each in found if isinstance(getattr(each, "decision", None), Resized)]
        told = made.known.sizes[APP]
        assert (told.workers, told.wanted, told.due) == (1 if stopped else 2, 2, False), told.detail
    assert stopped == told.detail.endswith("waiting for w0 to run")


def test_a_worker_that_is_started_after_its_drain_is_waited_for_before_another_one_is_started() -> None:
    word = Scale(app=APP, workers=2, by="ann", at=1.0, reason="a sale")
    owners = {kg(0): W1, kg(1): W1}
    for declared, waited in ((APP, True), (None, False)):
        made = decider(execution(owners, scalings={W0: a_scaling(CommandKind.START, W0, 950.0)}), word)
        snapshot = window(owners, 1010.0, cpu=0.3).snapshot
        away, in_pool = seen(1010.0, 0.3, W0, W2).snapshot.nodes[-2:]
        nodes = (*(row for row in snapshot.nodes if row.worker == W1), replace(away, declared=declared), in_pool)
        found = made.on_event(1011.0, SnapshotArrived(snapshot=replace(snapshot, nodes=nodes)))
        assert waited == (not [each for each in found if isinstance(getattr(each, "decision", None), Resized)])
        assert waited == made.known.sizes[APP].detail.endswith("waiting for w0 to run")


def test_a_pause_stops_also_changes_of_the_size() -> None:
    made = decider(execution(BALANCED), PAUSE)
    assert [found.reason for found in decisions(made, 0.95, W2)] == [SkipReason.PAUSED] * 2


def crowded(end_s: float, *pool: WorkerId) -> SnapshotArrived:
    """As `seen`; w2 is on the host of w0, which has one core."""
    snapshot = seen(end_s, 0.95, *pool).snapshot
    hosts = (replace(row, cores=1.0, cpu=0.95) if row.host == "h0" else row for row in snapshot.hosts)
    nodes = (replace(row, host=HostId("h0")) if row.worker == W2 else row for row in snapshot.nodes)
    return SnapshotArrived(snapshot=replace(snapshot, hosts=tuple(hosts), nodes=tuple(nodes)))


@pytest.mark.parametrize(("scaling", "word"), [(ACT, False), (replace(ACT, min_workers=3), True), (ACT, True)])
def test_a_worker_is_not_started_on_a_host_that_has_no_cpu_left_unless_somebody_says_so(
    scaling: ScalingSettings, word: bool
) -> None:
    wanted = [Scale(app=APP, workers=3, by="ann", at=1.0, reason="a sale")] if word and scaling is ACT else []
    made = decider(execution(BALANCED), *wanted, scaling=scaling)
    found = [only(made.on_event(1011.0 + 10.0 * n, crowded(1010.0 + 10.0 * n, W2))) for n in range(2)]
    started = {worker for each in found if isinstance(each, Resized) for worker in each.start}
    assert started == ({W2} if word else set())
    told = [row.detail for row in made.known.concerns if row.kind is ConcernKind.TOO_FEW_WORKERS]
    assert [text.rpartition("but ")[2] for text in told] == (
        [] if word else ["no agent can start 1 worker more; the hosts of w2 have no CPU left"]
    )


def test_only_a_worker_that_its_agent_can_start_again_leaves_and_its_drain_is_its_own() -> None:
    _, found = decisions(decider(execution(BALANCED)), 0.1)
    assert isinstance(found, Resized)
    assert (found.drain, names_of(found)) == ((W1,), ("resize", "in"))
    kept = decider(execution(BALANCED, scalings=started()))  # started by the controller, and no longer declared
    windows = [seen(end_s, 0.1, again=()) for end_s in (1010.0, 1020.0)]
    assert all(isinstance(only(kept.on_event(1021.0, each)), Skip) for each in windows)


def test_a_leaving_worker_is_drained_stopped_and_not_started_again() -> None:
    sizes = {APP: AppSize(leaving=(W1,), changes=(CHANGE,))}
    made = decider(execution(BALANCED, sizes=sizes, scalings=started()))
    solve = only_one(Solve, made.on_event(1011.0, seen(1010.0, 0.1)))
    assert [worker.id for worker in solve.view.workers if worker.draining] == [W1]

    empty = {kg(0): W0, kg(1): W0}
    made = decider(execution(empty, sizes=sizes, scalings=started()))
    stop = only(made.on_event(1011.0, window(empty)))
    assert (stop.kind, stop.worker, stop.app, names_of(stop)) == (CommandKind.STOP, W1, APP, ("stop", "size"))

    stopped = {W1: a_scaling(CommandKind.STOP, at=960.0, app=APP)}
    made = decider(execution(empty, sizes={APP: AppSize(changes=(CHANGE,))}, scalings=stopped))
    one = window(empty, 1010.0, workers=(W0,))
    assert isinstance(only(made.on_event(1011.0, one)), Skip)


def test_an_operator_wins_over_a_drain_of_the_controller() -> None:
    sizes = {APP: AppSize(leaving=(W1,), changes=(CHANGE,))}
    present = execution(BALANCED, sizes=sizes, scalings=started())
    undrain = Undrain(worker=W1, by="ann", at=1.0, reason="it is new")
    found = of_type(Resized, only(decider(present, undrain).on_event(1011.0, seen(1010.0, 0.1))))
    assert (found.keep, found.answered, found.change) == ((W1,), ("undrain/w1",), None)
    assert describe(found) == "app: keep w1: ann keeps w1: it is new"
    drain = Drain(worker=W1, by="ann", at=1.0, reason="kernel")
    found = of_type(Resized, only(decider(present, drain).on_event(1011.0, seen(1010.0, 0.1))))
    assert (found.keep, found.answered, found.detail) == ((W1,), (), "ann drains w1")
    nobody = only(decider(execution(BALANCED), undrain).on_event(1011.0, seen(1010.0, 0.1)))
    assert (nobody.app, nobody.keep, nobody.answered) == (None, (), ("undrain/w1",))


def test_a_worker_that_ended_by_itself_is_no_longer_drained_but_an_old_window_says_nothing_of_it() -> None:
    sizes = {APP: AppSize(leaving=(W2,), changes=(CHANGE,))}
    made = decider(execution(BALANCED, sizes=sizes))
    found = of_type(Resized, only(made.on_event(1011.0, seen(1010.0, 0.5, W2))))
    assert (found.keep, found.detail) == ((W2,), "w2 does not run any more")
    late = {APP: AppSize(leaving=(W2,), changes=(replace(CHANGE, at=1005.0),))}
    assert isinstance(only(decider(execution(BALANCED, sizes=late)).on_event(1011.0, seen(1010.0, 0.5, W2))), Skip)


def test_a_start_that_failed_leaves_the_others_of_the_pool() -> None:
    failed = started(W2, ScalingPhase.FAILED, at=1000.0)
    made = decider(execution(BALANCED, scalings=failed))
    _, found = decisions(made, 0.95, W2, W3)
    assert isinstance(found, Resized)
    assert list(found.start) == [W3]
    later = decider(execution(BALANCED, scalings=started(W2, ScalingPhase.FAILED, at=600.0)))
    _, found = decisions(later, 0.95, W2)
    assert list(found.start) == [W2]


def test_a_start_that_took_longer_than_configured_is_waited_for_the_next_time_and_said() -> None:
    slow = replace(ACT, restart_s=10.0)
    made = decider(execution(BALANCED), scaling=slow)
    decisions(made, 0.95, windows=1)
    made.on_event(1051.0, ExecutionChanged(execution=execution(BALANCED, scalings=started(W1, at=1022.0))))
    made.on_event(1051.0, seen(1050.0, 0.95))
    told = made.known.sizes[APP]
    assert (told.restart_s, told.measured_restart_s) == (10.0, 29.0), "since the command, a second before its ack"
    made.on_event(1062.0, ExecutionChanged(execution=execution(BALANCED, scalings=started(W2, at=1040.0))))
    made.on_event(1062.0, seen(1060.0, 0.95, W3))
    assert made.known.sizes[APP].detail.endswith("waiting for w2 to run")


def test_the_hook_adds_what_the_pool_lacks_and_is_awaited() -> None:
    made = decider(execution(BALANCED), scaling=replace(ACT, hook=("add",)))
    _, found = decisions(made, 0.95)
    assert isinstance(found, Resized)
    assert (found.start, found.short, names_of(found)) == ({}, 1, ("resize", "out"))
    made.on_event(1022.0, ExecutionChanged(execution=execution(BALANCED)))
    later = [only(made.on_event(1031.0 + 10 * n, seen(1030.0 + 10 * n, 0.95))) for n in range(3)]
    assert all(isinstance(each, Skip) for each in later)
    assert made.known.sizes[APP].detail.endswith("; waiting for the hook")
    made.on_event(1060.0, HookEnded(app=APP, failure="exit code 3: no quota"))
    of_type(Resized, only(made.on_event(1061.0, seen(1060.0, 0.95))))
    assert made.known.sizes[APP].detail.endswith("; the hook failed: exit code 3: no quota")


def talking(end_s: float, tuples_s: float) -> SnapshotArrived:
    """Two busy workers, whose key groups talk to each other."""
    talk = PairWindow(source=kg(0), target=kg(1), tuples_s=tuples_s, bytes_s=0.0)
    return SnapshotArrived(snapshot=replace(seen(end_s, 0.95, W2).snapshot, pairs=(talk,)))


def test_collocation_that_fits_no_worker_holds_up_nothing() -> None:
    albic = replace(SETTINGS, method=Method.ALBIC, remote_tuple_cpu_s=0.01)
    made = Decider(albic, NEEDS, execution(BALANCED), acting=True, scaling=ACT)
    made.on_event(1011.0, talking(1010.0, 60.0))
    assert "collocation" not in made.known.sizes[APP].detail, "1.9 cores less 0.6 are no part of 0.85"


def test_with_albic_collocation_comes_before_more_workers_until_a_plan_is_sought_in_vain() -> None:
    albic = replace(SETTINGS, method=Method.ALBIC, remote_tuple_cpu_s=0.01)
    made = Decider(albic, NEEDS, execution(BALANCED), acting=True, scaling=ACT)

    def arrive(end_s: float) -> list:
        return made.on_event(end_s + 1.0, talking(end_s, 110.0))

    arrive(1010.0)
    [solve] = arrive(1020.0) or [None]
    assert solve is None, "the solver is still asked about the first window"
    assert made.known.sizes[APP].asks is not None
    nothing = SolverAnswered(answer=replace(answer().answer, moves=(), load_distance=15.0))
    [decided, *_] = made.on_event(1021.5, nothing)
    assert decided.decision.reason is SkipReason.NOTHING_BETTER
    grown = arrive(1030.0)
    assert isinstance(only(grown), Resized)


def test_changes_that_can_wait_wait_for_room_in_the_disruption_budget() -> None:
    budget = PauseBudget(settings=DisruptionSettings(max_paused_s_per_hour=10.0))
    used = Pauses(began_at=990.0, ended_at=990.0, measured_s=20.0, key_groups=2, cause=Cause.REBALANCES)
    present = execution(BALANCED, disruption=Disruption(since=0.0, apps={APP: (used,)}))

    def last(cpu: float) -> tuple[Decider, Decision]:
        made = Decider(SETTINGS, NEEDS, present, acting=True, scaling=ACT, budget=budget)
        made.on_event(1000.0, IntentsChanged(intents=()))
        found = [only(made.on_event(end_s + 1, seen(end_s, cpu, W2))) for end_s in (1010.0, 1020.0, 1030.0, 1040.0)]
        return made, found[-1]

    made, held = last(0.9)
    assert isinstance(held, Skip)
    made.on_event(1051.0, seen(1050.0, 0.9, W2))
    assert "but the disruption budget has no room for a rebalance: 20.0 of 10" in made.known.sizes[APP].detail
    _, urgent = last(1.2)
    assert isinstance(urgent, Resized), "the app is asked for more than it can do"
