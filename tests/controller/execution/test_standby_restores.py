"""New standbys restore after the targets of plans, as many at a time as hosts and links bear."""

from collections import Counter
from dataclasses import replace

from tests.controller.execution.execution_transcripts import APP, CLUSTER, T0, ack, kg, published, rows
from tests.controller.execution.test_restores import MB, PLACES, SCHEDULED, SOURCE, TARGETS, handovers, plan, recovery
from trimtab_controller.execution.events import HostReport, PlanDecided, Publish, StandbysWanted, WindowSeen
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restore_costs import FEW_WINDOWS, UNIT_S
from trimtab_controller.execution.standby_restores import LONGEST_S
from trimtab_controller.execution.state import Execution, HandoverPhase, placement_of
from trimtab_protocol.messages.commands import Phase
from trimtab_protocol.messages.names import Epoch, HostId, WorkerId

W1, W2, W3 = TARGETS
H1 = PLACES[W1]


def machine(key_groups: int, *, cores: float = 2.0, link: float | None = None, used: float = 0.0) -> ExecutionMachine:
    """All key groups at w0; each host has so many cores, and a link that is used so much."""
    placement = placement_of(CLUSTER, APP, Epoch(1, 1), {kg(at): SOURCE for at in range(key_groups)}, None)
    made = ExecutionMachine(CLUSTER, SCHEDULED, Execution(generation=1, number=1, placements={APP: placement}))
    report = HostReport(cores=cores, link_bytes_s=link, received_bytes_s=used)
    for number in range(FEW_WINDOWS):
        at = T0 - 100.0 + number
        made.on_event(at, WindowSeen(start_s=at, end_s=at, hosts=dict.fromkeys(PLACES.values(), report)))
    return made


def wanted(*standbys: tuple[int, WorkerId, int]) -> StandbysWanted:
    """Key group, its new standby, and the bytes of its state."""
    return StandbysWanted(
        app=APP,
        rows={kg(at): (SOURCE, worker) for at, worker, _ in standbys},
        lacking={kg(at): {PLACES[worker]: size} for at, worker, size in standbys},
    )


def followed(made: ExecutionMachine) -> Counter[HostId]:
    """How many key groups have a standby on each host."""
    found = made.state.placements[APP].owners
    return Counter(PLACES[row[1]] for rows_ in found.values() for row in rows_ if len(row) > 1)


def test_a_host_builds_as_many_at_a_time_as_it_has_cores_the_largest_first() -> None:
    made = machine(8)
    actions = made.on_event(T0, wanted(*((at, W1, (at + 1) * MB) for at in range(6)), (6, W2, MB)))
    assert rows(published(actions)) == {
        **dict.fromkeys(range(4), (SOURCE,)), 4: (SOURCE, W1), 5: (SOURCE, W1), 6: (SOURCE, W2), 7: (SOURCE,),
    }  # fmt: skip
    now, seen = T0, [followed(made)[H1]]
    while (wake_at := made.wake_at) is not None:
        assert wake_at > now
        now = wake_at
        made.on_tick(now)
        assert sum(each.host == H1 for each in made._standbys.building) <= 2
        seen.append(followed(made)[H1])
    assert (seen[-1], seen) == (6, sorted(seen))
    assert now > T0 + 6 * UNIT_S / 2


def test_the_restores_of_a_plan_come_before_new_standbys() -> None:
    made = machine(10, cores=1.0)
    standbys = {kg(9): (SOURCE, W1), kg(8): (SOURCE, W2)}
    lacking = {kg(9): {H1: MB}, kg(8): {PLACES[W2]: MB}}
    moves = [(W1, 5 * MB), (W1, 5 * MB)]
    decided = PlanDecided(plan=plan(*moves, cores=1.0), standbys=standbys, lacking=lacking)
    made.on_event(T0, decided)
    assert followed(made)[PLACES[W2]] == 1, "nobody else restores there"
    first = next(each for each in handovers(made) if each.phase is HandoverPhase.PREPARING)
    assert recovery(made).slots[H1] == 1
    made.on_event(T0 + 2.0, ack(first.prepare, Phase.PREPARED, generation=7))
    second = next(each for each in handovers(made) if each.phase is HandoverPhase.PREPARING)
    assert second.id != first.id
    assert made.state.placements[APP].of(kg(9).operator, 9) == (SOURCE,), "the second move restores first"
    made.on_event(T0 + 4.0, ack(second.prepare, Phase.PREPARED, generation=7))
    assert made.state.placements[APP].of(kg(9).operator, 9) == (SOURCE, W1)


def test_standbys_that_are_built_hold_slots_but_never_the_last_one() -> None:
    made = machine(12, cores=3.0)
    made.on_event(T0, wanted(*((at, W1, 50 * MB) for at in range(4, 6))))
    assert followed(made)[H1] == 2
    made.on_event(T0 + 0.1, PlanDecided(plan=plan(*[(W1, 5 * MB)] * 3, cores=3.0)))
    preparing = [each for each in handovers(made) if each.phase is HandoverPhase.PREPARING]
    assert len(preparing) == 1
    alone = machine(12, cores=3.0)
    alone.on_event(T0, PlanDecided(plan=plan(*[(W1, 5 * MB)] * 3, cores=3.0)))
    assert recovery(made).planned_s > recovery(alone).planned_s, "they are in the promise"
    assert made.learned().building == {H1: [50 * MB, 50 * MB]}


def test_standbys_wait_while_the_foreground_fills_the_link() -> None:
    made = machine(4, link=1e6, used=2e6)
    assert made.on_event(T0, wanted((0, W1, MB))) == []
    assert (made.full_links, made.wake_at) == ((H1,), None)
    for number in range(400):
        at = T0 + 10.0 * number
        free = HostReport(cores=2.0, link_bytes_s=1e6, received_bytes_s=0.0)
        made.on_event(at, WindowSeen(start_s=at, end_s=at, hosts=dict.fromkeys(PLACES.values(), free)))
    assert (made.full_links, followed(made)[H1]) == ((), 1)


def test_a_later_round_takes_the_place_of_what_waits_and_what_has_changed_is_not_named() -> None:
    made = machine(4, cores=1.0)
    made.on_event(T0, wanted((0, W1, 9 * MB), (1, W1, 8 * MB), (2, W1, 7 * MB)))
    made.on_event(T0 + 0.1, wanted((1, W2, MB), (2, W1, MB)))
    made.on_event(T0 + 0.2, StandbysWanted(app=APP, rows={kg(2): (SOURCE, W3)}))
    made.on_tick(T0 + LONGEST_S)
    found = made.state.placements[APP].owners[kg(0).operator]
    assert found == ((SOURCE, W1), (SOURCE, W2), (SOURCE, W3), (SOURCE,))


def test_without_a_schedule_all_are_named_at_once() -> None:
    made = machine(6)
    unscheduled = ExecutionMachine(CLUSTER, replace(SCHEDULED, schedule_restores=False), made.state)
    [publish] = unscheduled.on_event(T0, wanted(*((at, W1, MB) for at in range(6))))
    assert isinstance(publish, Publish)
    assert followed(unscheduled)[H1] == 6
