"""Key groups of a worker that is away and that have no standby get a next owner, by greedy matching on real loads."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, kg, to_w1
from tests.controller.decider.lost_worker import (
    CPU,
    OWNERS,
    STANDBY_OF_3,
    W0,
    W1,
    W2,
    W3,
    decider,
    decision_of,
    placement,
    seen,
    stated,
    targets,
)
from trimtab_controller.decider.events import (
    Decided,
    ExecutionChanged,
    IntentsChanged,
    RestoresLearned,
    SnapshotArrived,
)
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.decision import Planned, Skip, StandbysPlaced
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Execution, ScalingPhase, WorkerScaling, next_owned, placement_of
from trimtab_controller.plan import PlanReason
from trimtab_models.instances.scheduling import TableCost
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.intents import Pause
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot


def test_the_key_groups_of_a_lost_worker_get_a_next_owner_by_their_loads() -> None:
    made = decider(STANDBY_OF_3)
    decision_of(made, 0, seen(0))

    assert isinstance(decision_of(made, 1, seen(1, lost=W0)), Skip), "its agent may only be restarting"
    found = decision_of(made, 2, seen(2, lost=W0))

    named = targets(found)
    assert isinstance(found, Planned)
    assert {move.key_group: move.source for move in found.plan.moves} == {kg(0): W0, kg(1): W0, kg(2): W0}
    heavy = named[kg(0)]
    assert heavy != W1, "w1 inherits key group 3, which has a standby"
    assert {named[kg(1)], named[kg(2)]}.isdisjoint({heavy}), "by load and not by number"
    assert found.plan.detail.startswith(
        "w0 is away and 3 of its key groups have no standby that runs: the Elastic Allocator"
    )
    assert f"{heavy} 1 (70 %)" in found.plan.detail
    assert found.plan.planned > found.plan.before
    assert made.known.concerns == ()


def test_they_are_placed_once_and_the_worker_that_comes_back_keeps_them() -> None:
    made = decider({})
    decision_of(made, 0, seen(0))
    assert isinstance(decision_of(made, 1, seen(1, lost=W0)), Skip), "its agent may only be restarting"
    named = targets(decision_of(made, 2, seen(2, lost=W0)))
    rows = {each: next_owned((W0,), target) for each, target in named.items()}
    after = placement({}).changed(Epoch(1, 2), rows)
    made.on_event(1030.0, ExecutionChanged(execution=Execution(generation=1, number=2, placements={APP: after})))

    assert not isinstance(decision_of(made, 3, seen(3, lost=W0)), Planned)
    back = decision_of(made, 4, seen(4))
    assert isinstance(back, StandbysPlaced)
    assert set(back.rows.values()) == {(W0,)}, "the app asks for no standbys"


def test_what_another_worker_has_is_no_orphan() -> None:
    made = decider({})
    decision_of(made, 0, seen(0))
    taken = {kg(place): W1 for place in range(4)}
    for number in (1, 2, 3):
        assert isinstance(decision_of(made, number, seen(number, lost=W0, taken=taken)), Skip)


def test_a_standby_that_is_lost_too_does_not_count() -> None:
    made = decider({kg(0): (W0, WorkerId("gone"))})
    decision_of(made, 0, seen(0))
    assert isinstance(decision_of(made, 1, seen(1, lost=W0)), Skip), "its agent may only be restarting"
    found = decision_of(made, 2, seen(2, lost=W0))
    assert targets(found)[kg(0)] in (W1, W2, W3)
    assert next_owned((W0, WorkerId("gone")), W1) == (W0, W1), "the row is not longer than before"


@pytest.mark.parametrize("paused", [True, False])
def test_a_paused_controller_and_a_dry_run_place_nothing(*, paused: bool) -> None:
    made = decider({}, acting=paused)
    if paused:
        made.on_event(1000.0, IntentsChanged(intents=(Pause(by="op", at=1.0, reason="maintenance"),)))
    decision_of(made, 0, seen(0))
    for number in (1, 2, 3):
        assert isinstance(decision_of(made, number, seen(number, lost=W0)), Skip)


def test_where_no_worker_is_light_it_is_a_concern_until_the_worker_is_back() -> None:
    made = decider({})
    crowded = dict.fromkeys(CPU, 0.19)  # 76 % of each worker

    def loaded(found: Snapshot) -> Snapshot:
        return replace(found, key_groups=[replace(row, cpu=crowded[row.key_group]) for row in found.key_groups])

    decision_of(made, 0, loaded(seen(0)))
    decision_of(made, 1, loaded(seen(1, lost=W0)))
    found = decision_of(made, 2, loaded(seen(2, lost=W0)))

    assert sorted(Counter(targets(found).values()).values()) == [1, 1, 2], "where they do least harm"
    assert isinstance(found, Planned)
    assert "no worker is light or stays below 80 % with 4 of them" in found.plan.detail
    decision_of(made, 3, loaded(seen(3, lost=W0)))
    [concern] = [each for each in made.known.concerns if each.kind is ConcernKind.ORPHANS_CROWD]
    assert concern.workers == (W1, W2, W3)
    assert "after the loss of w0" in concern.detail
    decision_of(made, 4, loaded(seen(4)))
    assert ConcernKind.ORPHANS_CROWD not in {each.kind for each in made.known.concerns}


def test_a_host_that_restores_faster_gets_the_large_state_while_the_balance_is_the_same() -> None:
    """Key groups 0 to 3 have the same load, and the first one 40 MB; the link of w1 and w2 is slow."""
    even = dict.fromkeys(CPU, 0.1)
    slow = TableCost(values=(4.0, 8.0))

    def window(number: int, *, lost: WorkerId | None = None) -> Snapshot:
        found = seen(number, lost=lost)
        rows = [replace(row, cpu=even[row.key_group]) for row in found.key_groups]
        return stated(replace(found, key_groups=rows), {kg(0): 40_000_000})

    made = decider({})
    hosts = {row.worker: row.host for row in seen(0).nodes}
    made.on_event(1000.0, RestoresLearned(learned=LearnedRestores(of_host={hosts[W1]: slow, hosts[W2]: slow})))
    decision_of(made, 0, window(0))
    decision_of(made, 1, window(1, lost=W0))
    found = decision_of(made, 2, window(2, lost=W0))
    assert targets(found)[kg(0)] == W3
    assert isinstance(found, Planned)
    assert "targets by DynDL: warm in 4.3 s and not 17.2 s, bound 4.3 s" in found.plan.detail
    assert {move.state_bytes for move in found.plan.moves} == {1_000_000, 40_000_000}, "as w0 said last"


def test_more_orphans_than_a_plan_may_have_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_controller.decider.policies.next_owners.MOST_SCHEDULED", 3)
    made = decider({})
    for number in (0, 1):
        decision_of(made, number, seen(number, lost=W0 if number else None))
    found = decision_of(made, 2, seen(2, lost=W0))
    assert isinstance(found, StandbysPlaced)
    assert {len(row) for row in found.rows.values()} == {2}


# --- a plan that grows ------------------------------------------------------------------------------------------------


# --- another plan is in flight ----------------------------------------------------------------------------------------


# --- beside another app -----------------------------------------------------------------------------------------------

OTHER = AppId("other")


def of_two(found: Snapshot) -> Snapshot:
    """The window, with another app just like the first one, on hosts of its own."""
    nodes = [
        replace(row, worker=WorkerId(f"o{row.worker}"), host=HostId(f"o{row.host}"), app=row.app and OTHER)
        for row in found.nodes
    ]
    hosts = [replace(row, host=HostId(f"o{row.host}")) for row in found.hosts]
    rows = [
        replace(row, worker=WorkerId(f"o{row.worker}"), key_group=replace_app(row.key_group))
        for row in found.key_groups
    ]
    return replace(
        found,
        nodes=(*found.nodes, *nodes),
        hosts=(*found.hosts, *hosts),
        key_groups=(*found.key_groups, *rows),
        hosts_seen=40,
        hosts_expected=40,
    )


def replace_app(key_group: KeyGroup) -> KeyGroup:
    return KeyGroup(OTHER, key_group.operator, key_group.partition)


def two_apps() -> Execution:
    owners = {replace_app(each): WorkerId(f"o{owner}") for each, owner in OWNERS.items()}
    other = placement_of("c", OTHER, Epoch(1, 1), owners, None)
    return Execution(generation=1, number=1, placements={APP: placement({}), OTHER: other})


def decider_of_two() -> Decider:
    return Decider(Settings(min_windows=1, load_distance=5.0), Requirements(), two_apps(), acting=True)


def test_all_apps_that_lose_a_worker_get_next_owners_by_one_window() -> None:
    made = decider_of_two()
    for number in (0, 1):
        decision_of(made, number, of_two(seen(number, lost=W0 if number else None)))
    [first] = made.on_event(1030.0, SnapshotArrived(snapshot=of_two(seen(2, lost=W0))))
    [second] = made.on_tick(1030.1)
    assert {each.decision.plan.app for each in (first, second)} == {APP, OTHER}
    assert all(each.decision.plan.reason is PlanReason.LOSS for each in (first, second))
    assert made.on_tick(1030.2) == []


@pytest.mark.parametrize(
    ("worker", "window"), [("ow1", 2), ("w9", 3)], ids=["of the other app", "of nobody knows which"]
)
def test_the_stop_of_another_worker_does_not_keep_orphans_waiting(worker: str, window: int) -> None:
    made = decider_of_two()
    decision_of(made, 0, of_two(seen(0)))
    decision_of(made, 1, of_two(replace(seen(1, lost=W0))))
    command = replace(to_w1(CommandKind.STOP), worker=WorkerId(worker), host=HostId("oh1"))
    stopped = WorkerScaling(command=command, phase=ScalingPhase.DONE, at=1025.0)
    present = replace(two_apps(), scalings={WorkerId(worker): stopped})
    made.on_event(1025.0, ExecutionChanged(execution=present))
    placed: dict[AppId, int] = {}
    for number in (2, 3):
        for action in made.on_event(1010.0 + 10 * number, SnapshotArrived(snapshot=of_two(seen(number, lost=W0)))):
            if isinstance(action, Decided) and isinstance(action.decision, Planned):
                placed.setdefault(action.decision.plan.app, number)
    assert placed[APP] == window
