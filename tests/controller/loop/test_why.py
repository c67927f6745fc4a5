"""`trimtab why`: where a key group is, by which plan, and what moving it would do."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tests.controller.cli.status_examples import STATUS
from tests.controller.decider.decider_situations import a_handover, a_round, owned, plannable
from tests.controller.decider.hosted_job import APP, kg
from tests.controller.execution.execution_transcripts import CLUSTER, W0, W1, W2
from tests.narrow import not_none
from trimtab_controller.cli.why import show
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.view import UNLIMITED, FixedWorker, PlannableView, Worker
from trimtab_controller.execution.state import Execution, HandMoved, HandoverPhase, placement_of
from trimtab_controller.loop.events.explanation import explain_plan
from trimtab_controller.loop.why import UnknownKeyGroupError, why_here
from trimtab_protocol.messages.events import Event, EventLoad, EventMove
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.status import DecisionStatus

WORKERS = tuple(Worker(id=name, host=HostId(f"h-{name}"), capacity=1.0, draining=False) for name in (W0, W1, W2))
LOADS = {0: (W0, 30.0), 1: (W0, 20.0), 2: (W1, 25.0), 3: (W2, 15.0)}
VIEW = plannable(WORKERS, [owned(kg(at), owner, load, 100 * at) for at, (owner, load) in LOADS.items()])
PLACEMENT = replace(
    placement_of(CLUSTER, APP, Epoch(1, 1), {kg(at): owner for at, (owner, _) in LOADS.items()}, None),
    owners={OperatorId("sums"): ((W0, W1), (W0, W2), (W1,), (W2,))},
)
EXECUTION = Execution(generation=1, number=1, placements={APP: PLACEMENT})
BEGUN = Event(
    id="1", cluster=CLUSTER, at=100.0, kind="plan", phase="begun", text="app: 2 moves", reason="load_distance",
    app=APP, plan="1.2", before=20.0, planned=5.0, lower_bound=1.0, mean_load=30.0,
    moves=(
        EventMove(key_group=kg(1), source=W1, target=W0, why="over_mean", warm="standby", load_pct=20.0),
        EventMove(key_group=kg(2), source=W0, target=W1, why="makes_room", load_pct=25.0),
    ),
    moves_total=2,
    loads=(EventLoad(worker=W0, before=45.0, planned=50.0), EventLoad(worker=W1, before=45.5, planned=25.0)),
)  # fmt: skip
ENDED = Event(
    id="2", cluster=CLUSTER, at=110.0, kind="plan", phase="ended", text="plan 1.2 ended", app=APP, plan="1.2",
    moves=(
        EventMove(key_group=kg(1), source=W1, target=W0, outcome="done", pause_s=0.25),
        EventMove(key_group=kg(2), source=W0, target=W1, outcome="failed"),
    ),
    moves_total=2,
)  # fmt: skip
MEASURED = Event(
    id="3", cluster=CLUSTER, at=130.0, kind="plan", phase="measured", text="app: measured", app=APP, plan="1.2",
    planned=5.0, measured=5.5,
    loads=(EventLoad(worker=W0, before=45.0, planned=50.0, measured=49.0), EventLoad(worker=W2, measured=1.0)),
)  # fmt: skip
EVENTS = (BEGUN, ENDED, MEASURED)


def known(view: PlannableView | NotReady = VIEW) -> WindowResult:
    return WindowResult(views={APP: view}, not_ready=None)


@pytest.mark.parametrize(("age_s", "waits"), [(90.0, True), (130.0, False)])
def test_that_plans_wait_is_told_while_the_decision_is_new(age_s: float, waits: bool) -> None:
    text = "nothing: app: plans may begin from Sat 28 Nov 02:00 (UTC) on, in 7 h 12 min"
    row = DecisionStatus(at=1000.0 - age_s, kind="skip", reason="plans_frozen", text=text, app=APP)
    status = replace(STATUS, at=1000.0, decisions=(row, replace(row, app=AppId("other"), reason="inside_band")))
    found = why_here(kg(1), known(), EXECUTION, EVENTS, status)
    assert found.stays == (text.removeprefix("nothing: app: ") if waits else None)
    after = replace(status, decisions=(row, replace(row, at=999.0, reason="inside_band")))
    assert why_here(kg(1), known(), EXECUTION, EVENTS, after).stays is None


@pytest.mark.parametrize(
    ("reason", "app", "text", "stays"),
    [
        ("paused", None, "nothing: paused by ann: lunch", "paused by ann: lunch"),
        ("plans_frozen", APP, "nothing: app: no plan for balance now", "no plan for balance now"),
        ("awaiting_approval", APP, "nothing: app: plan 1.2 waits", "plan 1.2 waits"),
        ("awaiting_approval", AppId("other"), "nothing: other: plan 1.3 waits", None),
        ("inside_band", APP, "nothing: app: inside the band", None),
    ],
)
def test_what_holds_up_all_plans_is_told(reason: str, app: AppId | None, text: str, stays: str | None) -> None:
    row = DecisionStatus(at=990.0, kind="skip", reason=reason, text=text, app=app)
    status = replace(STATUS, at=1000.0, decisions=(row,))
    assert why_here(kg(1), known(), EXECUTION, EVENTS, status).stays == stays


@pytest.mark.parametrize(
    ("worker", "until", "stays"),
    [(W0, 610.0, "an operator moved it here: it stays for another 10 min ([plans] keep_moved_s)"),
     (W0, 10.0, None), (W1, 610.0, None)],
)  # fmt: skip
def test_that_an_operator_moved_it_here_is_told(worker: WorkerId, until: float, stays: str | None) -> None:
    moved = replace(EXECUTION, hand_moved={kg(1): HandMoved(worker=worker, until=until)})
    assert why_here(kg(1), known(), moved, EVENTS).stays == stays
    assert why_here(kg(2), known(), moved, EVENTS).stays is None


def test_what_moving_it_to_each_worker_would_do() -> None:
    found = why_here(kg(1), known(), EXECUTION, EVENTS)
    assert (found.key_group, found.owner, found.reported) == ("app/sums/1", W0, W0)
    assert (found.standbys, found.load_pct, found.state_bytes) == ([W2], 20.0, 100)
    assert (found.mean_load, found.load_distance, found.stays) == (30.0, 20.0, None)
    told = [(row.worker, row.load_distance, row.change, row.load_pct, row.owner, row.standby) for row in found.targets]
    assert told == [
        (W0, 20.0, 0.0, 50.0, True, False),
        (W2, 5.0, -15.0, 35.0, False, True),
        (W1, 15.0, -5.0, 45.0, False, False),
    ]
    assert [row.forbidden for row in found.targets] == [None, None, None]


def test_which_limit_forbids_it() -> None:
    fixed = FixedWorker(id=WorkerId("w3"), reason=SkipReason.WORKER_NOT_STEERING, detail="old plug-in")
    view = replace(
        VIEW,
        workers=(WORKERS[0], replace(WORKERS[1], draining=True), WORKERS[2]),
        rooms={HostId("h-w2"): replace(UNLIMITED, cpu=30.0)},
        fixed=(fixed,),
    )
    found = why_here(kg(1), known(view), EXECUTION, ())
    assert {row.worker: row.forbidden for row in found.targets} == {
        W0: None,
        W1: "it is being drained",
        W2: "it would overfill CPU of h-w2 (0.35 of 0.30 cores)",
        "w3": "it takes no part in plans: worker_not_steering: old plug-in",
    }


def test_which_rule_forbids_it() -> None:
    rules = (
        Rule(name="ssd", kind=RuleKind.PIN, reason="fast disks", key_groups=((0, 1),), workers=(W2,)),
        Rule(name="racks", kind=RuleKind.ZONE, reason="power", zones=("rack-2", "rack-3")),
        Rule(name="first", kind=RuleKind.PRIORITY, reason="billing", priority=7),
        Rule(name="other", kind=RuleKind.FREEZE, reason="not about it", key_groups=((2, 9),)),
    )
    workers = tuple(replace(each, zone=f"rack-{place}") for place, each in enumerate(WORKERS, 1))
    found = why_here(kg(1), known(replace(VIEW, workers=workers, rules=rules)), EXECUTION, ())
    assert {row.worker: row.forbidden for row in found.targets} == {W0: None, W1: "rule ssd: fast disks", W2: None}
    assert found.rules == [
        "rule ssd (pin): fast disks; it may not be on w0",
        "rule racks (zone): power; it may not be on w0",
        "rule first (priority 7): billing",
    ]
    told = StringIO()
    show(found, Console(file=told, width=200))
    assert "rule racks (zone): power; it may not be on w0\n" in told.getvalue()
    assert why_here(kg(1), known(), EXECUTION, ()).rules == []


def test_by_which_plan_it_came_here_and_since_when() -> None:
    found = why_here(kg(1), known(), EXECUTION, EVENTS)
    why = "w1 had 45.5 %, above the mean of 30.0 %; w0 was a standby of it"
    assert (found.since, found.plan) == (110.0, "1.2")
    assert found.story == f"plan 1.2 moved it here from w1: {why}"
    [move] = found.moves
    assert (move.at, move.plan, move.source, move.target, move.why, move.outcome) == (110.0, "1.2", W1, W0, why, "done")
    [failed] = why_here(kg(2), known(), EXECUTION, EVENTS).moves
    assert (failed.outcome, failed.why) == ("failed", "it made room for another key group")
    stayed = why_here(kg(2), known(), EXECUTION, EVENTS)
    assert (stayed.since, stayed.plan) == (None, None)
    assert stayed.story.startswith("no event shows")
    assert stayed.story.endswith("it is long ago")
    part = why_here(kg(3), known(), EXECUTION, (BEGUN, replace(ENDED, moves_total=1_500)))
    assert part.story.endswith("or it was one of the moves of plan 1.2, of which the events list a part")


def test_the_journal_knows_the_last_plan_to_the_second() -> None:
    handover = a_handover(kg(1), source=W1, target=W0, since=104.5, phase=HandoverPhase.DONE)
    in_flight = replace(EXECUTION, rounds={APP: a_round(None, handover)})
    found = why_here(kg(1), known(), in_flight, (BEGUN,))
    assert (found.since, found.plan, found.stays) == (104.5, "1.2", "plan 1.2 of the app is in flight")
    assert "above the mean" in found.story


def test_a_key_group_that_the_group_gave_to_another_one_since_did_not_come_by_the_plan() -> None:
    rows = {OperatorId("sums"): ((W0,), (W2,), (W1,), (W2,))}
    elsewhere = replace(EXECUTION, placements={APP: replace(PLACEMENT, owners=rows)})
    found = why_here(kg(1), known(), elsewhere, EVENTS)
    assert (found.owner, found.reported, found.since) == (W2, W0, None)


def test_what_is_fixed_or_unknown_is_said() -> None:
    kept = replace(
        VIEW,
        key_groups=[row for row in VIEW.owned if row.owner != W0],
        kept=[row for row in VIEW.owned if row.owner == W0],
        workers=WORKERS[1:],
        fixed=(FixedWorker(id=W0, reason=SkipReason.WORKER_MISSING, detail="", worker=WORKERS[0]),),
    )
    found = why_here(kg(1), known(kept), EXECUTION, ())
    assert (found.stays, found.targets) == ("its worker takes no part in plans: worker_missing", [])
    away = NotReady(reason=SkipReason.NO_WORKERS, detail="none", app=APP)
    found = why_here(kg(1), known(away), EXECUTION, ())
    assert (found.stays, found.targets, found.owner) == ("nothing is planned for the app: no_workers: none", [], W0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (KeyGroup(AppId("ap"), OperatorId("sums"), 1), "found no app 'ap', there is app"),
        (KeyGroup(APP, OperatorId("sum"), 1), "found no operator 'sum' of app, there is sums"),
        (kg(4), "found no key group 4 of app/sums, there are 0 to 3"),
    ],
)
def test_an_unknown_key_group_is_answered_with_what_there_is(wrong: KeyGroup, said: str) -> None:
    with pytest.raises(UnknownKeyGroupError) as found:
        why_here(wrong, known(), EXECUTION, ())
    assert str(found.value) == said


def test_before_the_first_window_no_app_is_called_unknown() -> None:
    nothing = replace(known(), snapshot=None, views={})
    with pytest.raises(UnknownKeyGroupError) as found:
        why_here(kg(1), nothing, replace(EXECUTION, placements={}), ())
    assert str(found.value) == "nothing is known of app 'app' yet: no window has come, and nothing has been placed"


def test_a_plan_is_explained_by_all_its_events() -> None:
    found = not_none(explain_plan("1.2", (MEASURED, ENDED, BEGUN)))
    assert (found.text, found.mean_load, found.planned, found.measured) == ("app: 2 moves", 30.0, 5.0, 5.5)
    assert [(move.key_group, move.outcome, move.pause_s, move.reason) for move in found.moves] == [
        ("app/sums/1", "done", 0.25, "over_mean"),
        ("app/sums/2", "failed", None, "makes_room"),
    ]
    loads = {row.worker: (row.before, row.planned, row.measured) for row in found.loads}
    assert loads == {W0: (45.0, 50.0, 49.0), W1: (45.5, 25.0, None), W2: (None, None, 1.0)}
    assert explain_plan("9.9", EVENTS) is None


@pytest.mark.parametrize(
    ("phase", "said", "text", "outcome"),
    [
        (None, "", "waits for approval: 2 moves", "waits"),
        ("rejected", "by ann: not now", "rejected: by ann: not now; it was: 2 moves", "not begun"),
        (
            "expired",
            "nobody has decided about it",
            "expired: nobody has decided about it; it was: 2 moves",
            "not begun",
        ),
    ],
)
def test_a_plan_that_has_not_begun_is_not_told_as_begun(phase: str | None, said: str, text: str, outcome: str) -> None:
    proposed = replace(BEGUN, phase="proposed", text="waits for approval: 2 moves")
    end = replace(ENDED, phase=phase or "", text=said, moves=(), moves_total=None)
    found = not_none(explain_plan("1.2", (proposed, end) if phase else (proposed,)))
    assert found.text == text
    assert [move.outcome for move in found.moves] == [outcome, outcome]
    begun = not_none(explain_plan("1.2", (proposed, replace(BEGUN, at=105.0))))
    assert (begun.text, begun.moves[0].outcome) == ("app: 2 moves", None)


def test_what_an_approved_plan_has_brought_is_compared_with_the_loads_when_it_began() -> None:
    proposed = replace(
        BEGUN,
        id="0",
        at=40.0,
        phase="proposed",
        mean_load=20.0,
        moves=tuple(replace(move, load_pct=9.0) for move in BEGUN.moves),
        loads=(EventLoad(worker=W0, before=35.0, planned=36.0), EventLoad(worker=W2, before=30.0, planned=31.0)),
    )
    found = explain_plan("1.2", (proposed, *EVENTS))
    at_once = explain_plan("1.2", EVENTS)
    assert found is not None
    assert at_once is not None
    assert (found.proposed_at, at_once.proposed_at) == (40.0, None)
    assert found == replace(at_once, proposed_at=40.0), "all but the load distance is of the time when it began"
    waits = not_none(explain_plan("1.2", (proposed,)))
    assert (waits.proposed_at, waits.mean_load) == (None, 20.0), "all is of one time"
    without = not_none(explain_plan("1.2", (proposed, replace(BEGUN, loads=()), MEASURED)))
    loads = {row.worker: (row.before, row.planned, row.measured) for row in without.loads}
    assert loads[W0] == (35.0, 36.0, 49.0), "a leader that took over knows no better"


def test_what_a_move_has_brought_is_told_with_it() -> None:
    brought = EventMove(key_group=kg(1), source=W1, target=W0, measured_pct=31.0, paid=False)
    measured = replace(MEASURED, moves=(brought,), moves_total=1)
    plan = not_none(explain_plan("1.2", (BEGUN, ENDED, measured)))
    assert [(row.load_pct, row.measured_pct, row.paid) for row in plan.moves] == [
        (20.0, 31.0, False),
        (25.0, None, None),
    ]
    assert plan.moves_total == 2
    found = why_here(kg(1), known(), EXECUTION, (BEGUN, ENDED, measured))
    [row] = found.moves
    assert (row.at, row.outcome, row.load_pct, row.measured_pct, row.paid) == (110.0, "done", 20.0, 31.0, False)
    told = StringIO()
    show(found, Console(file=told, width=250))
    assert "load 20.00 % planned, 31.00 % measured; it did not pay" in told.getvalue()
