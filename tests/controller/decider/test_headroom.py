"""How many times the present input fits, and how many workers a multiple of it needs."""

from dataclasses import replace

import numpy as np
import pytest

from tests.controller.decider.hosted_job import APP, HostedJob, Machine, kg
from tests.controller.decider.test_hosts import H0, H1, W0, W1, W2, job, view_of
from trimtab_controller.cli.sizing import CannotSizeError, Sizing, Wanted, WorkerNeed, size_of, together
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.headroom import Headroom, times_placed
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState


def seen(made: HostedJob, windows: int = 8) -> Decider:
    """A decider that has seen windows, and plans nothing."""
    decider = made.decider(load_distance=1000.0)
    for _ in range(windows):
        made.round(decider)
    return decider


def found(decider: Decider) -> Headroom:
    return decider.known.capacity.headrooms[APP]


def sized(decider: Decider, rate: float, target: float = 0.7, **more: float) -> Sizing:
    known, view = decider.known, view_of(decider)
    wanted = Wanted(rate=rate, target=target, **more)
    return size_of(view, known.capacity, known.pool.get(APP, ()), wanted, decider.followed(view))


def test_headroom_as_placed_with_free_moves_and_the_bound() -> None:
    made = job({H0: Machine(4.0), H1: Machine(4.0)}, {W0: H0, W1: H1}, partitions=8, rate=50.0)
    made.owners = {each: (W0 if each.partition < 6 else W1) for each in made.owners}
    its = found(seen(made))
    assert (its.first, its.heaviest) == (W0, None)
    assert its.as_placed == pytest.approx(98 / 30)  # the process itself uses 2 %
    assert its.potential == pytest.approx(98 / 20)
    assert its.bound == pytest.approx(98 / 20)


def test_a_heavy_key_group_or_a_small_host_limits_the_headroom() -> None:
    heavy = job({H0: Machine(4.0), H1: Machine(4.0)}, {W0: H0, W1: H1}, partitions=3, rate=20.0)
    heavy.rates[kg(2)] = 490.0
    its = found(seen(heavy))
    assert its.bound == pytest.approx(2.0)
    assert its.heaviest == kg(2)
    small = job({H0: Machine(0.5), H1: Machine(4.0)}, {W0: H0, W1: H1, W2: H1}, partitions=30, rate=25.0)
    its = found(seen(small))
    assert its.first in (W0, "host h0")
    assert its.as_placed == pytest.approx(48 / 25, rel=0.05)


def test_a_link_may_be_full_first() -> None:
    """8 key groups receive 50 kB/s each; others use 0.3 of h0's 1 MB/s, so 0.6 is left for the 0.2 of its own."""
    machines = {H0: Machine(4.0, link=1e6, other_traffic=0.3e6), H1: Machine(4.0, link=1e8)}
    made = job(machines, {W0: H0, W1: H1}, partitions=8, rate=50.0)
    made.input_bytes = 1000.0
    its = found(seen(made))
    assert (its.first, its.as_placed) == ("link of host h0", pytest.approx(3.0))
    assert its.potential == pytest.approx(98 / 20), "free moves are limited by CPU alone"


def test_what_is_said_of_very_many_key_groups_is_reached_at_least() -> None:
    load, room = np.random.default_rng(0).uniform(1.0, 5.0, 30_000), np.linspace(80.0, 100.0, 300)
    stated = times_placed(load, room)
    one_by_one = np.zeros(300)
    for each in np.sort(load)[::-1]:
        one_by_one[int(((one_by_one + each) / room).argmin())] += each
    assert stated <= 1.0 / float((one_by_one / room).max())
    assert stated >= 0.9 / float((one_by_one / room).max())


def test_the_number_of_workers_for_a_multiple_of_the_input() -> None:
    made = job({H0: Machine(4.0), H1: Machine(4.0)}, {W0: H0, W1: H1}, partitions=80, rate=12.5)
    made.pool = {WorkerId("w8"): H0}
    (need,) = sized(seen(made), 2.0).needs
    # 200 % of a core of load, 2 % for each process, at most 70 % of a worker
    assert (need.workers, need.present, need.pool) == (3, 2, 1)
    assert need.utilisation == pytest.approx(0.687, abs=0.005)
    (need,) = sized(seen(made), 1.0).needs
    assert need.workers == 2
    (need,) = sized(seen(made), 80.0).needs
    assert need.workers is None
    assert "key group app/sums/" in need.why


