"""Who gets which orphan: the greedy matching, and DynDL's targets within its band."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decider.decider_situations import APP, a_worker, kg, owned, plannable
from trimtab_controller.decider.memory.hosts import Host, HostsSeen
from trimtab_controller.decider.memory.orphans import Orphaned
from trimtab_controller.decider.policies.orphan_placing import PlacedOrphans, place_orphans
from trimtab_controller.decider.policies.restores import Restores
from trimtab_controller.decider.window.copies import Held
from trimtab_controller.decider.window.owned import OwnedTable
from trimtab_controller.decider.window.view import PlannableView, Room
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow


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
    found = place_orphans(seen, lost, HostsSeen(), asked_pct or {}, operations=operations)
    assert found is not None
    return found


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
        found = place_orphans(seen_, orphaned({5: 10.0}, 6_000), HostsSeen(), {}, operations=10_000, restores=restores)
        assert found is not None
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
    found = place_orphans(seen_, lost, hosts, {}, operations=1_000)
    assert found is not None
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
    found = place_orphans(seen_, lost, HostsSeen(), {}, operations=10_000, restores=restores)
    assert found is not None
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
