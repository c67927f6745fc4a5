"""What the rows of a placement say of standbys before, while and after key groups move."""

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
from trimtab_controller.execution.events import PlacementWanted, PlanDecided, StandbysWanted, WindowSeen
from trimtab_controller.execution.machine import ExecutionMachine
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


def test_standbys_are_published_with_the_owners_as_they_are() -> None:
    machine = started(W0, W1)
    publish = published(machine.on_event(T0, StandbysWanted(app=APP, rows={kg(1): (W1, W2)})))
    assert rows(publish) == {0: (W0,), 1: (W1, W2)}
    assert (publish.commands, publish.execution.epoch) == ((), Epoch(1, 2))


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


def test_a_failed_attempt_gives_the_standbys_back() -> None:
    machine = warm((W0, W2))
    machine.on_event(T0, plan((0, W0, W1)))
    publish = published(machine.on_event(T0 + 1, refused(handover(machine).prepare, Refusal.FAILED)))
    assert rows(publish) == {0: (W0, W2)}


def test_an_owner_that_the_group_chose_keeps_the_other_standbys() -> None:
    machine = warm((W0, W2, W3))
    machine.on_event(T0, plan((0, W0, W1)))
    machine.on_event(T0 + 1, ack(handover(machine).prepare, Phase.PREPARED, generation=7, lag_records=3))
    machine.on_event(T0 + 2, refused(handover(machine).release, Refusal.WORKER_AWAY))
    seen = WindowSeen(start_s=T0 + 3, end_s=T0 + 3, owners={kg(0): W2})
    assert rows(published(machine.on_event(T0 + 13, seen))) == {0: (W2, W3)}
