"""The loss of a host ends in the planned placement: every key group at its first standby, the load as foretold."""

from collections.abc import Iterator

import pytest

from tests.sim.simulated.simulation import simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.traits import OPERATOR, WINDOW_S
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.world import World, world_folder
from trimtab_controller.decider.memory.standby_choice import FOLLOWING_SHARE
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import decode_record
from trimtab_protocol.messages.status import AppStatus, Status

STARTED_S = 60.0
SETTLE_WINDOWS = 60
CALM_WINDOWS = 8
REBALANCED_S = 60.0
NOISE_PCT = 1.5
"""Loads are measured to 2 %, and smoothed."""


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with simulating(), world_folder() as folder:
        yield World(request.param, folder, WorkerProcess)


def placement_of(world: World) -> Placement:
    log = PlacementLog()
    for record in world.broker.read(world.topics.placement, 0):
        if record.value is not None:
            log.take(decode_record(record.key, record.value))
    log.settle()
    assert log.newest is not None
    return log.newest


def status_of(world: World) -> AppStatus:
    [app] = decoded(world.broker.read(world.topics.status, 0)[-1].value, Status).apps
    return app


def settle(world: World) -> None:
    """Until nothing is published for some windows, and every key group has its standbys."""
    world.timeline.run_until(START_S + STARTED_S)
    calm, before = 0, None
    for _ in range(SETTLE_WINDOWS):
        world.timeline.run_until(world.timeline.now + WINDOW_S)
        present = placement_of(world) if world.broker.read(world.topics.placement, 0) else None
        known = present is not None and status_of(world).n_minus_1_pct is not None
        calm = calm + 1 if known and present == before and not world.checker.busy else 0
        before = present
        if calm == CALM_WINDOWS:
            return
    raise AssertionError("the cluster does not settle")


def owners_of(world: World) -> dict[KeyGroup, WorkerId | None]:
    return {key_group: account.worker for key_group, account in world.ledger.accounts.items()}


@pytest.mark.parametrize("world", [0, 4, 12], indirect=True)
def test_what_status_foretells_is_what_happens(world: World) -> None:
    settle(world)
    placed, foretold, before = placement_of(world), status_of(world), owners_of(world)
    assert foretold.n_minus_1_pct is not None
    assert foretold.n_minus_1_bound_pct is not None
    assert foretold.n_minus_1_bound_pct <= foretold.n_minus_1_pct
    lost = set(foretold.n_minus_1_lost)
    [host] = {name for name, each in world.hosts.items() if lost.intersection(each.names)}
    assert lost == set(world.hosts[host].names), "workers of a host fail together"
    world.kill_host(host)
    until = world.timeline.now + REBALANCED_S
    while world.timeline.now < until:
        world.timeline.run_until(world.timeline.now + 0.25)
        owners = owners_of(world)
        if None not in owners.values() and not lost.intersection(filter(None, owners.values())):
            break
    rows = {key_group: placed.of(OPERATOR, key_group.partition) for key_group in before}
    assert owners == {key_group: row[1] if row[0] in lost else row[0] for key_group, row in rows.items()}
    worst = foretold.n_minus_1_worker
    loads = {key_group: 100.0 * account.load for key_group, account in world.ledger.accounts.items()}
    owned = sum(load for key_group, load in loads.items() if owners[key_group] == worst)
    still = sum(load for k, load in loads.items() if worst in rows[k][1:] and owners[k] != worst)
    assert owned + FOLLOWING_SHARE * still == pytest.approx(foretold.n_minus_1_pct, abs=NOISE_PCT)
