"""A rolling restart to a version with other tables: from the second host on, one worker at a time, without a drain."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_scaling, kg
from tests.controller.decider.deciders import NEEDS, SETTINGS, execution, only, window
from tests.narrow import not_none, of_type
from trimtab_controller.decider.events import Decided, ExecutionChanged, IntentsChanged, SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.rolling import restarts, waits
from trimtab_controller.decider.values.decision import Decision, Scaled, Skip, describe, names_of
from trimtab_controller.decider.values.plan_settings import AppPlans, PlanMode, PlanSettings
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.disruption import WINDOW_S, Cause, Disruption, DisruptionSettings, Pauses
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Pause, RollingRestart
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

W2 = WorkerId("w2")
OWNERS = {kg(0): W1, kg(1): W1, kg(2): W2, kg(3): W2}
"""The first host is empty: it was drained, and its worker is the first with the new version."""
WISH = RollingRestart(app=APP, workers=(W0, W1, W2), by="ann", at=900.0, reason="new version")
DIFFER = f"{WORKERS_DIFFER}: w1, w2 against w0"
STOP_W1 = Scaled(
    kind=CommandKind.STOP,
    worker=W1,
    host=HostId("h1"),
    detail=f"to restart it without a drain, since nothing may move: {DIFFER}",
    owning=True,
)


def scaled(worker: WorkerId, kind: CommandKind, at: float, phase: ScalingPhase = ScalingPhase.DONE) -> WorkerScaling:
    made = a_scaling(kind, worker, at, phase, owning=kind is CommandKind.STOP)
    return replace(made, detail="no answer in time" if phase == "failed" else None)


def after(*scalings: WorkerScaling, **changes: object) -> Execution:
    """`w0` has been restarted, and this has happened besides."""
    first = scaled(W0, CommandKind.START, 990.0)
    return execution(OWNERS, scalings={each.command.worker: each for each in (first, *scalings)}, **changes)


def mixed(end_s: float = 1010.0, changes: Mapping[WorkerId, dict[str, object]] | None = None) -> Snapshot:
    """A window in which the workers differ; `changes` = fields of workers."""

    def row(found: NodeWindow) -> NodeWindow:
        plain = replace(found, declared=APP, steering=False, reason=DIFFER)
        return replace(plain, **(changes or {}).get(found.worker, {}))  # type: ignore[arg-type]

    seen = window(OWNERS, end_s, workers=(W0, W1, W2)).snapshot
    return replace(seen, nodes=tuple(map(row, seen.nodes)))


AWAY: dict[str, object] = {"state": WorkerState.AWAY, "app": None, "reason": None, "absence": Absence.STOPPED}


def restarting(present: Execution, **settings: object) -> Decider:
    made = Decider(SETTINGS, NEEDS, present, acting=True, **settings)  # type: ignore[arg-type]
    made.on_event(1000.0, IntentsChanged(intents=(WISH,)))
    return made


def decided(made: Decider, seen: Snapshot) -> Decision:
    return only(made.on_event(seen.end_ms / 1000.0 + 1.0, SnapshotArrived(snapshot=seen)))


def test_each_worker_is_stopped_with_its_key_groups_started_at_once_and_waited_for() -> None:
    made = restarting(after())
    found = decided(made, mixed())
    assert found == STOP_W1
    assert (describe(found), names_of(found)) == (f"stop w1 on h1: {STOP_W1.detail}", ("stop", "restart"))

    made.on_event(1012.0, ExecutionChanged(execution=after(scaled(W1, CommandKind.STOP, 1012.0, ScalingPhase.SENT))))
    made.on_event(1014.0, ExecutionChanged(execution=after(scaled(W1, CommandKind.STOP, 1014.0))))
    assert made.wake_at == 1014.0, "its key groups wait: not until the next window"
    start = Scaled(
        kind=CommandKind.START, worker=W1, host=HostId("h1"), detail="it was stopped to be restarted", owning=False
    )
    assert made.on_tick(1014.0) == [Decided(decision=start)]

    made.on_event(1015.0, ExecutionChanged(execution=after(scaled(W1, CommandKind.START, 1015.0))))
    for end_s, changes in ((1020.0, {W1: AWAY}), (1030.0, {W1: {"state": WorkerState.RECOVERING}})):
        assert isinstance(decided(made, mixed(end_s, changes)), Skip)
    found = of_type(Scaled, decided(made, mixed(1040.0)))
    assert (found.worker, found.owning) == (W2, True)


def test_nothing_is_stopped_while_the_controller_is_paused_or_sees_too_little() -> None:
    made = restarting(after())
    made.on_event(1001.0, IntentsChanged(intents=(WISH, Pause(by="ann", at=1.0, reason="release"))))
    assert isinstance(decided(made, mixed()), Skip)
    made = restarting(after())
    assert isinstance(only(made.on_event(1100.0, SnapshotArrived(snapshot=mixed()))), Skip), "the window is old"


NO_ROOM = Disruption(
    since=-WINDOW_S,
    apps={
        APP: (Pauses(began_at=1000.0, ended_at=1000.0, measured_s=10.0, key_groups=4, cause=Cause.STARTS_AND_STOPS),)
    },
)


@pytest.mark.parametrize(
    ("present", "seen", "settings", "why"),
    [
        (after(scaled(W1, CommandKind.STOP, 1005.0)), mixed(changes={W1: AWAY}), {}, "w1 is not back: it is away"),
        (
            after(scaled(W1, CommandKind.START, 1005.0, ScalingPhase.FAILED)),
            mixed(changes={W1: AWAY}),
            {},
            "w1 is not back: its start failed (no answer in time), and is tried again",
        ),
        (
            after(scaled(W1, CommandKind.START, 995.0)),
            mixed(changes={W1: {"reason": "tables in memory"}}),
            {},
            "w1 is not back: it only reports (tables in memory)",
        ),
        (after(scaled(W1, CommandKind.START, 1005.0)), mixed(), {}, "w1 is not back: no whole window shows it yet"),
        (
            after(scaled(W1, CommandKind.STOP, 1005.0, ScalingPhase.FAILED)),
            mixed(),
            {},
            "w1 was not stopped (no answer in time), and is tried again",
        ),
        (
            after(),
            mixed(changes={W2: {"state": WorkerState.RECOVERING}}),
            {},
            "w2 must run again first: recovering",
        ),
        (
            after(),
            mixed(changes={W2: AWAY}),
            {},
            "w2 must be back first: away, with key groups in the placement",
        ),
        (
            after(),
            mixed(),
            {"plans": PlanSettings(apps={APP: AppPlans(mode=PlanMode.DRY_RUN)})},
            "the mode of app is dry-run, see [plans]",
        ),
        (
            after(disruption=NO_ROOM),
            mixed(),
            {"budget": PauseBudget(settings=DisruptionSettings(max_paused_s_per_hour=10.0))},
            "the disruption budget has no room for a rebalance: 10.0 of 10 paused key-group seconds in the last hour, "
            "10.0 by starts and stops; room again in 60 min",
        ),
    ],
)
def test_it_says_what_it_waits_for(present: Execution, seen: Snapshot, settings: dict[str, object], why: str) -> None:
    made = restarting(present, **settings)
    decision = decided(made, seen)
    assert not isinstance(decision, Scaled) or decision.kind is CommandKind.START
    [found] = restarts(made.intents, present, seen)
    assert waits(1011.0, found, present, made.known, made.plans, made.budget) == why


def test_a_failed_stop_is_tried_again_after_a_while() -> None:
    made = restarting(after(scaled(W1, CommandKind.STOP, 1005.0, ScalingPhase.FAILED)))
    assert isinstance(decided(made, mixed(1060.0)), Skip)
    assert decided(made, mixed(1080.0)) == STOP_W1


def test_it_does_not_wait_for_ever_for_a_worker_that_is_lost() -> None:
    made = restarting(after())
    for end_s in (1010.0, 1020.0, 1030.0, 1040.0, 1050.0, 1060.0):
        assert isinstance(decided(made, mixed(end_s, {W2: AWAY})), Skip)
    assert decided(made, mixed(1070.0, {W2: AWAY})) == STOP_W1


def test_a_host_that_cannot_be_emptied_is_said() -> None:
    """The workers agree, and yet nothing can be planned."""
    steer: dict[str, object] = {"steering": True, "reason": None}
    late: dict[str, object] = {**steer, "state": WorkerState.REBALANCING}
    seen = mixed(changes={W0: steer, W1: late, W2: late})
    made = restarting(after())
    decided(made, seen)
    [found] = restarts(made.intents, after(), seen)
    told = not_none(waits(1011.0, found, after(), made.known, made.plans, made.budget))
    assert told.startswith("w1 cannot be emptied yet: worker_not_running: ")
