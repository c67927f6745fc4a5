"""How long apps and workers are kept that are gone, and how many new apps a host may bring."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_round, kg, to_w1
from tests.controller.decider.deciders import BALANCED, DRAIN_W1, decider, execution, window
from trimtab_controller.decider.events import Decided, ExecutionChanged, SnapshotArrived
from trimtab_controller.decider.memory import absences as kept
from trimtab_controller.decider.memory.absences import KEPT_S, MAX_UNRUN, NEW_AT_ONCE, SPARED_S, AbsenceTracker
from trimtab_controller.decider.values.decision import Adopted, Forgotten, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling, placement_of
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId
from trimtab_protocol.messages.snapshot import KeyGroupWindow, Snapshot

EVIL = HostId("evil")


def names(first: int, count: int) -> list[AppId]:
    return [AppId(f"made-up-{index}") for index in range(first, first + count)]


def running(end_s: float, apps: list[AppId], host: HostId = EVIL) -> Snapshot:
    """The app of other tests on its two hosts, and one worker with one key group of each of these on another."""
    seen = window(BALANCED, end_s).snapshot
    rows = tuple(replace(seen.nodes[0], worker=WorkerId(f"w-{app}"), host=host, app=app) for app in apps)
    groups = tuple(
        KeyGroupWindow(key_group=kg(0, app), worker=WorkerId(f"w-{app}"), covered_s=10.0, cpu=0.0, tuples_in_s=0.0)
        for app in apps
    )
    hosts = (*seen.hosts, replace(seen.hosts[0], host=host))
    return replace(seen, nodes=seen.nodes + rows, key_groups=(*seen.key_groups, *groups), hosts=hosts)


def placed(apps: list[AppId]) -> Execution:
    found = {app: placement_of("c", app, Epoch(1, 1), {kg(0, app): WorkerId(f"w-{app}")}, None) for app in apps}
    return replace(execution(BALANCED), placements={**execution(BALANCED).placements, **found})


def forgotten(of: AbsenceTracker, end_s: float, present: Execution, *intents: object) -> list[str]:
    return [each.what for each in of.to_forget(end_s, present, intents)]  # type: ignore[arg-type]


def test_an_app_that_nobody_runs_is_forgotten_after_a_day_and_never_one_that_somebody_runs_or_may_start() -> None:
    over, pool = names(0, 2)
    of, present = AbsenceTracker(), placed([over, pool])
    of.observe(running(1010.0, [over, pool]), present)
    seen = running(1020.0, [])
    stopped = replace(seen.nodes[0], worker=WorkerId("w9"), app=None, declared=pool)
    of.observe(replace(seen, nodes=(*seen.nodes, stopped)), present)
    assert forgotten(of, 1020.0 + KEPT_S - 1.0, present) == []
    busy = replace(present, rounds={over: replace(a_round(None), app=over)})
    assert forgotten(of, 1020.0 + KEPT_S, busy) == [], "its plan is in flight"
    assert forgotten(of, 1020.0 + KEPT_S, present) == [f"app {over}"]


def test_of_the_apps_that_one_host_alone_ran_the_last_ones_are_kept() -> None:
    many, shared = names(0, MAX_UNRUN + 3), AppId("shared")
    of, present = AbsenceTracker(), placed([*many, shared])
    two = running(1010.0, [*many, shared])
    second = replace(two.nodes[-1], worker=WorkerId("w8"), host=HostId("h0"))
    of.observe(replace(two, nodes=(*two.nodes, second)), present)
    of.observe(running(1020.0, many[3:]), present)
    of.observe(running(1030.0, []), present)
    assert forgotten(of, 1020.0 + SPARED_S - 1.0, present) == []
    assert forgotten(of, 1030.0 + SPARED_S, present) == [f"app {app}" for app in sorted(many[:3])]


def test_new_apps_of_a_host_get_their_first_placements_at_a_limited_rate() -> None:
    """One host that invented 200 names in each window made 2,401 placements in two minutes, kept for ever."""
    made, placements = decider(execution(BALANCED)), 0
    for turn in range(4):
        seen = running(1010.0 + 10.0 * turn, names(NEW_AT_ONCE * turn, NEW_AT_ONCE))
        actions = made.on_event(1011.0 + 10.0 * turn, SnapshotArrived(snapshot=seen))
        decided = [action.decision for action in actions if isinstance(action, Decided)]
        adopted = [each.app for each in decided if isinstance(each, Adopted)]
        placements += len(adopted)
        made.on_event(1012.0, ExecutionChanged(execution=placed(adopted)))
    assert placements == NEW_AT_ONCE
    view = made.known.views[names(NEW_AT_ONCE * 3, 1)[0]]
    skip = made._policies.decide(1050.0, view.app)  # type: ignore[arg-type]
    assert isinstance(skip, Skip)
    assert skip.reason is SkipReason.TOO_MANY_APPS
    assert "evil had more than 200 new apps" in skip.detail


def test_no_more_apps_than_may_be_kept_get_a_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_APPS", 2)
    over, new = names(0, 2)
    made, present = decider(placed([over])), placed([over])
    actions = made.on_event(1011.0, SnapshotArrived(snapshot=running(1010.0, [new])))
    assert new in made.known.views
    assert not [each for each in actions if isinstance(each, Decided) and isinstance(each.decision, Adopted)]
    of = AbsenceTracker()
    of.observe(running(1010.0, []), placed([over, new]))
    assert forgotten(of, 1010.0 + SPARED_S, placed([over, new])) == [f"app {over}"], "one too many"
    assert forgotten(of, 1010.0 + SPARED_S, present) == []


def test_a_stopped_worker_that_no_host_names_is_forgotten_after_a_day_unless_it_is_drained() -> None:
    stopped = {W1: WorkerScaling(command=to_w1(CommandKind.STOP), phase=ScalingPhase.DONE, at=900.0)}
    present = execution({kg(0): W0, kg(1): W0}, scalings=stopped)
    of, seen = AbsenceTracker(), window({kg(0): W0, kg(1): W0}, workers=(W0,)).snapshot
    of.observe(seen, present)
    assert forgotten(of, 1010.0 + KEPT_S - 1.0, present) == []
    assert forgotten(of, 1010.0 + KEPT_S, present, DRAIN_W1) == []
    flying = replace(present, rounds={APP: a_round(None)})
    assert forgotten(of, 1010.0 + KEPT_S, flying) == []
    assert forgotten(of, 1010.0 + KEPT_S, present) == ["worker w1"]


def test_the_decider_forgets_by_itself() -> None:
    over = names(0, 1)
    made = decider(placed(over))
    made.on_event(1011.0, SnapshotArrived(snapshot=running(1010.0, [])))
    made._situation.memory.kept.unrun[over[0]] -= KEPT_S
    actions = made.on_event(1021.0, SnapshotArrived(snapshot=running(1020.0, [])))
    first = actions[0]
    assert isinstance(first, Decided)
    assert first.decision == Forgotten(
        what="app made-up-0", answered=(), detail="nobody has run it for 24 h 0 min", app=over[0]
    )
