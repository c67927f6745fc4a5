"""Key groups of a worker that is away and that have no standby get a next owner, by greedy matching on real loads."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decider.decider_situations import APP, a_plan, a_scaling, a_worker, kg, owned, plannable
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.lost_worker import (
    CPU,
    OWNERS,
    STANDBY_OF_3,
    W0,
    W1,
    W2,
    W3,
    W4,
    decider,
    decision_of,
    placement,
    seen,
    stated,
    targets,
)
from tests.narrow import not_none, of_type, only_one
from trimtab_controller.decider.events import (
    Decided,
    ExecutionChanged,
    IntentsChanged,
    RestoresLearned,
    SnapshotArrived,
)
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.hosts import Host, HostsSeen
from trimtab_controller.decider.memory.orphans import Orphaned
from trimtab_controller.decider.policies.orphan_placing import PlacedOrphans, place_orphans
from trimtab_controller.decider.values.decision import PlanEnded, Planned, Skip, StandbysPlaced
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.owned import OwnedTable
from trimtab_controller.decider.window.restores import Restores
from trimtab_controller.decider.window.view import PlannableView, Room
from trimtab_controller.execution.events import AckSeen, ExecutionLimits, PlanDecided, ScalingWanted, StopWanted
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import (
    ENDED,
    Execution,
    HandoverPhase,
    next_owned,
    placement_of,
)
from trimtab_controller.plan import Move, PlanReason
from trimtab_models.dyndl.targets import OnlineRestore, choose_online
from trimtab_models.instances.scheduling import TableCost
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase
from trimtab_protocol.messages.intents import Pause
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, Snapshot


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
    back = of_type(StandbysPlaced, decision_of(made, 4, seen(4)))
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
    found = of_type(StandbysPlaced, decision_of(made, 2, seen(2, lost=W0)))
    assert {len(row) for row in found.rows.values()} == {2}


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
    stopped = a_scaling(CommandKind.STOP, WorkerId(worker), 1025.0, host=HostId("oh1"))
    present = replace(two_apps(), scalings={WorkerId(worker): stopped})
    made.on_event(1025.0, ExecutionChanged(execution=present))
    placed: dict[AppId, int] = {}
    for number in (2, 3):
        for action in made.on_event(1010.0 + 10 * number, SnapshotArrived(snapshot=of_two(seen(number, lost=W0)))):
            if isinstance(action, Decided) and isinstance(action.decision, Planned):
                placed.setdefault(action.decision.plan.app, number)
    assert placed[APP] == window


# ---- orphans while a plan is in flight


class Growing:
    """A decider with the execution that carries its plans out; restores begin, one at a time on each host."""

    def __init__(
        self, standbys: dict[KeyGroup, tuple[WorkerId, ...]] | None = None, busy: WorkerId | None = None
    ) -> None:
        """`busy` = a worker that is too busy to be given anything."""
        self.made = decider(standbys or {}, band=60.0 if busy else 5.0)
        self.busy = busy
        self.execution = ExecutionMachine(
            "c", ExecutionLimits(key_groups_per_handover=1, restores_at_first=100), self.made._situation.execution
        )
        self.number = -1

    def window(self, *lost: WorkerId, joined: bool = False) -> object:
        """The decision of the next window, in which these workers are away."""
        self.number += 1
        found = seen(self.number)
        nodes = [
            replace(row, state=WorkerState.AWAY, app=None, cpu=None) if row.worker in lost else row
            for row in (*found.nodes, *([node(W4, capacity=1.0, cpu=0.0, standbys=0)] if joined else []))
        ]
        groups = [
            replace(row, cpu=0.19) if row.worker == self.busy else row
            for row in found.key_groups
            if row.worker not in lost
        ]
        hosts = tuple(
            HostWindow(host=row.host, covered_s=10.0, cpu=0.1, cores=1.0, basis=Basis.HOST) for row in found.nodes
        )
        sizes = dict.fromkeys(OWNERS, 100000000)
        window = stated(replace(found, nodes=tuple(nodes), key_groups=groups, hosts=hosts), sizes)
        decision = decision_of(self.made, self.number, window)
        if isinstance(decision, Planned):
            self.execution.on_event(1010.0 + 10 * self.number, PlanDecided(plan=decision.plan))
            self.made.on_event(0.0, ExecutionChanged(execution=self.execution.state))
        return decision

    @property
    def targets(self) -> dict[KeyGroup, WorkerId]:
        """Of all hand-overs that have not ended."""
        rows = [each for each in self.execution.state.rounds[APP].handovers if each.phase not in ENDED]
        found = [(each, row.target) for row in rows for each in row.key_groups]
        assert len(found) == len(dict(found)), "each key group has one target"
        return dict(found)


def in_flight(made: Growing | None = None) -> Growing:
    """W0 is lost, and the plan for its key groups has begun."""
    made = made or Growing()
    made.window()
    made.window(W0)
    assert isinstance(made.window(W0), Planned)
    return made


def test_a_worker_that_is_lost_while_the_plan_is_in_flight_adds_to_it() -> None:
    made = in_flight()
    first = made.targets
    assert isinstance(made.window(W0, W3), Skip), "its agent may only be restarting"
    found = of_type(Planned, made.window(W0, W3))
    assert found.plan.detail.endswith("; added to plan 1.2")
    to_w3 = {each for each, target in first.items() if target == W3}
    assert {move.key_group for move in found.plan.moves} == {kg(at) for at in range(12, 16)} | to_w3
    assert {move.source for move in found.plan.moves if move.key_group in to_w3} <= {W0}
    assert len(made.targets) == 8
    assert set(made.targets.values()) <= {W1, W2}
    assert all(made.targets[each] == target for each, target in first.items() if target != W3), "these stay"
    assert made.execution.state.rounds[APP].plan == "1.2", "still the same plan"
    assert not isinstance(made.window(W0, W3), Planned), "once"


def test_of_a_single_orphan_dyndlon_decides_by_what_hosts_restore_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """w3 is lost while w1 and w2 restore, and only its key group 12 has no standby."""
    asked: list[OnlineRestore] = []

    def noted(restore: OnlineRestore) -> int:
        asked.append(restore)
        return choose_online(restore)

    monkeypatch.setattr("trimtab_controller.decider.policies.orphan_placing.choose_online", noted)
    made = in_flight(Growing({kg(place): (W3, W1) for place in (13, 14, 15)}, busy=W3))
    assert set(made.targets.values()) == {W1, W2}
    assert asked == []
    made.window(W0, W3)
    assert [move.key_group for move in of_type(Planned, made.window(W0, W3)).plan.moves] == [kg(12)]
    [restore] = asked
    assert restore.beside.tolist() == [1, 1], "each host has one core, and restores for the first loss"
    assert min(restore.free_in) > 0.0
    assert made.targets[kg(12)] == (W1, W2)[choose_online(restore)]


def test_a_worker_that_joins_gets_restores_that_have_not_begun() -> None:
    made = in_flight()
    begun = {
        each
        for row in made.execution.state.rounds[APP].handovers
        if row.phase is HandoverPhase.PREPARING
        for each in row.key_groups
    }
    before = made.targets
    assert 0 < len(begun) < len(before)
    found = of_type(Planned, made.window(W0, joined=True))
    assert {move.target for move in found.plan.moves} == {W4}, "what stays where it was is no move"
    assert begun.isdisjoint(move.key_group for move in found.plan.moves)
    assert all(made.targets[each] == before[each] for each in begun)
    assert not isinstance(made.window(W0, joined=True), Planned), "once"


def test_nothing_is_added_to_a_plan_that_an_operator_has_stopped() -> None:
    made = in_flight()
    row = replace(made.execution.state.rounds[APP], stopped="enough")
    stopped = replace(made.execution.state, rounds={APP: row})
    made.made.on_event(0.0, ExecutionChanged(execution=stopped))
    for _ in range(3):
        assert not isinstance(made.window(W0, W3), Planned)


def test_a_plan_does_not_grow_beyond_what_is_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_controller.decider.policies.next_owners.MOST_SCHEDULED", 5)
    made = in_flight()
    for _ in range(3):
        assert isinstance(made.window(W0, W3), Skip)


def balancing(standbys: dict[KeyGroup, tuple[WorkerId, ...]] | None = None) -> Growing:
    """A plan for balance is in flight: w1 is about to get a key group of w2, and then one of w0."""
    made = Growing(standbys)
    made.window()
    moves = (
        Move(key_group=kg(8), source=W2, target=W1, state_bytes=1),
        Move(key_group=kg(0), source=W0, target=W1, state_bytes=1),
    )
    plan = a_plan(*moves, hosts={row.worker: row.host for row in seen(0).nodes})
    made.execution.on_event(1011.0, PlanDecided(plan=plan))
    made.made.on_event(1011.0, ExecutionChanged(execution=made.execution.state))
    return made


def carry_out(made: Growing, now: float, ended: PlanEnded) -> None:
    made.execution.on_event(now, StopWanted(app=ended.app, reason=ended.detail, lost=ended.lost))
    made.made.on_event(now, ExecutionChanged(execution=made.execution.state))


def tick(made: Growing, now: float) -> Planned:
    action = only_one(Decided, made.made.on_tick(now))
    assert isinstance(action.decision, Planned)
    return action.decision


def test_a_plan_for_balance_ends_early_and_the_next_owners_are_named_at_once() -> None:
    made = balancing()
    assert not isinstance(made.window(W0), PlanEnded), "its agent may only be restarting"
    ended = made.window(W0)
    assert ended == PlanEnded(
        app=APP, lost=frozenset({W0}), reason="ended early, since w0 is away and 3 key groups need a next owner"
    )
    assert isinstance(ended, PlanEnded)
    carry_out(made, 1031.0, ended)
    assert made.made.wake_at == 1031.0
    found = tick(made, 1031.0)
    assert {move.key_group for move in found.plan.moves} == {kg(1), kg(2), kg(3)}, "w1 restores the other one already"
    made.execution.on_event(1031.1, PlanDecided(plan=found.plan))
    assert made.execution.state.rounds[APP].lost
    assert made.execution.state.placements[APP].of("sums", 0) == (W0, W1)


def test_the_next_owners_wait_only_for_what_is_released() -> None:
    made = balancing()
    first = made.execution.state.rounds[APP].handovers[0]
    assert first.key_groups == (kg(8),)
    assert first.prepare is not None
    made.execution.on_event(1012.0, AckSeen(ack=Ack.to(first.prepare, Phase.PREPARED, at=1012.0, generation=7)))
    made.window(W0)
    ended = of_type(PlanEnded, made.window(W0))
    carry_out(made, 1031.0, ended)
    assert made.execution.state.busy(APP), "w2 and w1 talk to each other"
    assert made.made.on_tick(1031.1) == []
    made.execution.on_event(1031.2, AckSeen(ack=Ack.to(first.prepare, Phase.TOOK, at=1031.2)))
    made.made.on_event(1031.2, ExecutionChanged(execution=made.execution.state))
    assert {move.source for move in tick(made, 1031.2).plan.moves} == {W0}


def test_a_plan_goes_on_where_living_standbys_take_over() -> None:
    made = balancing({kg(place): (W0, W1) for place in range(4)})
    for _ in range(3):
        assert isinstance(made.window(W0), Skip)


def test_next_owners_are_named_while_an_operator_s_stop_of_a_worker_is_under_way() -> None:
    made = Growing()
    made.window()
    host = seen(0).nodes[3].host
    made.execution.on_event(1011.0, ScalingWanted(kind=CommandKind.STOP, worker=WorkerId("w9"), host=host))
    made.made.on_event(1011.0, ExecutionChanged(execution=made.execution.state))
    made.window(W0)
    assert isinstance(made.window(W0), Planned)


# ---- who gets which orphan: the greedy matching, and DynDL's targets within its band


def view(capacities: dict[str, float], owners: dict[int, tuple[str, float]], **changes: object) -> PlannableView:
    """Workers on hosts of their own; `owners` = partition to (owner, load)."""
    workers = [a_worker(name, f"h-{name}", capacity) for name, capacity in capacities.items()]
    rows = [owned(kg(place), name, load, 100) for place, (name, load) in owners.items()]
    return plannable(workers, rows, **changes)


def orphaned(loads: dict[int, float], state_bytes: int = 100) -> Orphaned:
    rows = [owned(kg(place), "gone", load, state_bytes) for place, load in loads.items()]
    return Orphaned(table=OwnedTable.of(APP, rows), owners=(WorkerId("gone"),), inherited={}, state={})


def placed(
    seen: PlannableView, lost: Orphaned, asked_pct: dict[WorkerId, float] | None = None, operations: int = 10_000
) -> PlacedOrphans:
    return not_none(place_orphans(seen, lost, HostsSeen(), asked_pct or {}, operations=operations))


def test_a_worker_counts_with_what_it_uses_besides_its_key_groups() -> None:
    seen_ = view({"a": 1.0, "b": 1.0}, {0: ("a", 10.0), 1: ("b", 30.0)})
    assert placed(seen_, orphaned({5: 10.0})).targets == {kg(5): "a"}
    assert placed(seen_, orphaned({5: 10.0}), {WorkerId("a"): 60.0}).targets == {kg(5): "b"}


def test_what_is_asked_of_a_worker_is_compared_with_its_share_of_its_host() -> None:
    """15 % of a core are 60 % of the quarter with which it counts."""
    seen_ = view({"a": 0.25, "b": 1.0}, {0: ("a", 5.0), 1: ("b", 30.0)})
    assert placed(seen_, orphaned({5: 1.0}), {WorkerId("a"): 15.0}).targets == {kg(5): "a"}, "of a quarter"
    first, second = seen_.workers
    crowded = replace(seen_, workers=(replace(first, share=0.25), second))
    assert placed(crowded, orphaned({5: 1.0}), {WorkerId("a"): 15.0}).targets == {kg(5): "b"}


def test_state_goes_where_the_host_has_memory_for_it() -> None:
    rooms = {HostId("h-a"): Room(cpu=100.0, memory=1_000.0), HostId("h-b"): Room(cpu=100.0, memory=1_000_000.0)}
    seen_ = view({"a": 1.0, "b": 1.0}, {0: ("a", 10.0), 1: ("b", 30.0)}, rooms=rooms)
    assert placed(seen_, orphaned({5: 10.0}, state_bytes=5_000)).targets == {kg(5): "b"}


def test_state_goes_where_the_disk_has_room_for_it() -> None:
    """a is less busy, but its disk takes 3,000 bytes: its room of 3,100 holds its own key group's 100."""
    rooms = {
        HostId("h-a"): Room(cpu=100.0, memory=np.inf, disk=3_100.0),
        HostId("h-b"): Room(cpu=100.0, memory=np.inf, disk=np.inf),
    }
    seen_ = view({"a": 1.0, "b": 1.0}, {0: ("a", 10.0), 1: ("b", 30.0)}, rooms=rooms)
    assert placed(seen_, orphaned({5: 10.0}, state_bytes=3_000)).targets == {kg(5): "a"}
    assert placed(seen_, orphaned({5: 10.0}, state_bytes=3_001)).targets == {kg(5): "b"}


