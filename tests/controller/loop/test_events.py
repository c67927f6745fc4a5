"""Which events a step of the execution and a new status are."""

from collections.abc import Sequence
from dataclasses import replace

from tests.controller.cli.status_examples import node
from tests.controller.execution.execution_transcripts import APP, CLUSTER, OPERATOR, T0, W0, W1, W2, kg, plan, started
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.values.decision import Planned
from trimtab_controller.execution.events import Action, Publish, StopWanted
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.publisher import Record
from trimtab_controller.loop.events.log import MAX_AT_ONCE, EventLog
from trimtab_controller.loop.events.of_execution import events_of_step
from trimtab_controller.loop.events.of_status import MAX_WORKERS_TOLD, events_of_status, new_decisions
from trimtab_controller.plan import MoveReason, PlanWhy
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.events import Event, EventKind, EventLoad, EventMove
from trimtab_protocol.messages.intents import Drain, Intent, MoveKeyGroups, Pause, RequestedMove, Stop, TakenBack
from trimtab_protocol.messages.names import Epoch, Topics
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import ConcernStatus, DecisionStatus, HoldStatus, Status

PAUSE = Pause(by="ann", at=T0, reason="a look")
DRAIN = Drain(worker=W1, by="bob", at=T0 + 1, reason="new disk")


def status(**known: object) -> Status:
    """A status of an acting controller."""
    values = {"cluster": CLUSTER, "at": T0, "acting": True, "epoch": Epoch(1, 1), "paused": None, "coverage": 1.0}
    return Status(**{**values, "window_end": T0, "intents": {}, **known})  # type: ignore[arg-type]


def said(at: float, kind: str = "skip", reason: str = "inside_band") -> DecisionStatus:
    return DecisionStatus(at=at, kind=kind, reason=reason, text=f"{kind} {reason}", app=APP)


def decisions(before: Sequence[DecisionStatus], after: Sequence[DecisionStatus]) -> list[float]:
    return [row.at for row in new_decisions(before, after)]


def brief(events: Sequence[Event]) -> list[tuple[str, str, str | None]]:
    return [(event.kind, event.phase, event.reason) for event in events]


def step(machine: ExecutionMachine, now: float, event: object) -> tuple[Execution, Execution, list[Action]]:
    before = machine.state
    actions = machine.on_event(now, event)  # type: ignore[arg-type]
    return before, machine.state, actions


def test_a_plan_is_told_with_its_moves_when_it_begins_and_with_their_outcomes_when_it_ends() -> None:
    machine = started(W0, W0, W0)
    wanted = plan((0, W0, W1), (1, W0, W2))
    before, after, actions = step(machine, T0, wanted)
    assert any(isinstance(action, Publish) for action in actions)
    [begun] = events_of_step(T0, CLUSTER, before, after, {APP: wanted.plan})
    assert (begun.kind, begun.phase, begun.reason, begun.plan) == (EventKind.PLAN, "begun", "load_distance", "1.2")
    assert (begun.before, begun.planned, begun.lower_bound, begun.moves_total) == (18.4, 1.1, 1.1, 2)
    assert begun.moves == (
        EventMove(key_group=kg(0), source=W0, target=W1),
        EventMove(key_group=kg(1), source=W0, target=W2),
    )
    stopped_before, stopped, _ = step(machine, T0 + 1, StopWanted(app=None, reason="stopped by ann", answered=()))
    told = events_of_step(T0 + 1, CLUSTER, stopped_before, stopped, {})
    assert brief(told) == [("plan", "stopped", None), ("move", "failed", None), ("move", "failed", None),
                           ("plan", "ended", None)]  # fmt: skip
    assert [move.outcome for move in told[-1].moves] == ["failed", "failed"]
    assert told[0].text == "stopped by ann"
    assert events_of_step(T0 + 2, CLUSTER, stopped, stopped, {}) == [], "what is told once is not told again"


