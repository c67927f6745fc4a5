"""What operators say of plans, by what is known: approve, reject, move, undo."""

from dataclasses import replace

import pytest

from tests.console.fleet import Fleet
from tests.controller.decider.decider_situations import APP, W0, W1, a_handover, a_round, kg
from tests.controller.decider.deciders import BALANCED, NEEDS, SETTINGS, execution, window
from trimtab_controller.decider.machine import Decider
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_controller.intents import plans
from trimtab_controller.intents.change import Asked, Change, ChangeRefused, RefusalKind
from trimtab_controller.intents.plans import Looked
from trimtab_protocol.messages.events import Event, EventKind, EventMove
from trimtab_protocol.messages.intents import Approve, MoveKeyGroups, Pause, Reject, RequestedMove
from trimtab_protocol.messages.names import Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.status import AppStatus, ProposalStatus, RoundStatus, Status

NOW = 1012.0
WAITING = ProposalStatus(
    plan="1.2", app=APP, reason="load distance 15.0 above 5.0", at=1000.0, expires_at=2800.0, before=15.0, planned=5.0,
    lower_bound=5.0, moves=(), moves_total=12, to_standbys=4, restore_bytes=34_000_000, unmeasured=2,
)  # fmt: skip
ROUND = RoundStatus(
    plan="1.1", app=APP, reason="r", status="optimal", fallback=False, started_at=900.0, ended_at=910.0, before=8.6,
    planned=0.4, after=0.7, lower_bound=0.3, migrations=3, failed=0, bytes_moved=1000, pauses_s=(0.1, 0.3, 0.2),
)  # fmt: skip
STATUS = Status(
    cluster="c", at=NOW, acting=True, epoch=Epoch(1, 2), paused=None, window_end=1010.0, coverage=1.0,
    apps=(AppStatus(app=APP, key_groups=2, load_distance=0.0, mean_load=10.0, not_ready=None, mode="approve"),),
    proposals=(WAITING,), rounds=(ROUND,),
)  # fmt: skip


def asked(status: Status | None = STATUS) -> Asked:
    return Asked(by="ann", at=NOW, reason="bench", status=status)


def looked(present: Execution | None = None, *events: Event) -> Looked:
    """After a window in which both workers have one key group."""
    return seen(BALANCED, *events, present=present)


def refused(fault: RefusalKind, ask: object, *args: object, **more: object) -> str:
    with pytest.raises(ChangeRefused) as refusal:
        ask(*args, **more)  # type: ignore[operator]
    assert refusal.value.fault is fault
    return str(refusal.value)


def moves(change: Change) -> tuple[RequestedMove, ...]:
    [(_, intent)] = change.records
    assert isinstance(intent, MoveKeyGroups)
    return intent.moves


def move(names: list[str], worker: str, known: Looked | None = None, status: Status = STATUS) -> Change:
    return plans.move(asked(status), plans.placings(names, worker), known or looked())


def ended(*rows: EventMove, plan: str = "1.2") -> Event:
    return Event(
        id="1", cluster="c", at=990.0, kind=EventKind.PLAN, phase="ended", text="t", app=APP, plan=plan, moves=rows
    )


def test_a_plan_that_waits_is_approved_with_its_costs_told() -> None:
    change = plans.approve(asked(), "1.2")
    assert change.records == (("approve/1.2", Approve(plan="1.2", by="ann", at=NOW, reason="bench")),)
    assert change.text == (
        "plan 1.2 of app begins: 12 moves (4 to standbys), 34.0 MB of state to restore and that of 2 key groups of "
        "unknown size, a pause of 0.20 s each (median of 3 hand-overs, the longest 0.30 s)"
    )
    pause = Pause(by="bob", at=NOW, reason="lunch")
    paused = plans.approve(replace(asked(), intents={pause.key: pause}), "1.2")
    assert paused.caveats == ("but the controller is paused: it begins, if it fits then, after `trimtab resume`",)


def test_a_plan_that_waits_is_rejected() -> None:
    change = plans.reject(asked(), "1.2")
    assert change.records == (("reject/1.2", Reject(plan="1.2", by="ann", at=NOW, reason="bench")),)
    assert "unless loads change by more than the band" in change.text


