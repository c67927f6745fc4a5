"""Restores of hand-overs: their order, what links leave for them, and how targets that are warm take over in turn."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decider.decider_situations import a_handover, a_plan
from tests.controller.execution.execution_transcripts import APP, CLUSTER, HOSTS, LIMITS, OPERATOR, T0, ack, kg
from tests.narrow import not_none
from trimtab_controller.execution.events import (
    HostReport,
    PlanDecided,
    Publish,
    RestoreEnded,
    Resumed,
    StopWanted,
    WindowSeen,
)
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restore_costs import (
    BYTES_PER_S,
    ENOUGH,
    FEW,
    FEW_WINDOWS,
    PRIOR,
    UNIT_S,
    HostLink,
    Links,
    RestoreCosts,
)
from trimtab_controller.execution.restores import RELEASES_PER_HOST
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase, Recovery, placement_of
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.commands import CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import Epoch, HostId, WorkerId

SOURCE = WorkerId("w0")
TARGETS = [WorkerId("w1"), WorkerId("w2"), WorkerId("w3")]
MB = 1_000_000
SCHEDULED = replace(
    LIMITS, schedule_restores=True, handovers_in_flight=100, handovers_per_host=100, key_groups_per_handover=1
)
PLACES = {**HOSTS, WorkerId("w3"): HostId("h3")}


def drained(
    *moves: tuple[WorkerId, int | None],
    warm: tuple[int, ...] = (),
    lacking: Mapping[int, int] = MappingProxyType({}),
    limits: Any = SCHEDULED,
    cores: float = 4.0,
) -> ExecutionMachine:
    """A plan in flight: key group i goes to the target with so many bytes; those in `warm` are standbys there.

    `lacking`: how many bytes key groups lack there, of which the target has a copy on its disk.
    """
    owners = {kg(place): SOURCE for place in range(len(moves))}
    placement = placement_of(CLUSTER, APP, Epoch(1, 1), owners, None)
    placement = placement.changed(Epoch(1, 1), {kg(at): (SOURCE, moves[at][0]) for at in warm})
    machine = ExecutionMachine(CLUSTER, limits, Execution(generation=1, number=1, placements={APP: placement}))
    machine.on_event(T0, PlanDecided(plan=plan(*moves, lacking=lacking, cores=cores)))
    return machine


def plan(*moves: tuple[WorkerId, int | None], lacking: Mapping[int, int] = MappingProxyType({}), cores: float) -> Plan:
    return a_plan(
        *(
            Move(key_group=kg(at), source=SOURCE, target=target, state_bytes=size, lacking_bytes=lacking.get(at))
            for at, (target, size) in enumerate(moves)
        ),
        reason=PlanReason.DRAIN,
        hosts=PLACES,
        cores=dict.fromkeys(PLACES.values(), cores) if cores else {},
    )


def handovers(machine: ExecutionMachine) -> tuple[Handover, ...]:
    return machine.state.rounds[APP].handovers


def recovery(machine: ExecutionMachine) -> Recovery:
    return not_none(machine.state.rounds[APP].recovery)


def restoring(machine: ExecutionMachine) -> Counter[HostId]:
    return Counter(each.target_host for each in handovers(machine) if each.phase is HandoverPhase.PREPARING)


def partitions(machine: ExecutionMachine, target: WorkerId) -> list[int]:
    return [each.key_groups[0].partition for each in handovers(machine) if each.target == target]


def prepared(machine: ExecutionMachine, now: float, handover: Handover) -> list[Any]:
    return machine.on_event(now, ack(handover.prepare, Phase.PREPARED, generation=7))


def carry_out(machine: ExecutionMachine, seconds: Callable[[Handover, int], float]) -> float:
    """Every target is warm so many seconds after its prepare, beside so many on its host; returns when the last is."""
    due: dict[str, float] = {}
    now = T0
    while True:
        busy = restoring(machine)
        assert all(count <= recovery(machine).slots[host] for host, count in busy.items())
        running = [each for each in handovers(machine) if each.phase is HandoverPhase.PREPARING]
        for each in running:
            due.setdefault(each.id, now + seconds(each, busy[each.target_host]))
        if not running:
            return now
        first = min(running, key=lambda each: due[each.id])
        now = due[first.id]
        prepared(machine, now, first)
        assert first.prepare is not None
        machine.on_event(now, ack(first.prepare, Phase.TOOK, pause_s=0.1))


def test_the_highest_priority_begins_first() -> None:
    given = plan(*[(TARGETS[at % 2], size * MB) for at, size in enumerate((50, 40, 30, 20))], cores=1.0)
    given = replace(given, moves=tuple(replace(move, priority=at) for at, move in enumerate(given.moves)))
    owners = {kg(place): SOURCE for place in range(4)}
    for scheduled in (True, False):
        limits = replace(SCHEDULED, schedule_restores=scheduled, handovers_in_flight=1)
        placement = placement_of(CLUSTER, APP, Epoch(1, 1), owners, None)
        machine = ExecutionMachine(CLUSTER, limits, Execution(generation=1, number=1, placements={APP: placement}))
        machine.on_event(T0, PlanDecided(plan=given))
        assert [each.key_groups[0].partition for each in handovers(machine)] == [3, 2, 1, 0]
        assert [each.phase for each in handovers(machine)].count(HandoverPhase.PREPARING) == 1


def test_what_a_target_has_on_its_disk_is_not_restored_again() -> None:
    w1, w2 = TARGETS[:2]
    machine = drained((w1, 20 * MB), (w2, 20 * MB), (w2, 9 * MB), lacking={0: MB, 2: 0})
    whole = drained((w1, 20 * MB), (w2, 20 * MB), (w2, 9 * MB))
    assert [each.to_restore() for each in sorted(handovers(machine), key=by_key_group)] == [MB, 20 * MB, 0]
    assert recovery(machine).planned_s < recovery(whole).planned_s
    assert recovery(machine).bound_s < recovery(whole).bound_s
    assert partitions(machine, w2) == [1, 2], "the larger restore first"


def by_key_group(handover: Handover) -> int:
    return handover.key_groups[0].partition


def test_limits_of_the_operator_hold() -> None:
    moves = [(target, 5 * MB) for target in TARGETS for _ in range(6)]
    assert restoring(drained(*moves, limits=replace(SCHEDULED, handovers_in_flight=2))).total() == 2
    assert restoring(drained(*moves, limits=replace(SCHEDULED, handovers_per_host=3))).total() == 3, "host of w0"
    listed = drained(*moves, limits=replace(SCHEDULED, schedule_restores=False, handovers_in_flight=4))
    assert restoring(listed) == {PLACES[TARGETS[0]]: 4}
    assert listed.state.rounds[APP].recovery is None


def test_the_promise_knows_the_limits_that_all_targets_share() -> None:
    moves = [(target, 5 * MB) for target in TARGETS for _ in range(2)]
    alone = recovery(drained((TARGETS[0], 5 * MB), cores=1.0))
    free = recovery(drained(*moves, cores=1.0))
    assert abs(free.planned_s - 2 * alone.planned_s) < 1e-6
    for limits in (replace(SCHEDULED, handovers_in_flight=1), replace(SCHEDULED, handovers_per_host=1)):
        told = recovery(drained(*moves, cores=1.0, limits=limits))
        assert abs(told.planned_s - 6 * alone.planned_s) < 1e-6
        assert abs(told.bound_s - 6 * alone.bound_s) < 1e-6


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TARGETS), st.integers(1, 50)), min_size=1, max_size=20), st.data())
def test_every_restore_runs_once_and_the_end_is_as_planned(moves: list[Any], data: st.DataObject) -> None:
    """The hosts restore as the prior says: every restore costs more, the more run beside it."""
    warm = tuple(data.draw(st.sets(st.integers(0, len(moves) - 1))))
    machine = drained(*((target, size * MB) for target, size in moves), warm=warm, cores=4.0)
    found, costs = recovery(machine), RestoreCosts()
    remote = Counter(each.target_host for each in handovers(machine) if not each.has_copy)

    def seconds(handover: Handover, _: int) -> float:
        host = handover.target_host
        factor = PRIOR.at(min(found.slots[host], remote[host]))
        return UNIT_S if handover.has_copy else factor * UNIT_S * costs.size(handover.state_bytes)

    end = carry_out(machine, seconds) - T0
    assert abs(end - found.planned_s) < 1e-6
    assert found.bound_s - 1e-6 <= end <= 2.0 * found.bound_s + 1e-6
    assert {each.phase for each in handovers(machine)} == {HandoverPhase.DONE}
    assert abs((recovery(machine).measured_s or 0.0) - end) < 1e-6


def test_what_was_measured_is_what_the_next_plan_promises() -> None:
    """Restores take a second per MB, alone or not."""
    machine = drained(*((TARGETS[0], size * MB) for size in range(1, 31)), cores=2.0)
    first = recovery(machine)

    def second_per_mb(handover: Handover, beside: int) -> float:
        return handover.state_bytes / MB

    carry_out(machine, second_per_mb)
    owners = {kg(at): SOURCE for at in range(30)}
    machine.state = replace(
        machine.state, placements={APP: placement_of(CLUSTER, APP, machine.state.epoch, owners, None)}
    )
    machine.on_event(T0 + 1000, PlanDecided(plan=plan((TARGETS[0], 10 * MB), cores=1.0)))
    second = recovery(machine)
    assert first.planned_s < 0.5 * sum(range(1, 31)), "10 MB/s was assumed"
    assert 7.0 < second.planned_s < 25.0, "10 s, and the prior still counts"


def test_a_new_leader_schedules_what_is_left() -> None:
    w1, w2, _ = TARGETS
    machine = drained((w1, MB), (w1, 20 * MB), (w2, 5 * MB), (w1, 3 * MB), cores=1.0)
    entry = encode_entry(JournalEntry(execution=machine.state))
    told = decode_entry(entry).execution
    assert told.rounds[APP].recovery is None, "a new leader schedules what is left"
    successor = ExecutionMachine(CLUSTER, SCHEDULED, replace(told, placements=machine.state.placements, generation=2))
    successor.on_event(T0 + 5, Resumed())
    assert partitions(successor, w1) == partitions(machine, w1) == [1, 3, 0]
    assert recovery(successor).began_at == T0 + 5


def restored(costs: RestoreCosts, size: int, seconds: float, *, warm: bool = False, host: str = "h1") -> None:
    target = WorkerId("w1")
    previous = ((SOURCE, target) if warm else (SOURCE,),)
    handover = a_handover(kg(0), previous=previous, target_host=HostId(host), state_bytes=size, since=T0)
    costs.learn(T0 + seconds, handover, [])


def test_units_and_rates_are_medians_once_there_are_a_few() -> None:
    costs = RestoreCosts()
    assert (costs.unit_s, costs.bytes_per_s) == (UNIT_S, BYTES_PER_S)
    for _ in range(FEW):
        restored(costs, 0, 0.1, warm=True)
        restored(costs, 2 * MB, 2.1)
    assert abs(costs.unit_s - 0.1) < 1e-9
    restored(costs, 0, 1.0)
    assert len(costs._remote) == FEW, "an unknown size says nothing"
    assert costs.size(0) == 1.0


def test_a_host_with_enough_restores_has_its_own_curve() -> None:
    costs = RestoreCosts()
    for number in range(ENOUGH):
        restored(costs, MB, 1.0 + number / 100)
        restored(costs, MB, 4.0 + number / 100, host="h2")
    learned = costs.learned(2)
    fast, slow, any_ = (cost.at(1) for cost in (learned.cost(HostId("h1")), learned.cost(HostId("h2")), learned.shared))
    assert fast < any_
    assert fast < slow
    assert kg(0).operator == OPERATOR


# --- links ------------------------------------------------------------------------------------------------------------


H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


def seen(links: Links, *received: float, limit: float | None = 100e6, restoring: tuple[HostId, ...] = ()) -> Links:
    for number, rate in enumerate(received):
        report = HostReport(cores=4.0, link_bytes_s=limit, received_bytes_s=rate)
        links.observe(T0 + 10.0 * number, {H1: report}, restoring)
    return links


def test_windows_with_a_restore_do_not_count_as_foreground() -> None:
    links = seen(Links(), *([90e6] * 9), restoring=(H1,))
    assert links.of(H1) is None
    links.restored(H1, T0 + 15.0)
    seen(links, *([5e6] * (FEW_WINDOWS + 2)))
    assert links.of(H1) == HostLink(limit_bytes_s=100e6, foreground_bytes_s=5e6)
    assert len(links._received[H1]) == FEW_WINDOWS, "the first two windows began before the restore ended"


def test_restores_get_a_part_of_a_full_link_all_the_same() -> None:
    [link] = [seen(Links(), *([120e6] * FEW_WINDOWS)).of(H1)]
    assert link is not None
    assert (link.full, link.free_bytes_s) == (True, 5e6)


def reported(machine: ExecutionMachine, limits: Mapping[HostId, float]) -> None:
    for number in range(FEW_WINDOWS):
        hosts = {
            host: HostReport(cores=4.0, link_bytes_s=limit, received_bytes_s=0.0) for host, limit in limits.items()
        }
        machine.on_event(
            T0 - 100.0 + number, WindowSeen(start_s=T0 - 100.0 + number, end_s=T0 - 100.0 + number, hosts=hosts)
        )


def test_the_schedule_begins_with_what_the_links_have_left_and_names_those_that_are_unknown() -> None:
    """One link takes ten restores side by side, one is filled by one; of the third nothing is known."""
    moves = [(target, 30 * MB) for target in TARGETS for _ in range(4)]
    placement = placement_of(CLUSTER, APP, Epoch(1, 1), {kg(at): SOURCE for at in range(len(moves))}, None)
    machine = ExecutionMachine(CLUSTER, SCHEDULED, Execution(generation=1, number=1, placements={APP: placement}))
    reported(machine, {H1: 10 * BYTES_PER_S, H2: BYTES_PER_S})
    machine.on_event(T0, PlanDecided(plan=plan(*moves, cores=4.0)))
    found = recovery(machine)
    assert found.unknown_links == (H3,)
    assert (found.slots[H1], found.slots[H2]) == (4, 1)
    learned = machine.learned()
    assert [round(learned.cost(H1).at(n), 9) for n in (1, 2, 4)] == [1.0, 1.1, 1.3]
    assert [learned.cost(H2).at(n) for n in (1, 2, 4)] == [1.0, 2.0, 4.0]
    assert learned.cost(H3).at(2) == pytest.approx(PRIOR.at(2))


def test_no_more_restore_at_a_time_than_the_link_takes() -> None:
    costs = RestoreCosts()
    seen(costs.links, *([20e6] * FEW_WINDOWS), limit=50e6)
    curve = costs.curves([H1], {H1: 8})[H1]
    assert costs.at_once(H1, 8, curve) == 8, "with the prior they share what is left"
    costs.links.observe(T0 + 99.0, {H1: HostReport(link_bytes_s=21e6, received_bytes_s=20e6)}, ())
    assert costs.at_once(H1, 8, curve) == 1


# --- releases ---------------------------------------------------------------------------------------------------------


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
