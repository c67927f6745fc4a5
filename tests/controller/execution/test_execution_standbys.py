"""What the rows of a placement say of standbys before, while and after key groups move."""

from collections import Counter

import pytest

from tests.controller.execution.execution_transcripts import (
    APP,
    CLUSTER,
    LIMITS,
    T0,
    W0,
    W1,
    W2,
    ack,
    handover,
    kg,
    plan,
    published,
    refused,
    rows,
    started,
)
from tests.controller.execution.test_restores import MB, PLACES, SCHEDULED, SOURCE, handovers, recovery
from tests.controller.execution.test_restores import plan as building_plan
from trimtab_controller.execution.events import (
    HostReport,
    PlacementWanted,
    PlanDecided,
    StandbysWanted,
    WindowSeen,
)
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restore_costs import FEW_WINDOWS, UNIT_S
from trimtab_controller.execution.standby_restores import LONGEST_S
from trimtab_controller.execution.state import Execution, HandoverPhase, placement_of
from trimtab_controller.execution.windows import KEPT_S
from trimtab_controller.rows import Site
from trimtab_protocol.messages.commands import Phase, Refusal
from trimtab_protocol.messages.names import Epoch, HostId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners

W3 = WorkerId("w3")


def warm(*found: Owners) -> ExecutionMachine:
    """A machine whose placement has these rows; every worker has a host of its own."""
    machine = started(*(row[0] for row in found))
    sites = {name: Site(host=HostId(f"h-{name}")) for name in (W0, W1, W2, W3)}
    machine.on_event(T0 - 1, WindowSeen(start_s=T0 - 1, end_s=T0 - 1, hosts={}, sites=sites))
    machine.on_event(T0 - 1, StandbysWanted(app=APP, rows={kg(at): row for at, row in enumerate(found)}))
    return machine


def test_standbys_neither_change_owners_nor_a_round_in_flight() -> None:
    machine = started(W0, W1)
    before = machine.state
    with pytest.raises(ValueError, match="would get the owner"):
        machine.on_event(T0, StandbysWanted(app=APP, rows={kg(0): (W1, W0)}))
    assert machine.state is before
    machine.on_event(T0, plan((0, W0, W1)))
    with pytest.raises(ValueError, match="in flight"):
        machine.on_event(T0, StandbysWanted(app=APP, rows={kg(1): (W1, W2)}))


def test_an_adoption_and_a_plan_bring_standbys_with_them() -> None:
    machine = started(W0, W1)
    wanted = PlacementWanted(app=APP, owners={kg(0): W0, kg(1): W0}, standbys={kg(0): (W0, W2), kg(1): (W0, W1)})
    assert rows(published(machine.on_event(T0, wanted))) == {0: (W0, W2), 1: (W0, W1)}
    decided = PlanDecided(plan=plan((1, W0, W2)).plan, standbys={kg(0): (W0, W1)})
    publish = published(machine.on_event(T0 + 1, decided))
    assert rows(publish) == {0: (W0, W1), 1: (W0, W1, W2)}
    assert [command.key_groups for command in publish.commands] == [(kg(1),)]


@pytest.mark.parametrize(
    ("before", "meanwhile", "after"),
    [
        ((W0,), (W0, W1), (W1, W0)),
        ((W0, W2), (W0, W2, W1), (W1, W0)),
        ((W0, W1), (W0, W1), (W1, W0)),
        ((W0, W1, W2), (W0, W1, W2), (W1, W0, W2)),
        ((W0, W2, W3), (W0, W2, W3, W1), (W1, W0, W2)),
    ],
)
def test_a_move_keeps_as_many_standbys(before: Owners, meanwhile: Owners, after: Owners) -> None:
    machine = warm(before)
    assert rows(published(machine.on_event(T0, plan((0, W0, W1))))) == {0: meanwhile}
    prepared = ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3)
    assert rows(published(machine.on_event(T0 + 1, prepared))) == {0: after}