def test_only_a_plan_that_waits_can_be_approved_or_rejected() -> None:
    for ask in (plans.approve, plans.reject):
        assert refused(RefusalKind.UNKNOWN, ask, asked(), "1.9") == "no plan '1.9' waits for approval; there is 1.2"
        gone = asked(replace(STATUS, proposals=(replace(WAITING, rejected="by bob: no"),)))
        assert refused(RefusalKind.CONFLICT, ask, gone, "1.2") == "plan 1.2 was rejected by bob: no"
        assert refused(RefusalKind.UNKNOWN, ask, gone, "1.9") == "no plan '1.9' waits for approval; none does"


def test_a_plan_that_has_expired_is_not_approved_although_no_controller_has_said_so_yet() -> None:
    late = replace(asked(), at=WAITING.expires_at)
    assert refused(RefusalKind.CONFLICT, plans.approve, late, "1.2").startswith("plan 1.2 has expired")


def test_a_move_tells_what_it_leads_to() -> None:
    change = move(["app/sums/0"], W1)
    assert moves(change) == (RequestedMove(key_group=kg(0), worker=W1),)
    assert change.text == (
        "1 key group of app to w1: load distance 0.0 -> 10.0, 1 move, 0.0 MB of state to restore, a pause of 0.20 s "
        "each (median of 3 hand-overs, the longest 0.30 s); what moves stays there for `[plans] keep_moved_s`, unless "
        "its worker is drained or lost"
    )


def test_a_move_that_the_controller_would_refuse_is_not_written() -> None:
    assert refused(RefusalKind.INVALID, move, ["app/sums"], W1).startswith("APP/OPERATOR/N: found")
    assert refused(RefusalKind.INVALID, move, ["app/sums/0", "other/sums/0"], W1).endswith("one")
    assert refused(RefusalKind.UNKNOWN, move, ["other/sums/0"], W1) == "no app 'other' reports; there is app"
    assert refused(RefusalKind.CONFLICT, move, ["app/sums/0"], "w9") == "app: w9 does not run"
    seen = replace(STATUS, nodes=Fleet(workers=2, key_groups=2).status().nodes, intents={})
    told = refused(RefusalKind.UNKNOWN, move, ["app/sums/0"], "w9", status=seen)
    assert told.startswith("no worker 'w9' reports; there are ")
    names = [f"{'a' * 190}/{'s' * 190}/{each}" for each in range(1_000)]
    told = refused(RefusalKind.INVALID, move, names, "w" * 190)
    assert "bytes of names, expected 500000 at most" in told
    dry = replace(STATUS, apps=(replace(STATUS.apps[0], mode="dry-run"),))
    told = refused(RefusalKind.CONFLICT, move, ["app/sums/0"], W1, status=dry)
    assert told == "the mode of app is dry-run: nothing of it moves, see [plans]"


def test_a_move_during_a_plan_of_the_app_waits_for_its_end() -> None:
    busy = execution(BALANCED, rounds={APP: a_round(None, plan="1.3")})
    change = move(["app/sums/0"], W1, looked(busy))
    assert change.caveats == ("but plan 1.3 is in flight: it begins after that",)


def test_undo_takes_back_what_a_plan_has_moved_by_its_events() -> None:
    there = ended(EventMove(key_group=kg(0), source=W1, target=W0, outcome="done"))
    change = plans.undo(asked(), "1.2", looked(None, there))
    assert moves(change) == (RequestedMove(key_group=kg(0), worker=W1),)
    assert change.text.startswith(
        "plan 1.2 of app will be undone: 1 key group back: load distance 0.0 -> 10.0, 1 move,"
    )
    [(_, intent)] = change.records
    assert isinstance(intent, MoveKeyGroups)
    assert intent.undoes == "1.2"


def test_undo_prefers_the_journal_and_leaves_what_has_moved_on() -> None:
    done = a_handover(kg(0), kg(1), source=W1, target=W0, phase=HandoverPhase.DONE)
    failed = a_handover(kg(2), source=W1, target=W0, id="1.2-1", phase=HandoverPhase.FAILED)
    last = a_round(950.0, done, failed)
    change = plans.undo(asked(), "1.2", looked(execution(BALANCED, rounds={APP: last})))
    assert moves(change) == (RequestedMove(key_group=kg(0), worker=W1),)
    assert change.text.endswith("; 1 key group moved on since, and stays there")


