"""A move takes no key group's only copy on another host, or in another zone, and the simulator finds one that does."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.sim.simulated.copies import CopyCheck
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.simulation import simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.traits import APP, OPERATOR
from tests.sim.simulated.world import World, world_folder
from trimtab_controller import rows
from trimtab_controller.execution import handovers
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners

WITHIN_A_HOST, WITHIN_A_ZONE = 0, 12
"""Seeds of clusters in which key groups move so."""
FIRST_PLANS_S, DRAINED_S = 60.0, 90.0


def source_first(row: Owners, source: WorkerId, target: WorkerId, sites: rows.Sites) -> Owners:
    """Wherever it is, the source becomes the first standby."""
    return (target, source, *(each for each in row[1:] if each not in (source, target)))[: max(2, len(row))]


def hosts_only(row: Owners, source: WorkerId, target: WorkerId, sites: rows.Sites) -> Owners:
    """Zones do not count."""
    return rows.row_after(row, source, target, {name: replace(site, zone=None) for name, site in sites.items()})


def judged(seed: int) -> int:
    """Moves that could have taken an only copy, in the first plans of a cluster and while a worker is drained."""
    with simulating(), world_folder() as folder:
        world = World(seed, folder)
        world.timeline.run_until(START_S + FIRST_PLANS_S)
        world.drain(WorkerId("w0a"))
        world.timeline.run_until(START_S + FIRST_PLANS_S + DRAINED_S)
        return world.checker.copies.judged


@pytest.mark.parametrize(
    ("seed", "planted", "what"), [(WITHIN_A_HOST, source_first, "host"), (WITHIN_A_ZONE, hosts_only, "zone")]
)
def test_a_source_that_takes_the_place_of_the_only_distant_copy_is_found(seed: int, planted: object, what: str) -> None:
    assert judged(seed) > 0
    with patch.object(handovers, "row_after", planted), pytest.raises(Violation, match=f"no other {what} has"):
        judged(seed)


def row(*names: str) -> Owners:
    return tuple(map(WorkerId, names))


def test_only_running_copies_count_and_only_while_nothing_fails() -> None:
    check, key_group = CopyCheck(running=lambda: set(row("w0a", "w0b", "w1a"))), KeyGroup(APP, OPERATOR, 0)
    check.see_row(key_group, row("w0b", "w1a"), row("w0a", "w1a"), calm=True)
    check.see_row(key_group, row("w1a", "w0a"), row("w0a", "w1a"), calm=True)
    assert check.judged == 1, "the second move is not within a host"
    check.see_row(key_group, row("w0b", "w0a"), row("w0a", "w2a"), calm=True)
    check.see_row(key_group, row("w0b", "w0a"), row("w0a", "w1a"), calm=False)
    check.see_row(key_group, row("w0a"), row("w0a", "w1a"), calm=True)
    with pytest.raises(Violation, match="moves to w0b, and no other host has one: w1a had"):
        check.see_row(key_group, row("w0b", "w0a"), row("w0a", "w1a"), calm=True)