def test_a_copy_on_a_disk_needs_only_the_room_that_it_lacks() -> None:
    """The disks of a and b take 3,000 bytes.  a would be chosen for its load, but b has half of the 6,000 already."""
    rooms = {HostId(f"h-{name}"): Room(cpu=100.0, memory=np.inf, disk=3_100.0) for name in "ab"}
    seen_ = view({"a": 1.0, "b": 1.0}, {0: ("a", 10.0), 1: ("b", 30.0)}, rooms=rooms)
    for share, forced in ((0.5, ()), (0.6, (kg(5),))):
        restores = Restores(held=Held(on_disk={kg(5): {WorkerId("b"): share}}))
        found = not_none(
            place_orphans(seen_, orphaned({5: 10.0}, 6_000), HostsSeen(), {}, operations=10_000, restores=restores)
        )
        assert (found.targets, found.forced) == ({kg(5): "b"}, forced)


def test_without_room_on_any_disk_orphans_get_an_owner_all_the_same() -> None:
    rooms = {HostId(f"h-{name}"): Room(cpu=100.0, memory=np.inf, disk=100.0) for name in "ab"}
    seen_ = view({"a": 1.0, "b": 1.0}, {0: ("a", 10.0), 1: ("b", 30.0)}, rooms=rooms)
    found = placed(seen_, orphaned({5: 1.0, 6: 1.0}, state_bytes=3_000))
    assert sorted(found.targets.values()) == ["a", "b"], "side by side, the state is spread"
    assert set(found.forced) == {kg(5), kg(6)}


