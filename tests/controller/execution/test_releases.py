"""Targets that are warm at the same time take over in turn."""

from dataclasses import replace
from typing import Any

from tests.controller.execution.execution_transcripts import APP, ack
from tests.controller.execution.test_restore_order import SCHEDULED, TARGETS, drained, handovers, prepared
from trimtab_controller.execution.events import Publish, RestoreEnded, Resumed, StopWanted
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restores import RELEASES_PER_HOST
from trimtab_controller.execution.state import Handover, HandoverPhase
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal

T0 = 1000.0
MB = 1_000_000
SIX = tuple((target, MB) for target in TARGETS for _ in range(2))
LISTED = replace(SCHEDULED, schedule_restores=False)


def phases(machine: ExecutionMachine) -> list[HandoverPhase]:
    return [each.phase for each in handovers(machine)]


def released(actions: list[Any]) -> list[str | None]:
    published = [action for action in actions if isinstance(action, Publish)]
    return [
        command.handover for action in published for command in action.commands if command.kind is CommandKind.RELEASE
    ]


def all_warm(limits: Any = LISTED) -> tuple[ExecutionMachine, tuple[Handover, ...]]:
    machine = drained(*SIX, limits=limits)
    begun = handovers(machine)
    for each in begun:
        prepared(machine, T0 + 1, each)
    return machine, begun


def test_a_source_releases_so_many_at_a_time_and_the_next_when_one_has_been_taken() -> None:
    machine, begun = all_warm()
    assert phases(machine).count(HandoverPhase.RELEASING) == RELEASES_PER_HOST
    for done, each in enumerate(begun):
        actions = machine.on_event(T0 + 2, ack(each.prepare, Phase.TOOK, pause_s=0.1))
        following = done + RELEASES_PER_HOST
        assert released(actions) == [begun[following].id for _ in range(1) if following < len(begun)]
    assert set(phases(machine)) == {HandoverPhase.DONE}


def test_a_restore_ends_when_its_target_is_warm_and_not_when_it_is_released() -> None:
    machine = drained(*SIX, limits=SCHEDULED)
    begun = [each for each in handovers(machine) if each.phase is HandoverPhase.PREPARING]
    told = [row for each in begun for row in prepared(machine, T0 + 1, each) if isinstance(row, RestoreEnded)]
    told += [row for row in prepared(machine, T0 + 5, begun[-1]) if isinstance(row, RestoreEnded)]
    assert [row.seconds for row in told] == [1.0] * len(begun), "each is told once"


def test_a_target_that_waits_can_still_refuse_and_a_stop_abandons_it() -> None:
    machine, begun = all_warm()
    last = begun[-1]
    machine.on_event(T0 + 2, ack(last.prepare, Phase.REFUSED, refusal=Refusal.FAILED))
    assert phases(machine)[-1] is HandoverPhase.FAILED
    machine.on_event(T0 + 3, StopWanted(app=APP, reason="stopped", answered=()))
    assert phases(machine) == [*[HandoverPhase.RELEASING] * 2, *[HandoverPhase.FAILED] * 4]
    for each in begun[:RELEASES_PER_HOST]:
        actions = machine.on_event(T0 + 4, ack(each.prepare, Phase.TOOK, pause_s=0.1))
        assert released(actions) == []


def test_a_new_leader_hears_again_who_is_warm() -> None:
    machine, begun = all_warm()
    successor = ExecutionMachine("c", LISTED, machine.state)
    successor.on_event(T0 + 5, Resumed())
    assert phases(successor) == phases(machine)
    prepared(successor, T0 + 5, begun[2])
    first = machine.on_event(T0 + 6, ack(begun[0].prepare, Phase.TOOK, pause_s=0.1))
    again = successor.on_event(T0 + 6, ack(begun[0].prepare, Phase.TOOK, pause_s=0.1))
    assert released(first) == released(again) == [begun[2].id]