def test_a_plan_says_why_each_move_is_made_and_what_it_does_to_the_loads() -> None:
    machine = started(W0, W0)
    why = PlanWhy(
        reasons=(MoveReason.OVER_MEAN,),
        loads=(12.3456,),
        before={W0: 62.0, W1: 38.0, W2: 50.0},
        after={W0: 50.0, W1: 50.0, W2: 50.0},
        mean_load=50.0,
    )
    wanted = replace(plan((0, W0, W1)), plan=replace(plan((0, W0, W1)).plan, why=why))
    placed = replace(machine.state.placements[APP], owners={OPERATOR: ((W0, W1), (W0, W2))})
    before = replace(machine.state, placements={APP: placed})
    _, after, _ = step(machine, T0, wanted)
    [begun] = events_of_step(T0, CLUSTER, before, after, {APP: wanted.plan})
    assert begun.moves == (
        EventMove(key_group=kg(0), source=W0, target=W1, why="over_mean", warm="standby", load_pct=12.346),
    )
    assert begun.loads == (
        EventLoad(worker=W0, before=62.0, planned=50.0),
        EventLoad(worker=W1, before=38.0, planned=50.0),
    )
    assert begun.mean_load == 50.0
    log = EventLog(Topics(CLUSTER), "a:1", previous=status())
    log.decided(Planned(plan=wanted.plan))
    log.measured(
        T0, RoundMeasured(plan="1.2", app=APP, planned=1.1, load_distance=1.0, worker_loads={W0: 51.0, W2: 9.0})
    )
    [measured] = told(log.of_status(status()))
    assert measured.loads == (
        EventLoad(worker=W0, before=62.0, planned=50.0, measured=51.0),
        EventLoad(worker=W1, before=38.0, planned=50.0),
    )
    assert measured.moves == ()


def test_moves_that_did_not_pay_are_counted_and_named() -> None:
    log = EventLog(Topics(CLUSTER), "a:1", previous=status())
    moves = tuple(
        EventMove(key_group=kg(at), source=W0, target=W1, measured_pct=9.123, paid=paid)
        for at, paid in enumerate((True, False, None))
    )
    log.measured(T0, RoundMeasured(plan="1.2", app=APP, planned=1.1, load_distance=4.0, moves=moves))
    [measured] = told(log.of_status(status()))
    assert measured.text == "app: load distance 4.0 measured, 1.1 predicted; 1 of 2 moves did not pay"
    assert [(row.key_group, row.measured_pct, row.paid) for row in measured.moves] == [
        (kg(0), 9.123, True),
        (kg(1), 9.123, False),
        (kg(2), 9.123, None),
    ]


def test_after_a_take_over_a_plan_that_begins_is_told_by_what_the_journal_has() -> None:
    machine = started(W0, W0)
    before, after, _ = step(machine, T0, plan((0, W0, W1)))
    [begun] = events_of_step(T0, CLUSTER, before, after, {})
    assert (begun.text, begun.moves) == (
        "app: load distance 18.4 above 5.0",
        (EventMove(key_group=kg(0), source=W0, target=W1),),
    )


def test_a_decision_that_repeats_itself_is_told_once() -> None:
    first, other = said(1.0), said(2.0, "stop", "drain")
    assert decisions([], [first]) == [1.0]
    assert decisions([first], [first]) == []
    assert decisions([first], [said(9.0)]) == [], "the same as before, with a new time"
    assert decisions([first], [first, other]) == [2.0]
    assert decisions([first], [first, other, said(3.0)]) == [2.0, 3.0], "another one was in between"
    assert decisions([first, other, said(3.0)], [first, other, said(4.0)]) == []
    assert decisions([first, other, said(3.0)], [first, other, said(4.0), said(5.0, "stop", "drain")]) == [5.0]
    assert decisions([other], [first]) == [1.0], "nothing of what was told before is left"