def test_traffic_goes_where_the_link_has_room_for_it() -> None:
    """a is less busy, but 0.3 of its 1 MB/s is used, and the orphan sends 0.6 MB/s."""
    window = HostWindow(
        host=HostId("h-a"), covered_s=10.0, cpu=0.1, cores=1.0, basis=Basis.HOST, link_bytes_s=1e6,
        received_bytes_s=0.3e6, sent_bytes_s=0.3e6,
    )  # fmt: skip
    seen_ = view({"a": 1.0, "b": 1.0}, {0: ("a", 10.0), 1: ("b", 30.0)})
    lost = orphaned({5: 10.0})
    lost = replace(lost, table=replace(lost.table, traffic=np.array([[1e3], [0.6e6]])))
    hosts = HostsSeen(hosts={window.host: Host(id=window.host, window=window, others=0.0, speed=1.0, asked=0.1)})
    found = not_none(place_orphans(seen_, lost, hosts, {}, operations=1_000))
    assert found.targets == {kg(5): "b"}
    assert placed(seen_, lost).targets == {kg(5): "a"}, "the link is unknown"


def test_a_draining_worker_gets_none_and_without_others_nothing_is_placed() -> None:
    seen_ = view({"a": 1.0}, {0: ("a", 10.0)})
    draining = replace(seen_, workers=tuple(replace(worker, draining=True) for worker in seen_.workers))
    assert place_orphans(draining, orphaned({5: 10.0}), HostsSeen(), {}, operations=10) is None


