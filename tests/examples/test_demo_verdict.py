"""What the demo promises, and how it tells noise from what it shows."""

import copy
from typing import Any

import pytest

from flights.demo.loads import window_noise, windows_inside
from flights.demo.pauses import Moved, calm_twins
from flights.demo.summary import broken_promises
from trimtab_models.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_models.messages.report import WorkerState
from trimtab_models.messages.snapshot import KeyGroupWindow, NodeWindow, Snapshot


def window(start: float, *cores: float) -> Snapshot:
    """Five seconds in which worker i, of capacity 0.5, has one key group that uses `cores[i]`."""
    return Snapshot(
        cluster="c",
        start_ms=round(start * 1000),
        end_ms=round(start * 1000) + 5000,
        published_ms=round(start * 1000) + 6000,
        hosts_seen=1,
        hosts_expected=1,
        watermark_ms=None,
        late_rows=0,
        nodes=tuple(
            NodeWindow(
                worker=WorkerId(f"w{i}"),
                host=HostId("h"),
                app=AppId("a"),
                state=WorkerState.RUNNING,
                capacity=0.5,
                covered_s=5.0,
                cpu=None,
                complete=True,
                steering=True,
                memory_bytes=None,
                epoch=None,
                generation=None,
            )
            for i in range(len(cores))
        ),
        key_groups=tuple(
            KeyGroupWindow(
                key_group=KeyGroup(AppId("a"), OperatorId("o"), i),
                worker=WorkerId(f"w{i}"),
                covered_s=5.0,
                cpu=cpu,
                tuples_in_s=None,
                tuples_out_s=None,
                bytes_in_s=None,
                bytes_out_s=None,
                state_bytes=None,
                lag_records=None,
                backlog=None,
            )
            for i, cpu in enumerate(cores)
        ),
    )


def test_what_all_workers_share_is_no_noise_of_the_load_distance() -> None:
    assert window_noise([window(0, 0.1, 0.2), window(5, 0.2, 0.3), window(10, 0.05, 0.15)]) == pytest.approx(0.0)


def test_noise_is_how_far_a_worker_strays_from_window_to_window() -> None:
    # Deviations of both workers from the mean: 1, 3 and 2 pp: the sample's standard deviation is 1.
    assert window_noise([window(0, 0.11, 0.1), window(5, 0.13, 0.1), window(10, 0.12, 0.1)]) == pytest.approx(1.0)


def test_one_window_has_no_noise_to_tell() -> None:
    assert window_noise([window(0, 0.1, 0.2)]) is None


def test_a_window_that_sticks_out_of_a_span_is_not_inside() -> None:
    rows = [window(0, 0.1), window(5, 0.1), window(10, 0.1)]
    assert windows_inside(rows, 4.0, 14.9) == [rows[1]]


def test_calm_are_the_same_seconds_of_windows_in_which_nothing_is_busy() -> None:
    handover = Moved(key_groups=(), start=21.0, end=22.0)

    twins = calm_twins([handover], (5.0, 42.4), [(20.0, 23.0), (35.9, 40.0)], period_s=5.0, slack_s=0.5)

    assert twins == [(5.5, 7.5), (10.5, 12.5), (15.5, 17.5), (25.5, 27.5), (30.5, 32.5)]


def round_of(phase: str, **changed: Any) -> dict[str, Any]:
    row = {
        "phase": phase,
        "load_distance_planned": 0.1,
        "load_distance_after": 0.6,
        "lower_bound": 0.0,
        "migrations": 3,
    }
    return {**row, **changed}


KEPT: dict[str, Any] = {
    "events": {"sent": 9, "processed": 9, "lost": 0, "duplicated": 0},
    "answers": {"checked": 2, "wrong": 0},
    "rounds": [round_of("balance"), round_of("shift", load_distance_after=9.0), round_of("shift"), round_of("drain")],
    "pause_seconds": {
        "moved": {"median": 0.1, "max": 1.0},
        "others": {"median": 0.06, "max": 1.0},
        "calm": {"median": 0.05, "max": 1.0},
    },
    "window_noise": 0.2,
    "drained": {"worker": "w3", "key_groups_left": 0, "exit_code": 0},
    "left_over": {"processes": 0, "ports": 0},
}


def broken(**changed: Any) -> list[str]:
    return broken_promises({**copy.deepcopy(KEPT), **changed})


def test_a_round_on_the_way_may_miss_what_the_last_of_its_phase_must_reach() -> None:
    assert broken() == []
    (text,) = broken(rounds=[round_of("balance"), round_of("shift", load_distance_after=1.2), round_of("drain")])
    assert text == ("round 2, the last of its phase: load distance 1.2 measured after it, expected within 1.00 of 0.0")
    assert (
        len(broken(rounds=[round_of("balance", load_distance_after=None), round_of("shift"), round_of("drain")])) == 1
    )


def test_noise_widens_what_can_be_asked_and_only_when_it_is_large() -> None:
    rounds = [round_of("balance"), round_of("shift", load_distance_after=1.4), round_of("drain")]
    assert len(broken(rounds=rounds, window_noise=0.3)) == 1
    assert broken(rounds=rounds, window_noise=0.5) == []


def test_the_others_must_not_pause_more_than_in_calm_seconds() -> None:
    pauses = {name: {"median": s, "max": s} for name, s in (("moved", 0.1), ("others", 0.11), ("calm", 0.05))}
    assert broken(pause_seconds=pauses) == ["median pause of the others 0.11 s, expected at most 0.05 above 0.05"]


@pytest.mark.parametrize(
    "changed",
    [
        {"events": {"sent": 9, "processed": 8, "lost": 0, "duplicated": 0}},
        {"events": {"sent": 9, "processed": 9, "lost": 0, "duplicated": 1}},
        {"answers": {"checked": 2, "wrong": 1}},
        {"answers": {"checked": 0, "wrong": 0}},
        {"drained": {"worker": "w3", "key_groups_left": None, "exit_code": 0}},
        {"left_over": {"processes": 1, "ports": 0}},
        {"rounds": [round_of("balance"), round_of("shift")]},
    ],
)
def test_what_was_not_kept_is_said(changed: dict[str, Any]) -> None:
    assert len(broken(**changed)) == 1