def test_what_a_new_status_tells() -> None:
    concern = ConcernStatus(kind="blocked", app=APP, text="w1 is blocked")
    before = status()
    after = status(
        at=T0 + 5,
        decisions=(said(T0 + 1), said(T0 + 2, "plan", "load_distance")),
        concerns=(concern,),
        hold=HoldStatus(id="h", text="no journal"),
        intents={DRAIN.key: DRAIN.at},
    )
    found = events_of_status(before, after, [DRAIN])
    assert brief(found) == [
        ("decision", "skip", "inside_band"),
        ("intent", "given", "drain"),
        ("hold", "begun", None),
        ("concern", "begun", "blocked"),
    ], "the execution tells of plans"
    assert (found[1].by, found[1].worker, found[1].text) == ("bob", W1, "drain w1, by bob: new disk")
    assert events_of_status(after, after, [DRAIN]) == []
    ended = events_of_status(after, status(at=T0 + 9, decisions=after.decisions), [])
    assert brief(ended) == [("intent", "ended", "drain"), ("hold", "ended", None), ("concern", "ended", "blocked")]


def test_what_steered_workers_say_that_is_not_as_it_should_be_is_told_once() -> None:
    reset = node("w1", reason="offsets were reset")
    others = (
        node("w2"),
        node("w3", reason="exactly_once", steering=False),
        node("w4", state=WorkerState.AWAY, reason="x"),
    )
    after = status(nodes=(reset, *others))

    [event] = events_of_status(status(nodes=others), after, [])
    assert (event.kind, event.phase, event.worker) == (EventKind.WORKER, "told", "w1")
    assert event.text == "w1 on host-w1: offsets were reset"
    assert events_of_status(after, after, []) == []
    many = status(nodes=tuple(node(f"w{number}", reason="offsets were reset") for number in range(100)))
    assert len(events_of_status(None, many, [])) == MAX_WORKERS_TOLD


def test_before_the_first_window_of_a_term_no_concern_ends() -> None:
    concern = ConcernStatus(kind="blocked", app=APP, text="w1 is blocked")
    log = EventLog(Topics(CLUSTER), "a:1", previous=status(concerns=(concern,)))
    assert log.of_status(status(at=T0 + 1, window_end=None)) == []
    assert log.of_status(status(at=T0 + 2, concerns=(concern,))) == [], "nor does it begin again"
    [ended] = told(log.of_status(status(at=T0 + 3)))
    assert (ended.kind, ended.phase) == (EventKind.CONCERN, "ended")


def tells(name: str, before: Status, after: Status, *heard: Intent) -> list[Event]:
    """What a leader tells of a status after it has heard of these intents."""
    log = EventLog(Topics(CLUSTER), name, previous=before)
    log.heard(heard)
    return told(log.of_status(after))


def test_an_intent_that_may_have_been_told_has_the_same_id_again() -> None:
    old, after = status(intents=None), status(intents={PAUSE.key: T0})
    [one], [two] = tells("a:1", old, after, PAUSE), tells("b:2", old, after, PAUSE)
    assert one.id == two.id
    later = replace(PAUSE, at=T0 + 9)
    [three] = tells("b:2", old, status(intents={PAUSE.key: T0 + 9}), later)
    assert three.id != one.id


def test_who_takes_an_intent_back_is_told_and_why() -> None:
    log = EventLog(Topics(CLUSTER), "a:1", previous=status(intents={PAUSE.key: T0, DRAIN.key: DRAIN.at}))
    back = TakenBack(by="bob", at=T0 + 2, reason="seen")
    log.heard((), {PAUSE.key: back})
    drain, pause = sorted(told(log.of_status(status(at=T0 + 3))), key=lambda event: event.reason or "")
    assert (pause.phase, pause.by, pause.text) == ("ended", "bob", "the request pause is taken back by bob: seen")
    assert (drain.phase, drain.by, drain.text) == ("ended", None, "the request drain/w1 has ended"), "it is answered"
    again = EventLog(Topics(CLUSTER), "a:1", previous=status())
    again.heard([PAUSE], {PAUSE.key: back})
    assert again.of_status(status(intents={PAUSE.key: T0}))[1:] == [], "it was given again after that"