def test_when_the_operations_are_spent_the_rest_is_spread_over_light_workers() -> None:
    seen_ = view({"a": 1.0, "b": 1.0, "c": 1.0}, {0: ("a", 60.0), 1: ("b", 5.0), 2: ("c", 5.0)})
    found = placed(seen_, orphaned(dict.fromkeys(range(3, 23), 1.0)), operations=0)
    assert Counter(found.targets.values()) == {WorkerId("b"): 10, WorkerId("c"): 10}
    assert found.forced == ()


@given(
    capacities=st.lists(st.floats(0.1, 8.0), min_size=1, max_size=6),
    loads=st.lists(st.floats(0.0, 400.0), min_size=1, max_size=30),
    operations=st.integers(0, 100),
)
def test_every_orphan_gets_exactly_one_worker_and_what_it_then_uses_is_told(
    capacities: list[float], loads: list[float], operations: int
) -> None:
    workers = {f"w{place}": capacity for place, capacity in enumerate(capacities)}
    seen_ = view(workers, {place: (name, 10.0) for place, name in enumerate(workers)})
    lost = orphaned({100 + place: load for place, load in enumerate(loads)})

    found = placed(seen_, lost, operations=operations)

    assert set(found.targets) == {row.key_group for row in lost.table}
    used = {name: 10.0 / capacity for name, capacity in workers.items()}
    for row in lost.table:
        used[found.targets[row.key_group]] += row.load / workers[found.targets[row.key_group]]
    for name, busy in found.busy_pct.items():
        assert busy == pytest.approx(used[name], rel=1e-6, abs=1e-6)


