"""The status: what it shows, and that it survives the wire."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import a_handover, a_node, a_plan, a_round, a_scaling, a_window
from tests.controller.execution.execution_transcripts import PREPARE
from tests.controller.loop.inbox_records import APP, NOW, TOPICS, an_ack
from trimtab_controller.decider.events import IntentsChanged, SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.predictions import Saving
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.journal import Flaw, Hold
from trimtab_controller.execution.state import Execution, HandoverPhase, Round, ScalingPhase
from trimtab_controller.loop.publications import status_record
from trimtab_controller.loop.status_builder import StatusBuilder, describe_end
from trimtab_controller.plan import Collocation, Move
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase
from trimtab_protocol.messages.decode import MAX_NUMBER, BadMessage, Fault
from trimtab_protocol.messages.intents import AddRule
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import MAX_COUNT, WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.status import AppStatus, Status


def moving(*phases: HandoverPhase) -> Round:
    """A plan with a hand-over of two key groups in each of the phases."""
    key_groups = [KeyGroup(APP, OperatorId("o"), partition) for partition in range(2 * len(phases))]
    rows = (
        a_handover(
            *key_groups[2 * index : 2 * index + 2],
            id=f"1.2-{index}",
            state_bytes=100,
            phase=phase,
            attempt=1,
            prepare=PREPARE,
            pause_s=0.25 if phase is HandoverPhase.DONE else None,
        )
        for index, phase in enumerate(phases)
    )
    return a_round(NOW + 2, *rows, started_at=NOW)


def test_the_board_counts_what_was_moved_and_keeps_what_a_predecessor_knew() -> None:
    status_builder = StatusBuilder("c", acting=True)
    row = moving(HandoverPhase.DONE, HandoverPhase.FAILED)
    skip = Skip(reason=SkipReason.INSIDE_BAND, detail="inside band")
    move = Move(
        key_group=KeyGroup(APP, OperatorId("o"), 0), source=WorkerId("w0"), target=WorkerId("w1"), state_bytes=1
    )
    promised = Collocation(before=0.5, planned=0.9, saved_pp=3.0, spared_s=1.0)
    status_builder.decided(NOW, Planned(plan=a_plan(move, app=row.app, collocation=promised)), "plan")
    status_builder.see_round(row)
    status_builder.see_round(row)
    status_builder.see_measured(row.plan, 1.5, None, Saving(planned_pp=3.0, measured_pp=-0.25))
    status_builder.see_round(row)
    assert status_builder.decided(NOW, skip, "first")
    assert not status_builder.decided(NOW + 10, skip, "second"), "it says nothing new"
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    status = status_builder.status(NOW, decider, Execution(generation=1), Counter({("t", Fault.RANGE): 2}))
    [found] = status.rounds
    assert (found.migrations, found.failed, found.bytes_moved, found.after) == (2, 2, 100, 1.5)
    assert (found.saved_planned_pp, found.saved_pp) == (3.0, -0.25)
    assert (found.pauses_s, dict(found.handovers)) == ((0.25,), {"done": 1, "failed": 1})
    assert [(each.at, each.text) for each in status.decisions] == [(NOW, "plan"), (NOW + 10, "second")]
    assert decoded(encoded(status), Status) == status
    successor = StatusBuilder("c", acting=True, previous=status)
    assert successor.status(NOW, decider, Execution(generation=2), {}).rounds == status.rounds
    assert describe_end(row) == (
        "plan 1.2 ended after 2.0 s: 2 key groups moved, 2 failed, pause median 0.25 s, longest 0.25 s (1.2-0)"
    )


def test_the_board_names_no_rule_that_has_ended_by_itself() -> None:
    over, lasting = (
        AddRule(
            rule=Rule(name=name, kind=RuleKind.FREEZE, reason="a disk fails", until=NOW + s),
            by="ann",
            at=NOW - 60.0,
            reason="a disk fails",
        )
        for name, s in (("disk", 0.0), ("other", 1.0))
    )
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    decider.on_event(NOW - 30.0, IntentsChanged(intents=(over, lasting)))
    status = StatusBuilder("c", acting=True).status(NOW, decider, Execution(generation=1), {})
    assert status.intents == {lasting.key: lasting.at}, "so that the events tell its end"


def test_the_board_shows_what_workers_use_and_what_is_wrong() -> None:
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    node = a_node("w0", app=APP, capacity=0.25)
    away = replace(node, worker=WorkerId("w1"), app=None, state=WorkerState.AWAY, cpu=None, steering=False)
    start = a_scaling(CommandKind.START, away.worker, NOW, ScalingPhase.FAILED, host=node.host)
    refused = replace(start, detail="w1 on h0: not_configured")
    for number in range(3):
        end_s = NOW + 10.0 * (number + 1)
        decider.on_event(end_s, SnapshotArrived(snapshot=a_window(end_s, (node, away), ())))
    present = Execution(generation=1, scalings={away.worker: refused})
    status = StatusBuilder("c", acting=True).status(NOW, decider, present, {})

    assert [row.used_pct for row in status.nodes] == [pytest.approx(120.0), None]
    assert [row.reason for row in status.nodes] == [None, "its start failed: w1 on h0: not_configured"]
    assert [(row.kind, row.app) for row in status.concerns] == [("over_capacity", APP)]
    assert decoded(encoded(status), Status) == status


def test_a_plan_that_was_given_up_with_its_journal_is_in_flight_no_longer() -> None:
    before = StatusBuilder("c", acting=True)
    before.see_round(replace(moving(HandoverPhase.PREPARING), ended_at=None))
    decider = Decider(Settings(), Requirements(), Execution(generation=2), acting=True)
    status = before.status(NOW, decider, Execution(generation=1, rounds={APP: a_round(None)}), {})
    assert status.plans_in_flight
    successor = StatusBuilder("c", acting=True, previous=status)
    hold = Hold(flaw=Flaw.CORRUPTED, detail="d", newest=Epoch(1, 2))
    assert successor.status(NOW, decider, Execution(generation=2), {}, hold).plans_in_flight
    assert not successor.status(NOW, decider, Execution(generation=2), {}).plans_in_flight


def test_a_status_can_be_read_whatever_the_new_owners_say_they_measured() -> None:
    phases = (HandoverPhase.DONE, HandoverPhase.DONE)
    told = decoded(encoded(an_ack(phase=Phase.TOOK, state_bytes=MAX_COUNT, pause_s=MAX_NUMBER)), Ack)
    row = moving(*phases)
    rows = tuple(replace(each, state_bytes=told.state_bytes, pause_s=told.pause_s) for each in row.handovers)
    status_builder = StatusBuilder("c", acting=True)
    status_builder.see_round(replace(row, handovers=rows))
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    status = status_builder.status(NOW, decider, Execution(generation=1), {})
    assert decoded(encoded(status), Status) == status
    with pytest.raises(BadMessage, match="state_bytes"):
        decoded(encoded(an_ack(state_bytes=MAX_COUNT + 1)), Ack)


def test_a_status_that_no_message_could_hold_is_published_without_its_workers_and_apps() -> None:
    """Apps are as many as somebody invents: the controller must not end for them."""
    app = AppStatus(app=APP, key_groups=None, load_distance=None, mean_load=None, not_ready="n" * 1000)
    status = Status(
        cluster="c", at=NOW, acting=True, epoch=Epoch(2, 3), paused=None, window_end=NOW, coverage=1.0, apps=(app,)
    )
    assert decoded(status_record(status, TOPICS).value, Status) == status
    cut = decoded(status_record(replace(status, apps=(app,) * 9_000), TOPICS).value, Status)
    assert cut == replace(status, apps=(), rejected={"trimtab.c.status.oversized": 1})