def test_the_end_of_an_intent_says_what_was_asked() -> None:
    move = MoveKeyGroups(moves=(RequestedMove(key_group=kg(7), worker=W2),), by="ann", at=T0, reason="hot")
    log = EventLog(Topics(CLUSTER), "a:1", previous=status())
    log.heard([move, DRAIN])
    assert len(log.of_status(status(intents={move.key: T0, DRAIN.key: DRAIN.at}))) == 2
    assert log.of_status(status(at=T0 + 2, intents={move.key: T0, DRAIN.key: DRAIN.at})) == []
    log.heard([move], {DRAIN.key: TakenBack(by="bob", at=T0 + 3, reason="wrong host")})
    [drain] = told(log.of_status(status(at=T0 + 3, intents={move.key: T0})))
    assert (drain.text, drain.worker) == ("the request to drain w1 is taken back by bob: wrong host", W1)
    [ended] = told(log.of_status(status(at=T0 + 4)))
    assert (ended.text, ended.app) == ("the request to move app/sums/7 to w2 has ended", APP)


def test_where_the_predecessor_heard_of_a_move_its_end_is_told_without_its_key() -> None:
    move = MoveKeyGroups(moves=(RequestedMove(key_group=kg(7), worker=W2),), by="ann", at=T0, reason="hot")
    log = EventLog(Topics(CLUSTER), "b:1", previous=status(intents={move.key: T0}))
    [ended] = told(log.of_status(status(at=T0 + 1)))
    assert (ended.text, ended.app) == ("a request to move key groups has ended", None)


def test_a_leader_that_takes_over_does_not_repeat_what_workers_say() -> None:
    nodes = (node("w1", reason="offsets were reset"),)
    log = EventLog(Topics(CLUSTER), "b:1", previous=status(nodes=nodes))
    assert log.of_status(status(at=T0 + 1, window_end=None)) == [], "it has seen no window yet"
    assert log.of_status(status(at=T0 + 2, nodes=nodes)) == []
    worse = (node("w1", reason="a topic is missing"),)
    [event] = told(log.of_status(status(at=T0 + 3, nodes=worse)))
    assert event.text == "w1 on host-w1: a topic is missing"


def test_an_intent_that_is_answered_at_once_is_told_too() -> None:
    stop = Stop(app=APP, by="ann", at=T0, reason="incident")
    found = tells("a:1", status(), status(at=T0 + 1), stop)
    assert brief(found) == [("intent", "given", "stop"), ("intent", "ended", "stop")]
    assert (found[0].text, found[0].app) == ("stop the plan of app, by ann: incident", APP)


def test_a_leader_says_so_and_what_a_round_has_brought() -> None:
    log = EventLog(Topics(CLUSTER), "host:7", previous=None)
    log.begins(T0, Execution(generation=4))
    log.measured(T0 + 1, RoundMeasured(plan="3.9", app=APP, planned=1.5, load_distance=1.25))
    leader, measured = told(log.of_status(status(at=T0 + 2)))
    assert (leader.kind, leader.by, leader.text) == ("leader", "host:7", "host:7 leads as generation 4")
    assert (measured.phase, measured.plan, measured.planned, measured.measured) == ("measured", "3.9", 1.5, 1.25)
    assert leader.id != measured.id
    assert log.of_status(status(at=T0 + 3)) == []


def test_more_than_fits_is_said_to_be_left_out() -> None:
    intents = [replace(DRAIN, worker=f"w{n}") for n in range(MAX_AT_ONCE + 3)]
    found = tells("a:1", status(), status(intents={intent.key: intent.at for intent in intents}), *intents)
    assert len(found) == MAX_AT_ONCE + 1
    assert found[-1].text == "3 more events at this time were left out"


def told(records: Sequence[Record]) -> list[Event]:
    assert {record.topic for record in records} <= {Topics(CLUSTER).events}
    return [decoded(record.value, Event) for record in records]
