"""A host of an app without standbys is lost: next owners restore in order, even if the controller dies meanwhile."""

from collections.abc import Iterator

import pytest

from tests.sim.simulated.simulation import simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.world import WINDOW_S, World, world_folder
from trimtab_protocol.messages.names import WorkerId

SESSION_S = 40.0
"""Long enough that the controller decides before the group does."""
STARTED_S = 90.0
SETTLE_WINDOWS = 60
NOTICED_S = 2 * SESSION_S


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("tests.sim.simulated.group.SESSION_S", SESSION_S)
    with simulating(), world_folder() as folder:
        made = World(request.param, folder, WorkerProcess)
        made.standbys = 0
        for worker in made.workers():
            worker.board.faust_standbys = 0
        yield made


def settle(world: World) -> None:
    """Until no plan has begun for some windows, and every key group is where it is placed."""
    world.timeline.run_until(START_S + STARTED_S)
    calm, plans = 0, -1
    for _ in range(SETTLE_WINDOWS):
        world.timeline.run_until(world.timeline.now + WINDOW_S)
        quiet = len(world.checker.plans) == plans and not world.checker.busy and not world.checker.misplaced()
        calm, plans = (calm + 1 if quiet else 0), len(world.checker.plans)
        if calm == 5:
            return
    raise AssertionError("the cluster does not settle")


def orphans(world: World, lost: set[WorkerId]) -> int:
    owners = [account.worker for account in world.ledger.accounts.values()]
    return sum(owner is None or owner in lost for owner in owners)


def kill_the_leader(world: World, after_s: float) -> None:
    """As soon as the plan has begun; another controller is started later."""

    def kill() -> None:
        world.controller.kill()
        world.timeline.after(3.0, world.start_controller)

    def once() -> None:
        world.checker.on_plan = lambda: None
        world.timeline.after(after_s, kill)

    world.checker.on_plan = once


@pytest.mark.parametrize(
    ("world", "killed_after_s"), [(0, None), (2, 0.0), (4, 0.3), (9, 2.0), (0, 0.3)], indirect=["world"]
)
def test_every_key_group_gets_the_next_owner_that_was_named(world: World, killed_after_s: float | None) -> None:
    settle(world)
    if killed_after_s is not None:
        kill_the_leader(world, killed_after_s)
    name, host = next((name, host) for name, host in sorted(world.hosts.items()) if host.workers)
    lost = set(host.names)
    owned = [each for each, account in world.ledger.accounts.items() if account.worker in lost]
    assert owned, f"{name} has nothing to lose"
    world.kill_host(name)
    until = world.timeline.now + NOTICED_S
    while world.timeline.now < until:
        world.timeline.run_until(world.timeline.now + 1.0)  # the checker looks after each step
    assert len(world.checker.losses) == 1, "next owners are named in one plan, which a successor goes on with"
    assert orphans(world, lost) == 0
    assert not world.checker.busy
    assert not world.checker.misplaced(), "the group followed what the placement names"
