"""A worker is lost whose key groups have no standby: their next owners restore in order, and are named in time."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decider.decider_situations import a_plan
from tests.controller.execution.execution_transcripts import APP, CLUSTER, HOSTS, T0, W0, W1, W2, ack, kg, refused
from tests.controller.execution.test_restores import SCHEDULED
from trimtab_controller.execution.events import PlanDecided, Publish, Resumed, StopWanted, WindowSeen
from trimtab_controller.execution.handovers import NAMED_WITHIN_S
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase, Round, placement_of
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import Epoch, WorkerId
from trimtab_protocol.messages.owner_rows import Owners

MB = 1_000_000
GONE = WorkerId("gone")
CORES = 2.0
STATES = (MB, 20 * MB, 5 * MB, 9 * MB)


def lost(*, limits: Any = SCHEDULED, cores: float = 1.0, targets: tuple[WorkerId, ...] = (W1,)) -> ExecutionMachine:
    """`w0` had key groups 0 to 3, and is lost; with one core a host restores one after the other."""
    owners = {kg(place): W0 for place in range(len(STATES))} | {kg(4): W1, kg(5): W2}
    placement = placement_of(CLUSTER, APP, Epoch(1, 1), owners, None)
    placement = placement.changed(Epoch(1, 1), {kg(0): (W0, GONE)})
    machine = ExecutionMachine(CLUSTER, limits, Execution(generation=1, number=1, placements={APP: placement}))
    machine.on_event(T0, PlanDecided(plan=plan(targets, cores)))
    return machine


def plan(targets: tuple[WorkerId, ...], cores: float) -> Plan:
    hosts = {name: HOSTS[name] for name in (W1, W2)}
    return a_plan(
        *(
            Move(key_group=kg(at), source=W0, target=targets[at % len(targets)], state_bytes=size)
            for at, size in enumerate(STATES)
        ),
        reason=PlanReason.LOSS,
        hosts=hosts,
        cores=dict.fromkeys(hosts.values(), cores),
    )


def the_round(machine: ExecutionMachine) -> Round:
    return machine.state.rounds[APP]


def rows(machine: ExecutionMachine) -> list[Owners]:
    placement = machine.state.placements[APP]
    return [placement.of(kg(at).operator, at) for at in range(len(STATES))]


def restoring(machine: ExecutionMachine) -> list[Handover]:
    return [each for each in the_round(machine).handovers if each.phase is HandoverPhase.PREPARING]


def prepared(machine: ExecutionMachine, now: float, handover: Handover) -> list[Any]:
    return machine.on_event(now, ack(handover.prepare, Phase.PREPARED, generation=7, state_bytes=42))


def commands(actions: list[Any]) -> list[CommandKind]:
    return [each.kind for action in actions if isinstance(action, Publish) for each in action.commands]


def test_the_next_owners_restore_one_after_the_other_the_largest_first_and_own_without_a_release() -> None:
    machine = lost()
    order, now = [], T0
    while running := restoring(machine):
        [one] = running
        order.append(one.key_groups[0].partition)
        assert rows(machine)[order[-1]] == (W0, W1), "named before it restores, in place of what is lost too"
        now += 1.0
        assert CommandKind.RELEASE not in commands(prepared(machine, now, one)), "there is nobody to release it"
    assert order == [1, 3, 2, 0]
    assert rows(machine) == [(W0, W1)] * 4, "the group makes the first that is a member the owner"
    found = the_round(machine)
    assert found.ended_at == now
    assert {each.phase for each in found.handovers} == {HandoverPhase.DONE}
    assert {each.state_bytes for each in found.handovers} == {42}
    assert found.recovery is not None
    assert found.recovery.measured_s == 4.0
    assert found.recovery.bound_s <= found.recovery.planned_s


def test_those_that_wait_are_named_before_the_group_can_notice_the_loss() -> None:
    machine = lost()
    assert rows(machine) == [(W0, GONE), (W0, W1), (W0,), (W0,)]
    assert machine.wake_at == T0 + NAMED_WITHIN_S
    assert machine.on_tick(T0 + NAMED_WITHIN_S - 0.1) == []
    machine.on_tick(T0 + NAMED_WITHIN_S)
    assert rows(machine) == [(W0, W1)] * 4
    assert [each.key_groups[0].partition for each in restoring(machine)] == [1], (
        "they are prepared in order all the same"
    )
    assert machine.wake_at is not None
    assert machine.wake_at > T0 + NAMED_WITHIN_S, "named once"
    assert machine.on_tick(T0 + NAMED_WITHIN_S + 1) == []


def test_what_the_group_has_given_to_somebody_ends_as_it_was_given() -> None:
    machine = lost()
    owners = {kg(0): W2, kg(1): W1, kg(2): W1, kg(3): W0}
    machine.on_event(T0 + 1, WindowSeen(start_s=T0 - 1, end_s=T0 - 1, owners=owners))
    assert len(restoring(machine)) == 1, "the window is older than the plan"
    machine.on_event(T0 + 9, WindowSeen(start_s=T0 + 1, end_s=T0 + 1, owners=owners))
    found = {each.key_groups[0].partition: each for each in the_round(machine).handovers}
    assert {at: each.phase for at, each in found.items()} == {
        0: HandoverPhase.FAILED,
        1: HandoverPhase.DONE,
        2: HandoverPhase.DONE,
        3: HandoverPhase.FAILED,
    }
    assert rows(machine)[0][0] == W2
    assert found[3].detail == "w0 is back"
    assert rows(machine)[3] == (W0,)
    assert the_round(machine).ended_at == T0 + 9


def test_a_worker_that_comes_back_keeps_its_key_groups_and_the_targets_close_their_state() -> None:
    machine = lost()
    actions = machine.on_event(T0 + 9, WindowSeen(start_s=T0 + 1, end_s=T0 + 1, owners={kg(at): W0 for at in range(4)}))
    assert commands(actions) == [CommandKind.ABANDON], "one had begun"
    assert rows(machine) == [(W0, GONE), (W0,), (W0,), (W0,)]
    assert {each.phase for each in the_round(machine).handovers} == {HandoverPhase.FAILED}


def test_a_rebalance_before_the_loss_is_noticed_costs_a_second_attempt_and_no_name() -> None:
    machine = lost()
    [one] = restoring(machine)
    machine.on_event(T0 + 1, refused(one.prepare, Refusal.GENERATION))
    assert rows(machine)[1] == (W0, W1)
    again = next(each for each in the_round(machine).handovers if each.id == one.id)
    assert again.phase is HandoverPhase.WAITING
    [other] = restoring(machine)
    prepared(machine, T0 + 10, other)
    assert [each.id for each in restoring(machine)] == [one.id], "it is tried again"


@pytest.mark.parametrize(("owner", "ends"), [(W1, HandoverPhase.DONE), (W2, HandoverPhase.FAILED)])
def test_a_target_that_owns_it_already_stays_named_until_a_window_shows_who_owns_it(
    owner: WorkerId, ends: HandoverPhase
) -> None:
    """The group has noticed the loss, and windows are late: the row must not lead back to the worker that is lost."""
    machine = lost()
    [one] = restoring(machine)
    actions = machine.on_event(T0 + 62, refused(one.prepare, Refusal.PRECONDITION))
    assert CommandKind.ABANDON not in commands(actions)
    assert rows(machine)[1] == (W0, W1)

    machine.on_event(T0 + 70, WindowSeen(start_s=T0 + 63, end_s=T0 + 65, owners={kg(1): owner}))
    ended = next(each for each in the_round(machine).handovers if each.id == one.id)
    assert ended.phase is ends
    assert rows(machine)[1] == ((W0, W1) if owner == W1 else (W2,))


@pytest.mark.parametrize("refusal", [Refusal.CATCH_UP_TIMEOUT, None])
def test_a_target_that_takes_too_long_goes_on_restoring_as_the_next_owner(refusal: Refusal | None) -> None:
    machine = lost()
    [one] = restoring(machine)
    if refusal is None:
        assert one.wake_at is not None
        actions = machine.on_tick(one.wake_at)
    else:
        actions = machine.on_event(T0 + 1, refused(one.prepare, refusal))
    assert rows(machine)[1] == (W0, W1), "nobody else is further"
    assert CommandKind.ABANDON not in commands(actions), "it need not close its state"
    ended = next(each for each in the_round(machine).handovers if each.id == one.id)
    assert ended.phase is HandoverPhase.FAILED
    assert (ended.detail or "").endswith("it stays the next owner and goes on restoring")


def test_a_successor_goes_on_with_what_the_journal_says() -> None:
    machine = lost()
    entry = decode_entry(encode_entry(JournalEntry(execution=machine.state)))
    assert entry.execution.rounds[APP].lost
    assert entry.execution.rounds == machine.state.rounds
    inherited = replace(entry.execution, generation=2, placements=machine.state.placements)
    successor = ExecutionMachine(CLUSTER, SCHEDULED, inherited)
    successor.on_event(T0 + 2, Resumed())
    now = T0 + 2
    while running := restoring(successor):
        now += 1.0
        prepared(successor, now, running[0])
    assert rows(successor) == [(W0, W1)] * 4
    assert the_round(successor).ended_at is not None


def test_a_stop_takes_back_what_is_not_warm_yet() -> None:
    machine = lost()
    [one] = restoring(machine)
    prepared(machine, T0 + 1, one)
    machine.on_event(T0 + 2, StopWanted(app=APP, reason="stopped by op: enough", answered=()))
    assert rows(machine) == [(W0, GONE), (W0, W1), (W0,), (W0,)]
    assert the_round(machine).ended_at == T0 + 2


# --- the plan grows ---------------------------------------------------------------------------------------------------


def more(given: dict[int, tuple[WorkerId, WorkerId]], cores: float = 1.0) -> PlanDecided:
    """Key groups by partition, with what they have lost and their next owner."""
    moves = tuple(
        Move(key_group=kg(at), source=source, target=target, state_bytes=3 * MB)
        for at, (source, target) in given.items()
    )
    return PlanDecided(plan=replace(plan((W1, W2), cores), detail="more is lost", moves=moves))


def order_of(machine: ExecutionMachine, now: float) -> list[int]:
    """The key groups in the order in which they restore from now on."""
    found = []
    while running := restoring(machine):
        now += 1.0
        found.append(running[0].key_groups[0].partition)
        prepared(machine, now, running[0])
    return found


def test_what_is_lost_meanwhile_joins_the_plan_in_flight_and_is_scheduled_with_it() -> None:
    machine = lost()
    before = the_round(machine)
    machine.on_event(T0 + 5, more({5: (W2, W1)}))
    after = the_round(machine)
    assert (after.plan, after.reason, after.started_at) == (before.plan, before.reason, before.started_at)
    assert len(after.handovers) == 5
    assert len({each.id for each in after.handovers}) == 5
    assert after.recovery is not None
    assert after.recovery.began_at == T0 + 5, "the promise is made anew"
    machine.on_tick(T0 + NAMED_WITHIN_S)
    placement = machine.state.placements[APP]
    assert placement.of(kg(5).operator, 5) == (W2,), "the group notices this loss later"
    machine.on_tick(T0 + 5 + NAMED_WITHIN_S)
    assert machine.state.placements[APP].of(kg(5).operator, 5) == (W2, W1)
    assert order_of(machine, T0 + 21) == [1, 3, 2, 5, 0], "by size"
    assert the_round(machine).ended_at is not None


def test_what_a_lost_target_was_to_own_gets_another_one_whether_it_had_begun_or_not() -> None:
    machine = lost()
    [begun] = restoring(machine)
    actions = machine.on_event(T0 + 3, more({1: (W0, W2), 3: (W0, W2)}))
    assert CommandKind.ABANDON in commands(actions), "in case it was only cut off"
    found = [each for each in the_round(machine).handovers if each.key_groups == (kg(1),)]
    assert {each.target: each.phase for each in found} == {W1: HandoverPhase.FAILED, W2: HandoverPhase.PREPARING}
    assert next(each.detail for each in found if each.id == begun.id) == "its target is lost too"
    assert rows(machine)[1] == (W0, W2), "the one that is lost is named no more"
    assert [each.target for each in the_round(machine).handovers if each.key_groups == (kg(3),)] == [W2]
    prepared(machine, T0 + 4, begun)
    assert rows(machine)[1] == (W0, W2), "a late answer changes nothing"


def test_of_a_batch_that_waits_only_what_is_given_away_leaves_it() -> None:
    machine = lost(limits=replace(SCHEDULED, key_groups_per_handover=2))
    [waiting] = [each for each in the_round(machine).handovers if each.phase is HandoverPhase.WAITING]
    first, second = waiting.key_groups
    machine.on_event(T0 + 3, more({first.partition: (W0, W2)}))
    left = next(each for each in the_round(machine).handovers if each.id == waiting.id)
    assert (left.key_groups, left.target) == ((second,), W1)
    assert 0 < left.state_bytes < waiting.state_bytes
    assert rows(machine)[first.partition] == (W0, W2)


def test_a_plan_that_was_stopped_or_is_no_loss_takes_no_more() -> None:
    machine = lost(targets=(W1, W2))
    row = the_round(machine)
    for other in (replace(row, stopped="enough"), replace(row, lost=False)):
        state = replace(machine.state, rounds={APP: other})
        with pytest.raises(ValueError, match="belongs to its round in flight"):
            ExecutionMachine(CLUSTER, SCHEDULED, state).on_event(T0 + 3, more({5: (W2, W1)}))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_happens_each_key_group_is_named_once_and_limits_hold_until_the_end(data: st.DataObject) -> None:
    """Acks, refusals, time, take-overs and reports in any order."""
    machine = lost(targets=(W1, W2), cores=CORES)
    now = T0
    for _ in range(60):
        found = the_round(machine)
        if found.ended_at is not None:
            break
        assert sorted(each.partition for row in found.handovers for each in row.key_groups) == [0, 1, 2, 3]
        running = restoring(machine)
        busy = [each.target_host for each in running]
        assert all(busy.count(host) <= CORES for host in busy), "a successor that wants fewer waits for those that run"
        for at, row in enumerate(rows(machine)):
            [of] = [each for each in found.handovers if each.key_groups[0].partition == at]
            assert row in {(W0, of.target), *of.previous}, "its owner stays, and nobody but its target is named"
        now += data.draw(st.sampled_from([0.1, 1.0, 8.0]))
        what = data.draw(st.sampled_from(["prepared", "refused", "late", "tick", "resumed"]))
        if what == "resumed":
            entry = decode_entry(encode_entry(JournalEntry(execution=machine.state)))
            state = replace(entry.execution, placements=machine.state.placements)
            machine = ExecutionMachine(CLUSTER, SCHEDULED, state)
            machine.on_event(now, Resumed())
        elif what == "tick" or not running:
            now = max(now, machine.wake_at or now)
            machine.on_tick(now)
        elif what == "prepared":
            prepared(machine, now, data.draw(st.sampled_from(running)))
        elif what == "late":
            machine.on_event(now, refused(data.draw(st.sampled_from(running)).prepare, Refusal.CATCH_UP_TIMEOUT))
        else:
            refusal = data.draw(st.sampled_from([Refusal.GENERATION, Refusal.WORKER_AWAY, Refusal.PRECONDITION]))
            machine.on_event(now, refused(data.draw(st.sampled_from(running)).prepare, refusal))
    owners = {kg(at): data.draw(st.sampled_from([W1, W2, W0])) for at in range(4)}
    machine.on_event(now + 1, WindowSeen(start_s=now + 1, end_s=now + 1, owners=owners))
    assert the_round(machine).ended_at is not None, "the reports end it"