def test_a_move_within_a_host_leaves_the_standby_on_another_host() -> None:
    machine = warm((W0, W2), (W0,))
    sites = {W0: Site(host=HostId("h0")), W1: Site(host=HostId("h0")), W2: Site(host=HostId("h2"))}
    machine.on_event(T0, WindowSeen(start_s=T0, end_s=T0, hosts={}, sites=sites))
    machine.on_event(T0 + KEPT_S, WindowSeen(start_s=T0 + KEPT_S, end_s=T0 + KEPT_S, hosts={}))
    begun = published(machine.on_event(T0 + KEPT_S, plan((0, W0, W1), (1, W0, W1))))
    assert rows(begun) == {0: (W0, W2, W1), 1: (W0, W1)}, "until the target is warm nothing is given up"
    prepared = ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3)
    assert rows(published(machine.on_event(T0 + KEPT_S + 1, prepared))) == {0: (W1, W2), 1: (W1, W0)}


def test_a_standby_that_was_not_seen_for_long_is_not_counted_on() -> None:
    machine = warm((W0, W2))
    near = {W0: Site(host=HostId("h0")), W1: Site(host=HostId("h0"))}
    machine.on_event(T0, WindowSeen(start_s=T0, end_s=T0, hosts={}, sites={**near, W2: Site(host=HostId("h2"))}))
    now = T0 + KEPT_S + 1
    machine.on_event(now, WindowSeen(start_s=now, end_s=now, hosts={}, sites=near))
    machine.on_event(now, plan((0, W0, W1)))
    prepared = ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3)
    assert rows(published(machine.on_event(now + 1, prepared))) == {0: (W1, W0)}


def test_a_new_leader_that_has_seen_no_window_yet_drops_no_standby() -> None:
    machine = warm((W0, W2))
    machine.on_event(T0, plan((0, W0, W1)))
    prepared = ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3)
    successor = ExecutionMachine(CLUSTER, LIMITS, machine.state)
    assert rows(published(successor.on_event(T0 + 1, prepared))) == {0: (W1, W0, W2)}
    assert rows(published(machine.on_event(T0 + 1, prepared))) == {0: (W1, W0)}


def test_standbys_do_not_accumulate_as_a_key_group_travels() -> None:
    machine = warm((W0, W3))
    for at, (source, target) in enumerate([(W0, W1), (W1, W2), (W2, W0), (W0, W1)]):
        now = T0 + 10 * at
        machine.on_event(now, plan((0, source, target)))
        machine.on_event(now + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3))
        machine.on_event(now + 2, ack(handover(machine).prepare, Phase.TOOK))
    assert machine.state.placements[APP].of(kg(0).operator, 0) == (W1, W0)


def test_an_owner_that_the_group_chose_keeps_the_other_standbys() -> None:
    machine = warm((W0, W2, W3))
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3))
    machine.on_event(T0 + 2, refused(handover(machine).release, Refusal.WORKER_AWAY))
    seen = WindowSeen(start_s=T0 + 3, end_s=T0 + 3, owners={kg(0): W2})
    assert rows(published(machine.on_event(T0 + 13, seen))) == {0: (W2, W3)}


# ---- new standbys restore after the targets of plans, as many at a time as hosts and links bear


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
    decided = PlanDecided(plan=building_plan(*moves, cores=1.0), standbys=standbys, lacking=lacking)
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
    made.on_event(T0 + 0.1, PlanDecided(plan=building_plan(*[(W1, 5 * MB)] * 3, cores=3.0)))
    preparing = [each for each in handovers(made) if each.phase is HandoverPhase.PREPARING]
    assert len(preparing) == 1
    alone = machine(12, cores=3.0)
    alone.on_event(T0, PlanDecided(plan=building_plan(*[(W1, 5 * MB)] * 3, cores=3.0)))
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
