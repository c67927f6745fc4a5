"""A replay with a size of its own: workers that its controller starts and stops, and those that were recorded."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.replay.test_replay import KEY_GROUPS, configured, window
from trimtab_controller.replay.cluster import Pace
from trimtab_controller.replay.outcome import Outcome
from trimtab_controller.replay.replay import Replay
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

W2 = WorkerId("w2")
EVEN = {kg(partition): (W0, W1)[partition % 2] for partition in range(KEY_GROUPS)}
ACT = (
    "scaling.mode=act,scaling.scale_up_delay_s=20,scaling.scale_down_delay_s=20,scaling.restart_s=30,"
    "scaling.min_workers=1"
)


def stopped(worker: WorkerId) -> NodeWindow:
    return replace(
        node(worker), app=None, state=WorkerState.AWAY, cpu=None, steering=False, absence=Absence.STOPPED, declared=APP
    )


def recorded(number: int, cpu: float, owners: dict[KeyGroup, WorkerId], *idle: WorkerId) -> Snapshot:
    """A window with two workers that agents can start, and others that do not run."""
    seen = window(number, owners, tuple(sorted(set(owners.values()))))
    nodes = [replace(row, declared=APP, cpu=0.05 + cpu * KEY_GROUPS / 2, standbys=0) for row in seen.nodes]
    rows = [replace(row, cpu=cpu) for row in seen.key_groups]
    return replace(seen, nodes=(*nodes, *map(stopped, idle)), key_groups=rows)


def replayed(windows: list[Snapshot], *settings: str) -> tuple[Outcome, Replay]:
    replay = Replay(configured(*settings), answer, Pace())
    for each in windows:
        replay.see(each)
    return replay.outcomes()[APP], replay


def test_an_app_with_too_many_workers_is_made_smaller_and_only_where_the_settings_say_so() -> None:
    windows = [recorded(number, 0.01, EVEN) for number in range(60)]
    as_recorded, _ = replayed(windows)
    assert (as_recorded.workers_mean, as_recorded.workers_most, as_recorded.resized) == (2.0, 2, 0)
    smaller, replay = replayed(windows, ACT)
    assert (smaller.workers_most, smaller.resized) == (2, 1)
    assert smaller.workers_mean is not None
    assert smaller.workers_mean < 1.5, "one of two, soon after the delay"
    assert len(set(replay.owners.values())) == 1
    assert smaller.highest_p95 == pytest.approx(2 * as_recorded.highest_p95)


def test_an_app_with_too_few_workers_gets_one_that_nobody_had_started() -> None:
    windows = [recorded(number, 0.1, EVEN, W2) for number in range(60)]
    larger, replay = replayed(windows, ACT)
    assert (larger.workers_most, larger.resized) == (3, 1)
    assert sorted(Counter(replay.owners.values()).values()) == [2, 3, 3]
    assert replay.owners.keys() == EVEN.keys()


def test_what_was_started_and_stopped_when_it_was_recorded_does_not_matter() -> None:
    on_three = {kg(partition): (W0, W1, W2)[partition % 3] for partition in range(KEY_GROUPS)}
    quiet = f"{ACT},scaling.min_utilisation=0,scaling.max_utilisation=1"
    windows = [recorded(number, 0.05, EVEN, W2) for number in range(5)]
    windows += [recorded(number, 0.05, on_three) for number in range(5, 10)]
    found, replay = replayed(windows, quiet)
    assert (found.workers_most, found.resized) == (2, 0), "w2 was started then, and is not here"
    windows += [recorded(number, 0.05, dict.fromkeys(EVEN, W0), W1, W2) for number in range(10, 20)]
    found, replay = replayed(windows, quiet)
    assert (found.workers_mean, found.resized) == (2.0, 0), "w1 was stopped then, and runs here"
    assert set(replay.owners.values()) == {W0, W1}


def test_a_worker_that_crashed_when_it_was_recorded_is_gone_in_each_replay() -> None:
    windows = [recorded(number, 0.02, EVEN) for number in range(10)]
    lost = [recorded(number, 0.02, dict.fromkeys(EVEN, W0), W1) for number in range(10, 20)]
    crashed = [
        replace(
            each,
            nodes=tuple(replace(row, absence=Absence.CRASHED) if row.worker == W1 else row for row in each.nodes),
        )
        for each in lost
    ]
    found, replay = replayed([*windows, *crashed], f"{ACT},scaling.min_utilisation=0")
    assert found.workers_mean == pytest.approx(1.5)
    assert set(replay.owners.values()) == {W0}
    assert HostId("h1") in {row.host for row in crashed[0].nodes}
