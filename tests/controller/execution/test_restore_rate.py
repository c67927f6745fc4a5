"""Restores begin so that a host restores no more bytes per second than the limit allows, on average."""

from dataclasses import replace

from tests.controller.execution.execution_transcripts import APP, HOSTS, LIMITS, T0, W0, W1, W2, ack, plan, started
from tests.narrow import not_none
from trimtab_controller.execution.events import ExecutionLimits, PlanDecided, Resumed
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.pace import limited_s
from trimtab_controller.execution.state import HandoverPhase
from trimtab_protocol.messages.commands import Phase

HOST_RATE = replace(
    LIMITS, handovers_in_flight=100, handovers_per_host=100, key_groups_per_handover=1, restore_host_bytes_s=50.0
)
"""Each move of the transcripts restores 100 bytes: two seconds' worth."""
TO_TWO = plan((0, W0, W1), (1, W0, W1), (2, W0, W2), (3, W0, W2))
TO_ONE = plan((0, W0, W1), (1, W0, W1), (2, W0, W1), (3, W0, W1))


def machine(limits: ExecutionLimits, decided: PlanDecided = TO_TWO) -> ExecutionMachine:
    made = started(W0, W0, W0, W0, limits=limits)
    made.on_event(T0, decided)
    return made


def begun(machine: ExecutionMachine) -> list[str]:
    """The targets that restore now."""
    rows = machine.state.rounds[APP].handovers
    return sorted(each.target for each in rows if each.phase is HandoverPhase.PREPARING)


def test_the_next_restore_on_a_host_waits_until_the_limit_allows_it() -> None:
    made = machine(HOST_RATE)
    assert begun(made) == [W1, W2]
    assert made.wake_at == T0 + 2.0
    made.on_tick(T0 + 1.9)
    assert begun(made) == [W1, W2]
    made.on_tick(T0 + 2.0)
    assert begun(made) == [W1, W1, W2, W2]


def test_a_restore_that_has_ended_early_does_not_let_the_next_one_begin_early() -> None:
    made = machine(HOST_RATE, TO_ONE)
    first = next(each for each in made.state.rounds[APP].handovers if each.prepare)
    made.on_event(T0 + 0.5, ack(first.prepare, Phase.PREPARED, generation=7))
    assert begun(made) == []
    made.on_tick(T0 + 2)
    assert len(begun(made)) == 1


def test_a_leader_that_takes_over_counts_what_restores_already() -> None:
    first = machine(HOST_RATE, TO_ONE)
    successor = ExecutionMachine("c", HOST_RATE, replace(first.state, generation=2))
    successor.on_event(T0 + 1, Resumed())
    assert len(begun(successor)) == 1
    successor.on_tick(T0 + 2)
    assert len(begun(successor)) == 2


def test_the_promise_of_a_plan_knows_the_limits() -> None:
    made = machine(replace(HOST_RATE, schedule_restores=True), TO_ONE)
    recovery = not_none(made.state.rounds[APP].recovery)
    assert (recovery.planned_s, recovery.bound_s) == (8.0, 6.0), "the bound leaves out the last one"
    sizes = {HOSTS[W1]: [100, 100], HOSTS[W2]: [400]}
    assert limited_s(HOST_RATE, sizes, all_of_it=True) == 8.0
    assert limited_s(HOST_RATE, sizes, all_of_it=False) == 2.0
    assert limited_s(LIMITS, sizes, all_of_it=True) == 0.0
