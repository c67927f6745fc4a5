"""Snapshots that are stale or incomplete, and hosts that are lost."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import END_S, NEEDS, WHOLE, look, owned, snapshot
from trimtab_controller.decider.memory.evaluate import evaluate
from trimtab_controller.decider.memory.observe import Liveness, check_cluster, held_apps
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.window.view import MeasuredView
from trimtab_controller.execution.state import placement_of
from trimtab_controller.execution.windows import ownership
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot


def test_an_idle_worker_counts_and_a_stopped_one_does_not() -> None:
    idle = snapshot([node(W0), node(W1)], [owned(0, W0)])
    view = look(idle, placement=None)
    assert isinstance(view, MeasuredView)
    assert evaluate(view).worker_loads == {W0: 20.0, W1: 0.0}
    stopped = snapshot([node(W0), node(W1, state=WorkerState.AWAY, app=None)], [owned(0, W0)])
    view = look(stopped, placement=None)
    assert isinstance(view, MeasuredView)
    assert [worker.id for worker in view.workers] == [W0]


@pytest.mark.parametrize(
    ("now", "changes", "reason"),
    [
        (END_S + 45.0, {}, None),
        (END_S + 45.1, {}, SkipReason.STALE_SNAPSHOT),
        (END_S, {"hosts_seen": 19}, None),
        (END_S, {"hosts_seen": 18}, SkipReason.LOW_COVERAGE),
        (END_S, {"hosts_seen": 0, "hosts_expected": 0}, SkipReason.LOW_COVERAGE),
    ],
)
def test_stale_and_incomplete_snapshots_are_refused(
    now: float, changes: dict[str, object], reason: SkipReason | None
) -> None:
    found = check_cluster(replace(WHOLE, **changes), now, Liveness(), NEEDS)  # type: ignore[arg-type]
    assert (found and found.reason) == reason


def test_a_window_that_is_old_when_it_comes_may_mean_a_wrong_clock() -> None:
    found = check_cluster(WHOLE, END_S + 185.0, Liveness(), NEEDS)
    assert found is not None
    assert found.detail == "the window that has just come ended 185 s ago: Spark is late, or this clock is ahead"


def test_low_coverage_names_the_hosts_that_no_longer_report() -> None:
    liveness = Liveness()
    liveness.observe(snapshot([node(WorkerId(f"w{index}")) for index in range(5)], []), [])
    seen = snapshot([node(WorkerId(f"w{index}")) for index in range(4)], [], hosts_seen=4, hosts_expected=5)
    found = check_cluster(seen, END_S, liveness, NEEDS)
    assert found is not None
    assert found.detail == "4 of 5 hosts reported, 95% needed; no longer: h4"


WORKERS = [WorkerId(f"w{index}") for index in range(5)]
OTHER = AppId("other")


def held(seen: Snapshot, liveness: Liveness, owners: Mapping[KeyGroup, WorkerId] = MappingProxyType({})) -> set[AppId]:
    placements = {APP: placement_of("c", APP, Epoch(1, 1), owners, None)}
    found = held_apps(seen, liveness, placements)
    assert {why.reason for why in found.values()} <= {SkipReason.HOSTS_LOST}
    return set(found)


def test_hold_when_forty_percent_of_the_hosts_are_lost_until_they_count_as_gone() -> None:
    liveness = Liveness()
    liveness.observe(snapshot([node(worker) for worker in WORKERS], []), [])
    four = snapshot([node(worker) for worker in WORKERS[:4]], [])
    assert held(four, liveness) == set()
    three = snapshot([node(worker) for worker in WORKERS[:3]], [])
    assert held(three, liveness) == {APP}
    later = replace(three, start_ms=1_611_000, end_ms=1_621_000)
    liveness.observe(later, [])
    assert held(later, liveness) == set()


def test_an_app_none_of_whose_workers_were_on_lost_hosts_is_not_held() -> None:
    liveness = Liveness()
    here = [node(worker, app=OTHER) for worker in WORKERS[:3]]
    liveness.observe(snapshot([*here, *map(node, WORKERS[3:])], []), [])
    assert held(snapshot(here, []), liveness) == {APP}


@pytest.mark.parametrize(
    ("ended", "new", "taken", "is_held"),
    [
        (0, 0, True, True),  # the network may be to blame
        (2, 0, True, False),
        (2, 0, False, True),  # nobody else has its key groups yet
        (1, 0, True, False),  # one of four is lost
        (0, 1, True, False),  # one is lost, the other has been replaced
    ],
)
def test_hosts_that_ended_in_order_or_were_replaced_are_not_missed_once_others_own_their_key_groups(
    ended: int, new: int, taken: bool, is_held: bool
) -> None:
    """Pods have new names with every deployment."""
    liveness, owners = Liveness(), {kg(0): WORKERS[3], kg(1): WORKERS[4]}
    liveness.observe(snapshot([node(worker) for worker in WORKERS], []), WORKERS)
    gone = tuple(HostId(f"h{3 + index}") for index in range(ended))
    pods = [node(WorkerId(f"w{7 + index}")) for index in range(new)]
    reported = [owned(each.partition, W0) for each in owners] if taken else []
    after = snapshot([*map(node, WORKERS[:3]), *pods], reported, end_ms=1_020_000, ended=gone)
    liveness.observe(after, WORKERS)
    assert held(after, liveness, owners) == ({APP} if is_held else set())
    if ended == 2 and taken:
        whole = snapshot([node(worker) for worker in WORKERS], [], end_ms=1_030_000)
        liveness.observe(whole, WORKERS)
        again = replace(after, end_ms=1_040_000, ended=())
        liveness.observe(again, WORKERS)
        assert held(again, liveness, owners) == {APP}, "they had come back, and now nobody has said why they are away"


@pytest.mark.parametrize("taken", [True, False])
def test_a_fleet_whose_hosts_have_all_been_replaced_is_not_lost(taken: bool) -> None:
    liveness, owners = Liveness(), {kg(index): worker for index, worker in enumerate(WORKERS[:3])}
    liveness.observe(snapshot([node(worker) for worker in WORKERS[:3]], []), WORKERS[:3])
    pods = [WorkerId(f"w{7 + index}") for index in range(3)]
    reported = [owned(each.partition, pods[0]) for each in owners] if taken else []
    after = snapshot(list(map(node, pods)), reported, end_ms=1_020_000)
    liveness.observe(after, WORKERS[:3])
    assert held(after, liveness, owners) == (set() if taken else {APP})


def test_a_successor_holds_too_when_no_host_has_reported_forty_percent_of_the_owners() -> None:
    owners = {kg(0): W0, kg(1): W1}
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    successor = Liveness()
    successor.observe(alone, [W0, W1])
    assert held(alone, successor, owners) == {APP}
    later = replace(alone, start_ms=1_611_000, end_ms=1_621_000)
    successor.observe(later, [W0, W1])
    assert held(later, successor, owners) == set()  # it counts as gone


@pytest.mark.parametrize(("strangers", "is_held"), [(1, False), (2, True)])
def test_two_of_five_owners_that_nobody_reports_are_forty_percent(strangers: int, is_held: bool) -> None:
    seen = snapshot([node(worker) for worker in WORKERS[strangers:]], [])
    successor = Liveness()
    successor.observe(seen, WORKERS)
    owners = {kg(index): worker for index, worker in enumerate(WORKERS)}
    assert held(seen, successor, owners) == ({APP} if is_held else set())
    nobody = replace(seen, nodes=tuple(replace(row, app=OTHER) for row in seen.nodes))
    assert held(nobody, successor, owners) == set(), "nobody runs the app any more"


def test_an_owner_that_was_seen_before_is_a_worker_that_is_away_and_no_lost_host() -> None:
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    liveness = Liveness()
    liveness.observe(WHOLE, [W0, W1])
    liveness.observe(alone, [W0, W1])
    assert held(alone, liveness, {kg(0): W0, kg(1): W1}) == set()


def test_only_running_workers_say_what_they_own() -> None:
    seen = snapshot([node(W0), node(W1, state=WorkerState.REBALANCING)], [owned(0, W0), owned(2, W1)])
    assert ownership(seen) == {kg(0): W0}
