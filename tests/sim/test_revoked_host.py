"""The key of a host is revoked while a worker is drained: nothing goes to that host, and nothing is lost."""

from collections.abc import Iterator

import pytest

from tests.narrow import not_none
from tests.sim.simulated.simulation import simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.traits import OPERATOR, WINDOW_S
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.world import World, world_folder
from tests.sim.test_loss_of_a_host import placement_of
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.placement import Placement

STARTED_WINDOWS = 20
REPORTED_S = 0.6
"""After so long the reports of a window are there, and its snapshot is not."""
KNOWN_S = 0.5
"""After so long the controller knows that a key is revoked."""
AFTER_WINDOWS = 12


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with simulating(), world_folder() as folder:
        yield World(request.param, folder, WorkerProcess, enforces=True)


def follows(placement: Placement, workers: list[WorkerId]) -> set[tuple[int, WorkerId]]:
    """Which of these workers has which partition, as owner or standby."""
    rows = enumerate(placement.owners[OPERATOR])
    return {(partition, worker) for partition, row in rows for worker in row if worker in workers}


def commands_to(world: World, host: HostId) -> list[tuple[float, Command]]:
    read = world.broker.read(world.topics.commands, 0)
    told = [(record.at, decoded(record.value, Command)) for record in read if record.producer is not None]
    return [(at, command) for at, command in told if command.host == host]


@pytest.mark.parametrize("world", [0, 4], indirect=True)
def test_nothing_goes_to_a_host_from_the_moment_its_key_is_revoked(world: World) -> None:
    world.timeline.run_until(START_S + STARTED_WINDOWS * WINDOW_S + REPORTED_S)
    before: dict[KeyGroup, WorkerId | None] = {name: each.worker for name, each in world.ledger.accounts.items()}
    assert None not in before.values()
    revoked, drained, *_ = sorted(world.hosts, key=lambda name: len(world.hosts[name].names))
    names = world.hosts[revoked].names
    for worker in world.hosts[drained].names:
        world.drain(worker)
    world.revoke(revoked)
    known = world.timeline.now + KNOWN_S
    world.timeline.run_until(known)
    leader = not_none(world.controller._controller)
    assert leader._decider.known.revoked == {revoked}

    had = follows(placement_of(world), names)
    while world.timeline.now < known + AFTER_WINDOWS * WINDOW_S:
        world.timeline.run_until(world.timeline.now + 1.0)
        assert follows(placement_of(world), names) <= had, "it keeps what it has, at most"

    told = [command.kind for at, command in commands_to(world, revoked) if at > known]
    assert set(told) <= {CommandKind.ABANDON}
    owners = {name: each.worker for name, each in world.ledger.accounts.items()}
    assert not {owner for owner in owners.values() if owner in world.hosts[drained].names}, "the drain goes on"
    assert {name for name, owner in before.items() if owner in names} == {
        name for name, owner in owners.items() if owner in names
    }