@settings(deadline=None)
@given(
    capacities=st.lists(st.floats(0.5, 4.0), min_size=1, max_size=5),
    loads=st.lists(st.floats(0.0, 40.0), min_size=1, max_size=15),
    shares=st.lists(st.floats(0.0, 0.9), min_size=15, max_size=15),
    band=st.sampled_from([0.0, 2.5, 20.0]),
)
def test_dyndls_targets_are_never_warm_later_and_keep_the_band(
    capacities: list[float], loads: list[float], shares: list[float], band: float
) -> None:
    workers = {f"w{place}": capacity for place, capacity in enumerate(capacities)}
    seen_ = view(workers, {place: (name, 10.0) for place, name in enumerate(workers)})
    lost = orphaned({100 + place: load for place, load in enumerate(loads)}, state_bytes=5_000_000)
    on_disk = {kg(100 + at): {WorkerId("w0"): share} for at, share in enumerate(shares[: len(loads)])}
    before = placed(seen_, lost)
    restores = Restores(held=Held(on_disk=on_disk), band=band)
    found = not_none(place_orphans(seen_, lost, HostsSeen(), {}, operations=10_000, restores=restores))
    assert found.chosen is not None
    assert found.chosen.lower_bound_s <= found.chosen.seconds + 1e-6
    assert found.chosen.seconds <= found.chosen.given_s + 1e-6
    assert set(found.targets) == {row.key_group for row in lost.table}
    uses = [sum(row.load for row in lost.table) + 10.0 * len(workers), sum(capacities)]
    mean = uses[0] / uses[1]

    def use(named: PlacedOrphans, name: str) -> float:
        given_ = sum(row.load for row in lost.table if named.targets[row.key_group] == name)
        return (10.0 + given_) / workers[name]

    for name in workers:
        allowed = max(abs(use(before, name) - mean), band)
        assert abs(use(found, name) - mean) <= allowed + 1e-6
