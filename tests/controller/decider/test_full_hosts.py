"""Hosts that run out of CPU, memory, disk or link are told, whatever their workers' capacities say."""

from dataclasses import replace

import pytest

from tests.controller.decider.hosted_job import APP, HostedJob, Machine
from tests.controller.decider.test_hosts import H0, H1, W0, W1, W2, job
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_protocol.messages.names import AppId, WorkerId


def told(decider: Decider) -> list[tuple[AppId, tuple[WorkerId, ...], str]]:
    found = [each for each in decider.known.concerns if each.kind is ConcernKind.HOST_FULL]
    return [(each.app, each.workers, each.detail) for each in found]


def see(made: HostedJob, decider: Decider, windows: int = 1) -> list[tuple[AppId, tuple[WorkerId, ...], str]]:
    for _ in range(windows):
        snapshot = made.window()
        decider.record(snapshot.end_ms / 1000.0, snapshot)
    return told(decider)


def test_workers_within_their_capacities_may_ask_for_more_than_their_host_has() -> None:
    """Two workers with a core each use 62 % of it, on a host with one core; what others use counts up to half of it."""
    made = job({H0: Machine(1.0), H1: Machine(4.0, others=3.9)}, {W0: H0, W1: H0, W2: H1}, partitions=36)
    decider = made.decider()
    assert see(made, decider, 2) == [], "two windows are not several"
    assert see(made, decider) == [(APP, (W0, W1), "h0: 124 % of its CPU is asked for; for 3 windows or longer")]
    made.cost /= 1.5
    assert see(made, decider) == []


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (Machine(4.0, memory_bytes=91, memory_limit_bytes=100), "memory 91 % used"),
        (Machine(4.0, disk_total_bytes=100, disk_free_bytes=19), "disk 81 % used"),
        (Machine(4.0, link=1000.0, other_traffic=710.0), "link 71 % used"),
        (
            Machine(4.0, memory_bytes=95, memory_limit_bytes=100, disk_total_bytes=100, disk_free_bytes=1),
            "disk 99 % used, memory 95 % used",
        ),
    ],
)
def test_memory_disk_and_link_have_limits(machine: Machine, said: str) -> None:
    made = job({H0: machine, H1: Machine(4.0)}, {W0: H0, W1: H1})
    decider = made.decider(max_disk=0.8, max_link=0.7)
    assert see(made, decider, 3) == [(APP, (W0,), f"h0: {said}; for 3 windows or longer")]


@pytest.mark.parametrize(
    "machine",
    [
        Machine(4.0, memory_bytes=90, memory_limit_bytes=100),
        Machine(4.0, memory_bytes=99),
        Machine(4.0, disk_total_bytes=100, disk_free_bytes=20, link=1000.0, other_traffic=700.0),
        Machine(4.0),
        Machine(0.0),
    ],
)
def test_up_to_the_limits_and_where_nothing_is_known_no_host_is_full(machine: Machine) -> None:
    made = job({H0: machine, H1: Machine(4.0)}, {W0: H0, W1: H1})
    assert see(made, made.decider(max_disk=0.8, max_link=0.7), 4) == []


def test_a_worker_of_which_nothing_is_known_makes_the_cpu_of_its_host_unknown() -> None:
    made = job({H0: Machine(1.0), H1: Machine(4.0)}, {W0: H0, W1: H0, W2: H1}, partitions=36)
    decider = made.decider()
    for _ in range(4):
        window = made.window()
        rows = (replace(row, cpu=None, complete=False) if row.worker == W1 else row for row in window.nodes)
        keys = (replace(row, cpu=None) if row.worker == W1 else row for row in window.key_groups)
        window = replace(window, nodes=tuple(rows), key_groups=tuple(keys))
        decider.record(window.end_ms / 1000.0, window)
    assert told(decider) == []


def test_a_gap_in_the_windows_begins_the_count_anew() -> None:
    full = Machine(4.0, memory_bytes=99, memory_limit_bytes=100)
    made = job({H0: full, H1: Machine(4.0)}, {W0: H0, W1: H1})
    decider = made.decider()
    assert see(made, decider, 2) == []
    made.number += 5
    assert see(made, decider, 2) == []
    assert len(see(made, decider)) == 1
