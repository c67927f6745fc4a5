"""A move takes no key group's only copy on another host, or in another zone, and the simulator finds one that does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from tests.sim.simulated.broker import Stored
from tests.sim.simulated.copies import CopyCheck
from tests.sim.simulated.faults import shift_load
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.simulation import simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.traits import APP, OPERATOR
from tests.sim.simulated.world import World, world_folder
from tests.sim.simulated.zone_faults import drain_zone, lose_zone, noted
from tests.sim.simulated.zoned import ZONED, ZONED_EVERY, ZoneCheck, zone_of
from trimtab_controller import rows
from trimtab_controller.decider.memory import standby_choice as choice
from trimtab_controller.decider.memory.observe import Liveness
from trimtab_controller.decider.policies.order import Situation
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


# ---- clusters whose hosts have zones: defects about zones, planted into the product, are found


SEEDS = range(ZONED, ZONED + 8 * ZONED_EVERY, ZONED_EVERY)
WHAT_FAILS = (lose_zone, drain_zone, shift_load)
LEVELS = choice._levels
DEFECTS: dict[str, tuple[tuple[object, str, Any], str]] = {
    "standbys know hosts only": ((choice, "_levels", lambda workers: LEVELS(workers)[:2]), "share a zone"),
    "nobody remembers zones": (
        (Liveness, "zones", property(lambda _: {}, lambda *_: None)),
        "no standby on another host|where a rule does not want them|against a rule",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str) -> None:
    (owner, name, value), found = DEFECTS[defect]
    with simulating() as run, patch.object(owner, name, value), pytest.raises(Violation, match=found):
        _all(run)


def _all(run: Callable[..., object]) -> None:
    for seed in SEEDS:
        run(seed, faults=WHAT_FAILS)


def owners_in(world: World, zone: str) -> int:
    """How many key groups the workers of a zone own."""
    owners = [account.worker for account in world.ledger.accounts.values() if account.worker is not None]
    return sum(zone_of(each) == zone for each in owners)


def left_in_a_drained_zone(seed: int) -> tuple[int, int]:
    """How many key groups are in a zone before it is drained, and two minutes later."""
    with simulating(), world_folder() as folder:
        world = World(seed, folder)
        world.timeline.run_until(START_S + 100.0)
        before = owners_in(world, "z1")
        for host in world.hosts.values():
            for worker in host.names if host.machine.zone == "z1" else ():
                world.drain(worker)
        world.timeline.run_until(START_S + 220.0)
        return before, owners_in(world, "z1")


def test_a_drained_zone_is_empty_in_the_end_and_that_nobody_heeds_it_is_found() -> None:
    before, after = left_in_a_drained_zone(SEEDS[1])
    assert before > 0
    assert after == 0
    with patch.object(Situation, "draining", property(lambda _: frozenset())):
        assert left_in_a_drained_zone(SEEDS[1])[1] > 0


def test_a_plan_onto_a_worker_that_is_to_be_empty_is_found() -> None:
    check, w0 = ZoneCheck(), WorkerId("w0a")
    drain = Stored(topic="i", key=b"drain/w0a", value=b"{}", headers=(), offset=3, at=0.0)
    check.see_intents(100.0, [drain], 3, [w0])
    check.see_moves(200.0, "1.1", [w0])
    check.see_intents(200.0, [drain], 4, [w0])
    check.see_moves(229.0, "1.2", [w0])
    with pytest.raises(Violation, match=r"plan 1.3 moves onto w0a, which is to be empty"):
        check.see_moves(231.0, "1.3", [w0])
    check.see_intents(240.0, [drain, replace(drain, value=None, offset=4)], 9, [w0])
    check.see_moves(300.0, "1.4", [w0])


def test_whole_zones_are_lost_and_drained() -> None:
    lost: list[float] = []
    drained: list[float] = []
    with simulating() as run:
        for seed in SEEDS[:3]:
            inflicted = (
                noted(lose_zone, lost.append),
                noted(drain_zone, drained.append),
                shift_load,
            )
            run(seed, faults=inflicted)
    assert len(lost) > 3
    assert len(drained) > 3
