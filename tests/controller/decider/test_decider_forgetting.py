"""`trimtab forget`: apps and workers that are gone for good."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, OPERATOR, W0, W1, a_round, kg, to_w1
from tests.controller.decider.deciders import BALANCED, DRAIN_W1, ON_W0, PAUSE, decider, execution, only, window
from trimtab_controller.decider.events import ExecutionChanged, HoldChanged, IntentsChanged, SnapshotArrived
from trimtab_controller.decider.values.decision import Adopted, Forgotten, IntentRefused, Skip, names_of
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.execution.events import ExecutionLimits, Publish
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling, placement_of
from trimtab_controller.loop.realize import realizing
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import ForgetApp, ForgetWorker
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId

FORGET_APP = ForgetApp(app=APP, by="op", at=1.0, reason="replaced")


FORGET_W1 = ForgetWorker(worker=W1, by="op", at=1.0, reason="renamed")


OTHER = {KeyGroup(AppId("other"), OPERATOR, at): WorkerId(f"w{7 + at}") for at in range(2)}


def two_apps() -> Execution:
    other = placement_of("c", AppId("other"), Epoch(1, 1), OTHER, None)
    return replace(execution(ON_W0), placements={**execution(ON_W0).placements, AppId("other"): other})


def of_app(event: SnapshotArrived, app: str) -> SnapshotArrived:
    nodes = tuple(replace(row, app=AppId(app)) for row in event.snapshot.nodes)
    return SnapshotArrived(snapshot=replace(event.snapshot, nodes=nodes))


def test_an_app_that_is_gone_is_forgotten_also_while_paused_and_hosts_are_lost() -> None:
    made = decider(two_apps(), PAUSE)
    made.on_event(1011.0, of_app(window(OTHER, 1010.0, workers=tuple(OTHER.values())), "other"))
    made.on_event(1021.0, window(ON_W0, 1020.0))
    lost = made.known.views[AppId("other")]
    assert isinstance(lost, NotReady)
    assert lost.reason is SkipReason.HOSTS_LOST, "its two, of four"
    made.on_event(1022.0, IntentsChanged(intents=(PAUSE, replace(FORGET_APP, app=AppId("other")))))
    decision = only(made.on_event(1031.0, window(ON_W0, 1030.0)))
    assert decision == Forgotten(
        what="app other",
        answered=("forget/app/other",),
        detail="its placement of 2 key groups is revoked, asked for by op: replaced",
        app=AppId("other"),
    )
    made.on_event(1032.0, ExecutionChanged(execution=execution(ON_W0)))
    after = only(made.on_event(1041.0, window(ON_W0, 1040.0)))
    assert isinstance(after, Skip)
    assert after.reason is SkipReason.PAUSED, "said once"
    assert (made.known.not_ready, list(made.known.views)) == (None, [APP])


def test_who_still_runs_is_not_forgotten() -> None:
    for wish, what in ((FORGET_APP, "app app"), (FORGET_W1, "worker w1")):
        decision = only(decider(execution(BALANCED), wish).on_event(1011.0, window(BALANCED)))
        assert isinstance(decision, IntentRefused)
        assert decision.answered == (wish.key,)
        assert decision.detail.startswith(f"{what} still runs: w")
        assert names_of(decision) == ("refuse", "forget")


def test_to_refuse_it_harms_no_plan_of_another_app() -> None:
    plan = replace(a_round(None), app=AppId("other"))
    present = replace(two_apps(), rounds={AppId("other"): plan})
    made, machine = decider(present, FORGET_APP), ExecutionMachine("c", ExecutionLimits(), present)
    event = realizing(only(made.on_event(1011.0, window(BALANCED))))
    assert event is not None
    [published] = [each for each in machine.on_event(1011.0, event) if isinstance(each, Publish)]
    assert published.answered == (FORGET_APP.key,)


def test_a_forgotten_worker_is_not_waited_for_started_or_drained() -> None:
    stopped = WorkerScaling(command=to_w1(CommandKind.STOP), phase=ScalingPhase.DONE, at=900.0)
    made = decider(execution({**BALANCED, kg(2): W0}, scalings={W1: stopped}), DRAIN_W1, FORGET_W1)
    alone = {kg(0): W0, kg(1): W0, kg(2): W0}
    decision = only(made.on_event(1011.0, window(alone, workers=(W0,))))
    assert isinstance(decision, Forgotten)
    assert (decision.worker, decision.answered) == (W1, ("forget/worker/w1", "drain/w1"))
    assert made.draining == frozenset()
    made.on_event(1012.0, ExecutionChanged(execution=execution({**BALANCED, kg(2): W0})))
    after = only(made.on_event(1021.0, window(alone, 1020.0, workers=(W0,))))
    assert isinstance(after, Adopted), "not worker_missing for a minute, and no start"
    assert after.owners == alone


def test_nothing_is_forgotten_while_a_round_is_in_flight_on_hold_or_in_a_dry_run() -> None:
    busy = only(decider(execution(ON_W0, rounds={APP: a_round(None)}), FORGET_W1).on_event(1011.0, window(ON_W0)))
    dry = decider(execution(BALANCED), FORGET_APP, acting=False).on_event(1011.0, window(BALANCED))
    held = decider(execution(ON_W0), FORGET_W1)
    held.on_event(1001.0, HoldChanged(reason="the journal"))
    for decision in (busy, only(dry), only(held.on_event(1011.0, window(ON_W0)))):
        assert isinstance(decision, Skip)
