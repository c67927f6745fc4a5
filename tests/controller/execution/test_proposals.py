"""Plans that wait for approval, and what operators moved, in the execution and its journal."""

from dataclasses import replace

from tests.controller.execution.execution_transcripts import APP, T0, W0, W1, kg, plan, published, started
from trimtab_controller.execution.events import (
    ForgetWanted,
    IntentsAnswered,
    PlanProposed,
    ProposalDropped,
    Publish,
    Resumed,
)
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import HandMoved, Proposal

PLAN = plan((0, W0, W1)).plan
PROPOSED = PlanProposed(plan=PLAN, expires_at=T0 + 600)
ROW = Proposal(id="1.2", plan=PLAN, at=T0, expires_at=T0 + 600)


def proposed() -> ExecutionMachine:
    machine = started(W0, W1)
    machine.on_event(T0, PROPOSED)
    return machine


def test_a_plan_that_waits_is_published_and_moves_nothing() -> None:
    machine = started(W0, W1)
    assert machine.on_event(T0, PROPOSED) == [Publish(execution=machine.state)]
    assert (dict(machine.state.proposals), machine.state.in_flight) == ({APP: ROW}, ())


def test_a_successor_knows_the_plan_that_waits_and_what_operators_moved() -> None:
    state = replace(proposed().state, placements={}, hand_moved={kg(1): HandMoved(worker=W1, until=T0 + 9)})
    read = decode_entry(encode_entry(JournalEntry(execution=state))).execution
    assert read == state
    turned_down = replace(state, proposals={APP: ROW.turned_down("by ann: no", T0 + 900)})
    assert decode_entry(encode_entry(JournalEntry(execution=turned_down))).execution == turned_down


def test_an_approved_plan_keeps_its_name_and_waits_no_longer() -> None:
    machine = proposed()
    actions = machine.on_event(T0 + 5, replace(plan((0, W0, W1)), id="1.2", answered=("approve/1.2",)))
    assert published(actions).answered == ("approve/1.2",)
    assert (machine.state.rounds[APP].plan, dict(machine.state.proposals)) == ("1.2", {})
    assert machine.state.rounds[APP].handovers[0].id == "1.3-0"


def test_a_rejected_plan_is_remembered_and_a_withdrawn_one_is_not() -> None:
    rejected = ProposalDropped(
        app=APP, plan="1.2", detail="by ann: no", rejected_until=T0 + 900, answered=("reject/1.2",)
    )
    machine = proposed()
    assert published(machine.on_event(T0 + 5, rejected)).answered == ("reject/1.2",)
    assert dict(machine.state.proposals) == {APP: ROW.turned_down("by ann: no", T0 + 900)}
    machine.on_event(T0 + 6, ProposalDropped(app=APP, plan="1.2", detail="loads"))
    assert dict(machine.state.proposals) == {}


def test_what_is_said_of_another_plan_changes_nothing_but_is_answered() -> None:
    machine = proposed()
    actions = machine.on_event(T0 + 5, ProposalDropped(app=APP, plan="1.1", detail="", answered=("reject/1.1",)))
    assert (published(actions).answered, dict(machine.state.proposals)) == (("reject/1.1",), {APP: ROW})
    assert published(machine.on_event(T0 + 6, IntentsAnswered(answered=("move/1",)))).answered == ("move/1",)


def test_what_an_operator_moved_is_remembered_until_then() -> None:
    machine = started(W0, W1)
    machine.on_event(T0, replace(plan((0, W0, W1)), keep_until=T0 + 100, answered=("move/1",)))
    assert dict(machine.state.hand_moved) == {kg(0): HandMoved(worker=W1, until=T0 + 100)}
    later = ExecutionMachine("c", machine._limits, replace(machine.state, rounds={}))
    later.on_event(T0 + 101, plan((1, W1, W0)))
    assert dict(later.state.hand_moved) == {}


def test_a_new_leader_goes_on_with_the_plan_that_waits() -> None:
    machine = ExecutionMachine("c", proposed()._limits, replace(proposed().state, generation=2))
    machine.on_event(T0 + 9, Resumed())
    assert dict(machine.state.proposals) == {APP: ROW}


def test_a_forgotten_app_has_no_plan_that_waits() -> None:
    machine = proposed()
    machine.on_event(T0 + 1, ForgetWanted(answered=("forget/app/app",), app=APP))
    assert dict(machine.state.proposals) == {}
