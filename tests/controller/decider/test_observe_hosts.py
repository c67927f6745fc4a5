"""Snapshots that are stale or incomplete, and hosts that are lost."""

from dataclasses import replace

import pytest

from tests.controller.decider.observed_snapshots import (
    END_S,
    NEEDS,
    W0,
    W1,
    WHOLE,
    kg,
    look,
    node,
    owned,
    reason_of,
    snapshot,
)
from trimtab_controller.decider.observing.evaluate import evaluate
from trimtab_controller.decider.observing.liveness import Liveness
from trimtab_controller.decider.observing.observe import check_cluster, ownership
from trimtab_controller.decider.observing.view import AppView
from trimtab_controller.decider.reasons import SkipReason
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState


def test_an_idle_worker_counts_and_a_stopped_one_does_not() -> None:
    idle = snapshot([node(W0), node(W1)], [owned(0, W0)])
    view = look(idle, placement=None)
    assert isinstance(view, AppView)
    assert evaluate(view).worker_loads == {W0: 20.0, W1: 0.0}
    stopped = snapshot([node(W0), node(W1, state=WorkerState.AWAY, app=None)], [owned(0, W0)])
    view = look(stopped, placement=None)
    assert isinstance(view, AppView)
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
    liveness.see(snapshot([node(WorkerId(f"w{index}")) for index in range(5)], []), [])
    seen = snapshot([node(WorkerId(f"w{index}")) for index in range(4)], [], hosts_seen=4, hosts_expected=5)
    found = check_cluster(seen, END_S, liveness, NEEDS)
    assert found is not None
    assert found.detail == "4 of 5 hosts reported, 95% needed; no longer: h4"


def test_hold_when_forty_percent_of_the_hosts_are_lost_until_they_count_as_gone() -> None:
    workers = [WorkerId(f"w{index}") for index in range(5)]
    liveness = Liveness()
    liveness.see(snapshot([node(worker) for worker in workers], []), [])
    four = snapshot([node(worker) for worker in workers[:4]], [])
    assert check_cluster(four, END_S, liveness, NEEDS) is None
    three = snapshot([node(worker) for worker in workers[:3]], [])
    assert reason_of(check_cluster(three, END_S, liveness, NEEDS)) is SkipReason.HOSTS_LOST
    later = replace(three, start_ms=1_611_000, end_ms=1_621_000)
    liveness.see(later, [])
    assert check_cluster(later, 1621.0, liveness, NEEDS) is None


def test_a_successor_holds_too_when_no_host_has_reported_forty_percent_of_the_owners() -> None:
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    successor = Liveness()
    successor.see(alone, [W0, W1])
    assert reason_of(check_cluster(alone, END_S, successor, NEEDS)) is SkipReason.HOSTS_LOST
    later = replace(alone, start_ms=1_611_000, end_ms=1_621_000)
    successor.see(later, [W0, W1])
    assert check_cluster(later, 1621.0, successor, NEEDS) is None  # it counts as gone


@pytest.mark.parametrize(("strangers", "reason"), [(1, None), (2, SkipReason.HOSTS_LOST)])
def test_two_of_five_owners_that_nobody_reports_are_forty_percent(strangers: int, reason: SkipReason | None) -> None:
    workers = [WorkerId(f"w{index}") for index in range(5)]
    seen = snapshot([node(worker) for worker in workers[strangers:]], [])
    successor = Liveness()
    successor.see(seen, workers)

    found = check_cluster(seen, END_S, successor, NEEDS)

    assert (found and found.reason) == reason


def test_an_owner_that_was_seen_before_is_a_worker_that_is_away_and_no_lost_host() -> None:
    alone = replace(WHOLE, nodes=tuple(row for row in WHOLE.nodes if row.worker != W1))
    liveness = Liveness()
    liveness.see(WHOLE, [W0, W1])
    liveness.see(alone, [W0, W1])
    assert check_cluster(alone, END_S, liveness, NEEDS) is None


def test_only_running_workers_say_what_they_own() -> None:
    seen = snapshot([node(W0), node(W1, state=WorkerState.REBALANCING)], [owned(0, W0), owned(2, W1)])
    assert ownership(seen) == {kg(0): W0}
