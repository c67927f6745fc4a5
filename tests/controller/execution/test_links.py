"""What the links of hosts have left for restores, and what follows for the schedule before anything is measured."""

from collections.abc import Mapping

import pytest

from tests.controller.execution.execution_transcripts import APP, CLUSTER, T0, kg
from tests.controller.execution.test_restore_order import MB, SCHEDULED, SOURCE, TARGETS, plan, recovery
from trimtab_controller.execution.events import HostReport, PlanDecided, WindowSeen
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restore_costs import BYTES_PER_S, FEW_WINDOWS, PRIOR, HostLink, Links, RestoreCosts
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_protocol.messages.names import Epoch, HostId

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


def seen(links: Links, *received: float, limit: float | None = 100e6, restoring: tuple[HostId, ...] = ()) -> Links:
    for number, rate in enumerate(received):
        report = HostReport(cores=4.0, link_bytes_s=limit, received_bytes_s=rate)
        links.observe(T0 + 10.0 * number, {H1: report}, restoring)
    return links


def test_a_link_has_left_what_the_p95_of_the_foreground_leaves() -> None:
    links = seen(Links(), *([10e6] * 90), *([60e6] * 10))
    assert links.of(H1) == HostLink(limit_bytes_s=100e6, foreground_bytes_s=60e6)
    assert links.of(H1).free_bytes_s == 40e6  # type: ignore[union-attr]


def test_what_nobody_reports_is_unknown_and_not_nothing() -> None:
    assert seen(Links(), *([1e6] * 9), limit=None).of(H1) is None
    assert seen(Links(), *([1e6] * (FEW_WINDOWS - 1))).of(H1) is None
    assert seen(Links(), 1e6).of(H2) is None
    assert RestoreCosts().curves([H1], {H1: 2})[H1].high.values == pytest.approx([PRIOR.at(n) for n in (1, 2)])


def test_windows_with_a_restore_do_not_count_as_foreground() -> None:
    links = seen(Links(), *([90e6] * 9), restoring=(H1,))
    assert links.of(H1) is None
    links.restored(H1, T0 + 15.0)
    seen(links, *([5e6] * (FEW_WINDOWS + 2)))
    assert links.of(H1) == HostLink(limit_bytes_s=100e6, foreground_bytes_s=5e6)
    assert len(links._received[H1]) == FEW_WINDOWS, "the first two windows began before the restore ended"


def test_restores_get_a_part_of_a_full_link_all_the_same() -> None:
    [link] = [seen(Links(), *([120e6] * FEW_WINDOWS)).of(H1)]
    assert link is not None
    assert (link.full, link.free_bytes_s) == (True, 5e6)


def reported(machine: ExecutionMachine, limits: Mapping[HostId, float]) -> None:
    for number in range(FEW_WINDOWS):
        hosts = {
            host: HostReport(cores=4.0, link_bytes_s=limit, received_bytes_s=0.0) for host, limit in limits.items()
        }
        machine.on_event(
            T0 - 100.0 + number, WindowSeen(start_s=T0 - 100.0 + number, end_s=T0 - 100.0 + number, hosts=hosts)
        )


def test_the_schedule_begins_with_what_the_links_have_left_and_names_those_that_are_unknown() -> None:
    """One link takes ten restores side by side, one is filled by one; of the third nothing is known."""
    moves = [(target, 30 * MB) for target in TARGETS for _ in range(4)]
    placement = placement_of(CLUSTER, APP, Epoch(1, 1), {kg(at): SOURCE for at in range(len(moves))}, None)
    machine = ExecutionMachine(CLUSTER, SCHEDULED, Execution(generation=1, number=1, placements={APP: placement}))
    reported(machine, {H1: 10 * BYTES_PER_S, H2: BYTES_PER_S})
    machine.on_event(T0, PlanDecided(plan=plan(*moves, cores=4.0)))
    found = recovery(machine)
    assert found.unknown_links == (H3,)
    assert (found.slots[H1], found.slots[H2]) == (4, 1)
    learned = machine.learned()
    assert [round(learned.cost(H1).at(n), 9) for n in (1, 2, 4)] == [1.0, 1.1, 1.3]
    assert [learned.cost(H2).at(n) for n in (1, 2, 4)] == [1.0, 2.0, 4.0]
    assert learned.cost(H3).at(2) == pytest.approx(PRIOR.at(2))


def test_no_more_restore_at_a_time_than_the_link_takes() -> None:
    costs = RestoreCosts()
    seen(costs.links, *([20e6] * FEW_WINDOWS), limit=50e6)
    curve = costs.curves([H1], {H1: 8})[H1]
    assert costs.at_once(H1, 8, curve) == 8, "with the prior they share what is left"
    costs.links.observe(T0 + 99.0, {H1: HostReport(link_bytes_s=21e6, received_bytes_s=20e6)}, ())
    assert costs.at_once(H1, 8, curve) == 1