def test_a_worker_that_takes_no_part_in_plans_costs_no_answer() -> None:
    made = job({H0: Machine(4.0), H1: Machine(4.0)}, {W0: H0, W1: H1, W2: H1}, partitions=80, rate=12.5)
    made.owners = {each: (W2 if each.partition < 3 else W0 if each.partition % 2 else W1) for each in made.owners}
    decider = seen(made)
    whole = sized(decider, 2.0)
    away = made.window()
    nodes = [row for row in away.nodes if row.worker != W2]
    rows = [replace(row, state=WorkerState.AWAY, cpu=None) for row in away.nodes if row.worker == W2]
    key_groups = [row for row in away.key_groups if row.worker != W2]
    decider.record(away.end_ms / 1000.0, replace(away, nodes=(*nodes, *rows), key_groups=tuple(key_groups)))
    assert [each.id for each in view_of(decider).fixed] == [W2]
    found = sized(decider, 2.0)
    assert (found.fixed, found.present) == ((W2,), 2)
    assert [need.workers for need in found.needs] == [need.workers for need in whole.needs] == [3]
    assert (whole.fixed, whole.present) == ((), 3)

    only_reports = made.window()
    rows = [replace(row, steering=row.worker != W2) for row in only_reports.nodes]
    decider.record(only_reports.end_ms / 1000.0, replace(only_reports, nodes=tuple(rows)))
    found = sized(decider, 80.0)
    assert (found.fixed, found.present) == ((W2,), 3)
    assert found.needs[0].present == 3
    assert "key group app/sums/" in found.needs[0].why


def test_what_is_not_known_is_named() -> None:
    idle = job({H0: Machine(4.0)}, {W0: H0}, partitions=2, rate=0.0)
    with pytest.raises(CannotSizeError, match="app has no load that could be multiplied"):
        sized(seen(idle), 2.0)


def by_resource(need: WorkerNeed) -> dict[str, int | None]:
    return {row.resource: row.workers for row in need.resources}


def full_of_state(**changes: object) -> HostedJob:
    """Two hosts with 16 key groups of 1,000 bytes, 8 on each, all of them followed by the other; 60 % of a core each.

    A host has 5,000 bytes left on its disk up to 90 %, 20,000 of memory, and 0.9 MB/s of link, of which 0.4 are used.
    """
    machine = {
        "disk_total_bytes": 100_000, "disk_free_bytes": 15_000, "memory_bytes": 30_000, "memory_limit_bytes": 50_000,
        "link": 1e6,
    }  # fmt: skip
    machines = {H0: Machine(4.0, **machine), H1: Machine(4.0, **machine)}  # type: ignore[arg-type]
    made = job(machines, {W0: H0, W1: H1}, partitions=16, rate=75.0)
    made.input_bytes, made.standbys = 400_000 / (8 * 75.0), 1
    made.followers = {each: (W1 if owner == W0 else W0,) for each, owner in made.owners.items()}
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_each_resource_has_its_number_and_the_one_that_needs_most_is_named() -> None:
    decider = seen(full_of_state())
    (need,) = sized(decider, 1.0, max_disk=0.9, max_link=0.9).needs
    # 16 states twice: 21 fit onto a disk, 36 into memory; 120 % of a core at 68 % each; 0.8 MB/s at 0.9 each
    assert by_resource(need) == {"CPU": 2, "memory": 1, "disk": 2, "link": 1}
    assert (need.workers, need.at_least) == (2, False)
    (need,) = sized(decider, 4.0, target=1.0, max_disk=0.9, max_link=0.9).needs
    assert by_resource(need) == {"CPU": 6, "memory": 1, "disk": 2, "link": 4}, "traffic grows with the input"
    assert (need.workers, need.bottleneck) == (6, "CPU")
    (need,) = sized(decider, 1.0, state=10.0, max_disk=0.9, max_link=0.9).needs
    assert by_resource(need) == {"CPU": 2, "memory": 11, "disk": 16, "link": 1}, (
        "two fit onto a disk, three into memory"
    )
    assert (need.workers, need.bottleneck) == (16, "disk")
    (need,) = sized(decider, 1.0, state=30.0, max_disk=0.9, max_link=0.9).needs
    assert (need.workers, need.bottleneck) == (None, "disk")
    assert need.why.endswith("alone needs 30,000 bytes of disk, and such a worker has 21,000 bytes of disk")


def test_all_resources_must_fit_together() -> None:
    """Of each amount alone, two of the items fit onto one worker, but no two of them with both."""
    shares = np.array([[0.4, 0.9, 0.5], [0.5, 0.4, 0.6]])
    assert together(shares, 2) == 3
    assert together(shares[:1], 2) == 2
    assert together(np.full((2, 3), 1.1), 1) is None
