"""One window, several apps: each gets its decision, and a plan in flight of one does not keep the others waiting."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_load, a_round, a_scaling, kg
from tests.controller.decider.deciders import BALANCED, DRAIN_W1, SETTINGS, answer, decider, execution, only, window
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import Action, Decided, ExecutionChanged, IntentsChanged, SnapshotArrived, Solve
from trimtab_controller.decider.memory import absences as kept
from trimtab_controller.decider.memory.absences import KEPT_S, MAX_UNRUN, NEW_AT_ONCE, SPARED_S, AbsenceTracker
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.values.decision import Adopted, Forgotten, Planned, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import Execution, GuardStop, ScalingPhase, placement_of
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import ForgetWorker, MoveKeyGroups, RequestedMove
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

OTHER = AppId("other")
V0, V1 = WorkerId("v0"), WorkerId("v1")
OTHERS_ON_V0 = {kg(partition, OTHER): V0 for partition in range(3)}
ON_W0 = {kg(partition): W0 for partition in range(3)}


def both(end_s: float = 1010.0, others: dict[KeyGroup, WorkerId] | None = None) -> SnapshotArrived:
    """A window of two apps, each with all its key groups on the first of two workers; `other` is loaded more."""
    one = window(ON_W0, end_s).snapshot
    two = window({}, end_s, workers=(V0, V1)).snapshot
    others = OTHERS_ON_V0 if others is None else others
    rows = tuple(a_load(each, owner, 0.2, state_bytes=1000) for each, owner in others.items())
    nodes = tuple(replace(row, app=OTHER, host=HostId(f"o{row.host}")) for row in two.nodes)
    hosts = tuple(replace(row, host=HostId(f"o{row.host}")) for row in two.hosts)
    return SnapshotArrived(
        snapshot=replace(
            one,
            hosts_seen=4,
            hosts_expected=4,
            hosts=(*one.hosts, *hosts),
            nodes=(*one.nodes, *nodes),
            key_groups=(*one.key_groups, *rows),
        )
    )


def placed(**changes: object) -> Execution:
    known = execution(ON_W0)
    other = placement_of("c", OTHER, Epoch(1, 1), OTHERS_ON_V0, None)
    return replace(known, placements={**known.placements, OTHER: other}, **changes)  # type: ignore[arg-type]


def asked(actions: list[Action]) -> list[AppId]:
    return [action.view.app for action in actions if isinstance(action, Solve)]


def test_a_plan_in_flight_keeps_only_its_own_app_waiting() -> None:
    in_flight = a_round(None, app=OTHER)
    made = decider(placed(rounds={OTHER: in_flight}))
    assert asked(made.on_event(1011.0, both())) == [APP]

    calm = decider(placed(rounds={OTHER: in_flight, APP: a_round(None, plan="1.3")}))
    found = only(calm.on_event(1011.0, both()))
    assert found == Skip(reason=SkipReason.PLAN_IN_FLIGHT, detail="other: plan 1.2 is in flight")


def test_a_plan_that_began_while_the_solver_worked_makes_its_answer_useless_and_no_other() -> None:
    made = decider(placed())
    made.on_event(1011.0, both())
    began = placed(rounds={OTHER: a_round(None, app=OTHER)})
    made.on_event(1011.5, ExecutionChanged(execution=began))

    decided, then = made.on_event(1012.0, answer((0, 1)))

    assert isinstance(decided, Decided)
    assert isinstance(decided.decision, Skip)
    assert decided.decision.reason is SkipReason.PLAN_IN_FLIGHT
    assert asked([then]) == [APP]


def test_an_app_is_decided_once_per_window_however_long_the_solver_takes() -> None:
    made = decider(placed())
    made.on_event(1011.0, both())
    assert made.on_event(1021.0, both(1020.0)) == [], "the solver works on"

    decided, then = made.on_event(1022.0, answer())

    assert isinstance(decided, Decided)
    assert isinstance(decided.decision, Skip)
    assert asked([then]) == [APP], "and not OTHER again"


def test_a_round_is_measured_and_the_interval_kept_for_its_own_app() -> None:
    ended = a_round(1005.0, app=OTHER)
    made = decider(placed(rounds={OTHER: ended}))

    actions = made.on_event(1021.0, both(1020.0))

    assert [(each.app, each.plan) for each in actions if isinstance(each, RoundMeasured)] == [(OTHER, "1.2")]
    assert asked(actions) == [APP], "OTHER waits for its interval"
    assert SETTINGS.min_interval_s > 1021.0 - 1005.0


def test_a_stop_under_way_keeps_only_the_app_of_its_worker_waiting() -> None:
    start = a_scaling(CommandKind.START, V1, phase=ScalingPhase.SENT, host=HostId("oh1"))
    made = decider(placed(scalings={V1: start}))
    assert asked(made.on_event(1011.0, both())) == [APP]
    decided, *_ = made.on_event(1012.0, answer())
    waits = [
        each for action in (decided, *_) if isinstance(action, Decided) for each in (action.decision, *action.others)
    ]
    assert SkipReason.NOTHING_BETTER in [each.reason for each in waits if isinstance(each, Skip)]


def test_it_is_told_of_every_app_why_it_has_no_plan() -> None:
    seen = both().snapshot
    unknown = tuple(replace(row, cpu=None if row.key_group.app == APP else 0.001) for row in seen.key_groups)
    told = only_one(
        Decided, decider(placed()).on_event(1011.0, SnapshotArrived(snapshot=replace(seen, key_groups=unknown)))
    )
    assert SkipReason.LOAD_UNKNOWN in {told.decision.reason, *(each.reason for each in told.others)}
    assert {told.decision.app, *(each.app for each in told.others)} == {APP, OTHER}


def test_nothing_that_a_plan_forbids_is_decided_before_the_plan_is_carried_out() -> None:
    """To forget a worker waits for all plans, and the plan just decided is not in flight yet."""
    made = decider(placed())
    made.on_event(1011.0, both())
    forget = ForgetWorker(worker=WorkerId("w9"), by="op", at=1.0, reason="gone")
    made.on_event(1011.5, IntentsChanged(intents=(forget,)))
    decided, then = made.on_event(1012.0, answer((0, 1)))
    assert isinstance(decided.decision, Planned)
    assert asked([then]) == [APP]


def test_what_an_operator_says_while_the_solver_works_is_done_when_it_has_answered() -> None:
    made = decider(placed())
    assert asked(made.on_event(1011.0, both())) == [OTHER]
    moves = (RequestedMove(key_group=kg(0, OTHER), worker=V1),)
    wish = MoveKeyGroups(moves=moves, by="op", at=1011.0, reason="try it")
    made.on_event(1011.5, IntentsChanged(intents=(wish,)))
    actions = [*made.on_event(1012.0, answer()), *made.on_event(1013.0, answer())]
    found = [each.decision for each in actions if isinstance(each, Decided)]
    assert [each.plan.app for each in found if isinstance(each, Planned)] == [OTHER]


def test_a_worker_that_began_to_be_drained_meanwhile_is_no_target() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    made.on_event(1011.5, IntentsChanged(intents=(DRAIN_W1,)))
    found = of_type(Skip, only(made.on_event(1012.0, answer((0, 1)))[:1]))
    assert found.reason is SkipReason.WINDOW_TOO_EARLY
    assert "w1 began to be drained" in found.detail


@pytest.mark.parametrize("held", [True, False])
def test_where_a_drain_is_stuck_a_plan_for_balance_waits_for_what_balance_waits_for(*, held: bool) -> None:
    workers = (W0, W1, WorkerId("w2"))
    owners = {kg(0): W0, kg(1): W0, kg(2): W1}
    ended = GuardStop(app=APP, plan="1.1", at=900.0, until=2000.0, detail="it fell behind")
    made = decider(execution(owners, guarded={APP: ended} if held else {}), DRAIN_W1)
    only_one(Solve, made.on_event(1011.0, window(owners, workers=workers)))
    found = only(made.on_event(1012.0, answer((0, 2)))[:1])
    if held:
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.JOB_SUFFERS
    else:
        assert isinstance(found, Planned)
        assert found.plan.reason is PlanReason.LOAD_DISTANCE


def test_an_app_with_a_start_under_way_gets_no_standbys_beside_owners_that_are_not_placed() -> None:
    """Its placement follows the reports when the start has ended; until then the execution refuses such rows."""
    start = a_scaling(CommandKind.START, V1, phase=ScalingPhase.SENT, host=HostId("oh1"))
    made = decider(placed(scalings={V1: start}))
    seen = both(others=dict.fromkeys(OTHERS_ON_V0, V1)).snapshot
    nodes = tuple(replace(row, standbys=1 if row.app == OTHER else 0) for row in seen.nodes)
    calm = tuple(replace(row, cpu=0.001) for row in seen.key_groups)
    actions = made.on_event(1011.0, SnapshotArrived(snapshot=replace(seen, nodes=nodes, key_groups=calm)))
    assert [type(each.decision) for each in actions if isinstance(each, Decided)] == [Skip]


# ---- how long apps and workers are kept that are gone, and how many new apps a host may bring


EVIL = HostId("evil")


def names(first: int, count: int) -> list[AppId]:
    return [AppId(f"made-up-{index}") for index in range(first, first + count)]


def running(end_s: float, apps: list[AppId], host: HostId = EVIL) -> Snapshot:
    """The app of other tests on its two hosts, and one worker with one key group of each of these on another."""
    seen = window(BALANCED, end_s).snapshot
    rows = tuple(replace(seen.nodes[0], worker=WorkerId(f"w-{app}"), host=host, app=app) for app in apps)
    groups = tuple(a_load(kg(0, app), f"w-{app}", 0.0, tuples_in_s=0.0) for app in apps)
    hosts = (*seen.hosts, replace(seen.hosts[0], host=host))
    return replace(seen, nodes=seen.nodes + rows, key_groups=(*seen.key_groups, *groups), hosts=hosts)


def kept_placed(apps: list[AppId]) -> Execution:
    found = {app: placement_of("c", app, Epoch(1, 1), {kg(0, app): WorkerId(f"w-{app}")}, None) for app in apps}
    return replace(execution(BALANCED), placements={**execution(BALANCED).placements, **found})


def forgotten(of: AbsenceTracker, end_s: float, present: Execution, *intents: object) -> list[str]:
    return [each.what for each in of.to_forget(end_s, present, intents)]  # type: ignore[arg-type]


def test_an_app_that_nobody_runs_is_forgotten_after_a_day_and_never_one_that_somebody_runs_or_may_start() -> None:
    over, pool = names(0, 2)
    of, present = AbsenceTracker(), kept_placed([over, pool])
    of.observe(running(1010.0, [over, pool]), present)
    seen = running(1020.0, [])
    stopped = replace(seen.nodes[0], worker=WorkerId("w9"), app=None, declared=pool)
    of.observe(replace(seen, nodes=(*seen.nodes, stopped)), present)
    assert forgotten(of, 1020.0 + KEPT_S - 1.0, present) == []
    busy = replace(present, rounds={over: a_round(None, app=over)})
    assert forgotten(of, 1020.0 + KEPT_S, busy) == [], "its plan is in flight"
    assert forgotten(of, 1020.0 + KEPT_S, present) == [f"app {over}"]


def test_of_the_apps_that_one_host_alone_ran_the_last_ones_are_kept() -> None:
    many, shared = names(0, MAX_UNRUN + 3), AppId("shared")
    of, present = AbsenceTracker(), kept_placed([*many, shared])
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
        made.on_event(1012.0, ExecutionChanged(execution=kept_placed(adopted)))
    assert placements == NEW_AT_ONCE
    view = made.known.views[names(NEW_AT_ONCE * 3, 1)[0]]
    skip = made._policies.decide(1050.0, view.app)  # type: ignore[arg-type]
    assert isinstance(skip, Skip)
    assert skip.reason is SkipReason.TOO_MANY_APPS
    assert "evil had more than 200 new apps" in skip.detail


def test_no_more_apps_than_may_be_kept_get_a_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_APPS", 2)
    over, new = names(0, 2)
    made, present = decider(kept_placed([over])), kept_placed([over])
    actions = made.on_event(1011.0, SnapshotArrived(snapshot=running(1010.0, [new])))
    assert new in made.known.views
    assert not [each for each in actions if isinstance(each, Decided) and isinstance(each.decision, Adopted)]
    of = AbsenceTracker()
    of.observe(running(1010.0, []), kept_placed([over, new]))
    assert forgotten(of, 1010.0 + SPARED_S, kept_placed([over, new])) == [f"app {over}"], "one too many"
    assert forgotten(of, 1010.0 + SPARED_S, present) == []


def test_a_stopped_worker_that_no_host_names_is_forgotten_after_a_day_unless_it_is_drained() -> None:
    stopped = {W1: a_scaling(CommandKind.STOP, at=900.0)}
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
    made = decider(kept_placed(over))
    made.on_event(1011.0, SnapshotArrived(snapshot=running(1010.0, [])))
    made._situation.memory.kept.unrun[over[0]] -= KEPT_S
    actions = made.on_event(1021.0, SnapshotArrived(snapshot=running(1020.0, [])))
    first = of_type(Decided, actions[0])
    assert first.decision == Forgotten(
        what="app made-up-0", answered=(), detail="nobody has run it for 24 h 0 min", app=over[0]
    )


def test_a_host_that_says_another_speed_each_time_makes_only_its_own_apps_begin_anew() -> None:
    made = decider(execution(ON_W0))
    for number in range(6):
        seen = both(1010.0 + 10.0 * number).snapshot
        measured = {host.host: (host.host[0], 1.0) for host in seen.hosts}
        measured[seen.hosts[-1].host] = "another", 1.0 + number % 2
        hosts = tuple(
            replace(row, type=kind, speed=speed)
            for row, (kind, speed) in zip(seen.hosts, measured.values(), strict=True)
        )
        made.on_event(seen.end_ms / 1000.0, SnapshotArrived(snapshot=replace(seen, hosts=hosts)))
    history = made._situation.memory.history
    assert {app: history[app].windows for app in (APP, OTHER)} == {APP: 6, OTHER: 1}