def test_undo_is_refused_with_the_reason() -> None:
    row = EventMove(key_group=kg(0), source=W1, target=W0, outcome="done")
    flying = execution(BALANCED, rounds={APP: a_round(None)})
    assert refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", looked(flying)) == (
        "plan 1.2 is in flight: `trimtab stop app` ends it"
    )
    assert "neither the journal nor an event" in refused(RefusalKind.UNKNOWN, plans.undo, asked(), "1.9", looked())
    failed = looked(None, ended(replace(row, outcome="failed")))
    assert refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", failed) == "plan 1.2 has moved nothing"
    part = looked(None, replace(ended(row), moves_total=1_500))
    assert refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", part) == (
        "plan 1.2 cannot be undone as a whole: the events list its first moves, and not 1499 more; "
        "`trimtab undo 1.2 --partly` takes back what can"
    )
    gone = looked(None, ended(replace(row, source=WorkerId("w7"))))
    assert refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", gone) == "app: w7 does not run"
    on = looked(None, ended(EventMove(key_group=kg(0), source=W0, target=W1, outcome="done")))
    assert refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", on).startswith("nothing is left to undo")


def moved(*numbers: int, source: WorkerId = W1) -> tuple[EventMove, ...]:
    return tuple(EventMove(key_group=kg(number), source=source, target=W0, outcome="done") for number in numbers)


def test_undo_of_what_can_be_undone_says_what_cannot_and_why() -> None:
    owners = dict.fromkeys(map(kg, range(4)), W0) | {kg(4): W1}
    rows = (*moved(0, 1), *moved(2, 3, source=WorkerId("w7")), *moved(9))
    known = seen(owners, ended(*rows))
    told = refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", known)
    assert told == "app: w7 does not run; 2 of 4 key groups can go back: `trimtab undo 1.2 --partly`"
    change = plans.undo(asked(), "1.2", known, partly=True)
    assert moves(change) == (RequestedMove(key_group=kg(0), worker=W1), RequestedMove(key_group=kg(1), worker=W1))
    assert change.text.startswith("plan 1.2 of app will be undone in part: 2 key groups back: load distance ")
    assert change.text.endswith("; 1 key group moved on since, and stays there")
    assert change.caveats == ("but not 2 key groups (app/sums/2, app/sums/3): w7 does not run",)


@pytest.mark.parametrize("partly", [False, True])
def test_undo_of_more_than_one_plan_may_have_is_several_plans(monkeypatch: pytest.MonkeyPatch, *, partly: bool) -> None:
    monkeypatch.setattr(plans, "MAX_MOVES", 2)
    owners = {**dict.fromkeys(map(kg, range(5)), W0), kg(5): W1}
    done = a_handover(*map(kg, range(5)), source=W1, target=W0, phase=HandoverPhase.DONE)
    known = seen(owners, present=execution(owners, rounds={APP: a_round(950.0, done)}))
    change = plans.undo(asked(), "1.2", known, partly=partly)
    parts = [intent.moves for _, intent in change.records if isinstance(intent, MoveKeyGroups)]
    assert [[each.key_group for each in part] for part in parts] == [[kg(0), kg(1)], [kg(2), kg(3)], [kg(4)]]
    assert {intent.undoes for _, intent in change.records if isinstance(intent, MoveKeyGroups)} == {"1.2"}
    told = "plan 1.2 of app will be undone: 5 key groups back in 3 plans, one after the other: load distance "
    assert change.text.startswith(told)
    assert ", 5 moves, " in change.text
    assert change.caveats == ()


def test_a_request_to_move_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_MOVES", 1)
    assert (
        refused(RefusalKind.INVALID, move, ["app/sums/0", "app/sums/1"], W1) == "found 2 key groups, expected 1 at most"
    )


def test_undo_in_part_is_refused_where_nothing_can_go_back_or_that_is_not_known() -> None:
    gone = seen({kg(0): W0, kg(1): W1}, ended(*moved(0, source=WorkerId("w7"))))
    told = refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", gone, partly=True)
    assert told == "no key group can go back: w7 does not run"
    assert refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", gone) == "app: w7 does not run"
    present = execution({kg(0): W0, kg(1): W1})
    blind = Looked(
        decider=Decider(SETTINGS, NEEDS, present, acting=False), execution=present, events=(ended(*moved(0)),)
    )
    told = refused(RefusalKind.CONFLICT, plans.undo, asked(), "1.2", blind, partly=True)
    assert told.startswith("nothing is planned for app now, so it is not known which moves can be undone")


def seen(owners: dict[KeyGroup, WorkerId], *events: Event, present: Execution | None = None) -> Looked:
    """After a window in which these workers own these key groups."""
    present = present or execution(owners)
    decider = Decider(SETTINGS, NEEDS, present, acting=False)
    decider.record(1011.0, window(owners).snapshot)
    return Looked(decider=decider, execution=present, events=events)
