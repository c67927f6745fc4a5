"""A host of an app without standbys is lost: next owners restore in order, even if the controller dies meanwhile."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.narrow import not_none
from tests.sim.simulated.broker import Stored
from tests.sim.simulated.simulation import simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.traits import LIMITS, WINDOW_S
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.world import World, world_folder
from trimtab_controller.execution.state import Round
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId

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


def the_rounds(world: World) -> tuple[Round, ...]:
    execution = not_none(world.checker.execution)
    return tuple(execution.rounds.values())


def the_plan(world: World) -> Round:
    """The plan after the loss, which has just begun, with what it has grown to."""
    (row,) = the_rounds(world)
    assert row.lost
    return row


AWAY_WINDOWS, ENDING_S = 3, 2.0
"""A worker must be away in two whole windows; then the stream waits for those that are late, and the plan ends."""
SLOWEST, SLOW, FAST = (50.0, 58.0), (30.0, 40.0), (0.05, 2.0)


def restoring_takes(world: World, seconds: tuple[float, float]) -> None:
    for worker in world.workers():
        worker.restore_s = seconds


@pytest.fixture
def slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Enough hosts that two lost ones are not most of them, and time until the group notices."""
    monkeypatch.setattr("tests.sim.simulated.group.SESSION_S", 2 * SESSION_S)
    monkeypatch.setattr("tests.sim.simulated.invariants.UNOWNED_LIMIT_S", 4 * SESSION_S)
    monkeypatch.setattr("tests.sim.simulated.world.LIMITS", replace(LIMITS, prepare_timeout_s=60.0))
    with simulating(), world_folder() as folder:
        made = World(request.param, folder, WorkerProcess)
        made.standbys = 0
        for _ in range(4):
            made.add_host()
        for worker in made.workers():
            worker.board.faust_standbys = 0
        yield made


def power_off(world: World, name: HostId) -> set[WorkerId]:
    """The agent first, so that it says nothing of its workers; returns what is lost."""
    host = world.hosts[name]
    assert host.agent is not None
    host.agent.kill()
    world.kill_host(name)
    return set(host.names)


def plan_for(world: World) -> Round:
    """The plan after a loss, as soon as it has begun."""
    until = world.timeline.now + NOTICED_S
    while not world.checker.losses and world.timeline.now < until:
        world.timeline.run_until(world.timeline.now + 0.1)
    assert the_plan(world).ended_at is None
    return the_plan(world)


def with_key_groups(world: World) -> list[HostId]:
    """The hosts whose workers own some, those that own most first."""
    workers = {worker: name for name, host in world.hosts.items() for worker in host.names}
    counts = Counter(workers[account.worker] for account in world.ledger.accounts.values() if account.worker)
    return [name for name, _ in counts.most_common()]


def owned_by(world: World, lost: set[WorkerId]) -> set[KeyGroup]:
    return {each for each, account in world.ledger.accounts.items() if account.worker in lost}


def settle_after(world: World, lost: set[WorkerId]) -> None:
    """Until the group has noticed, and everything has an owner that lives."""
    restoring_takes(world, FAST)
    world.timeline.run_until(world.timeline.now + 4 * SESSION_S)
    assert orphans(world, lost) == 0
    assert not world.checker.misplaced(), "the group followed what the placement names"


@pytest.mark.parametrize("slow", [0, 4], indirect=True)
def test_a_next_owner_that_is_lost_too_is_replaced_in_the_same_plan(slow: World) -> None:
    """What the second host owned, and what it was to own, has a next owner before the group notices either loss."""
    settle(slow)
    restoring_takes(slow, SLOW)
    first = with_key_groups(slow)[0]
    owned = owned_by(slow, set(slow.hosts[first].names))
    lost = power_off(slow, first)
    plan = plan_for(slow)
    second = Counter(each.target_host for each in plan.handovers).most_common(1)[0][0]
    owned |= owned_by(slow, set(slow.hosts[second].names))
    lost |= power_off(slow, second)
    named: dict[KeyGroup, WorkerId] = {}
    until = slow.timeline.now + 45.0
    while slow.timeline.now < until:
        slow.timeline.run_until(slow.timeline.now + 0.5)
        row = the_plan(slow)
        assert row.plan == plan.plan
        named |= {each: one.target for one in row.handovers if one.target not in lost for each in one.key_groups}
    assert named.keys() == owned, "all of it in the plan that was in flight"
    details = [each.detail for each in the_plan(slow).handovers if each.target_host == second]
    assert details == ["its target is lost too"] * len(details)
    assert details
    settle_after(slow, lost)
    assert len(slow.checker.losses) == 1
    owners = {each: account.worker for each, account in slow.ledger.accounts.items()}
    assert sum(owners[each] == target for each, target in named.items()) >= 0.75 * len(named), "unless it moved since"


@pytest.mark.parametrize("slow", [2], indirect=True)
def test_a_worker_that_joins_while_next_owners_restore_disturbs_nothing(slow: World) -> None:
    settle(slow)
    restoring_takes(slow, SLOW)
    lost = power_off(slow, with_key_groups(slow)[0])
    plan_for(slow)
    joined = set(slow.hosts[slow.add_host()].names)
    for worker in slow.workers():
        worker.board.faust_standbys = 0
    settle_after(slow, lost)
    assert len(slow.checker.losses) == 1
    assert joined <= {worker.id for worker in slow.workers() if worker.alive}


def first_restore_after(world: World, lost_at: float) -> float:
    """Seconds from the loss until the first next owner of the plan that follows restores."""
    while not world.checker.losses:
        assert world.timeline.now < lost_at + 4 * SESSION_S
        world.timeline.run_until(world.timeline.now + 0.1)
    begun = [each.since for each in the_plan(world).handovers if each.attempt]
    assert begun
    return min(begun) - lost_at


def lost_during_a_drain(world: World) -> tuple[set[WorkerId], float]:
    """A worker is drained to targets that restore for most of a minute each; meanwhile another host is lost."""
    settle(world)
    restoring_takes(world, SLOWEST)
    first, second = with_key_groups(world)[:2]
    plans = len(world.checker.plans)
    world.drain(world.hosts[second].names[0])
    while len(world.checker.plans) == plans:
        world.timeline.run_until(world.timeline.now + 0.5)
    return power_off(world, first), world.timeline.now


@pytest.mark.parametrize("slow", [0, 4], indirect=True)
def test_next_owners_do_not_wait_for_the_drain_that_was_in_flight(slow: World) -> None:
    lost, lost_at = lost_during_a_drain(slow)
    assert first_restore_after(slow, lost_at) < AWAY_WINDOWS * WINDOW_S + ENDING_S
    settle_after(slow, lost)


@pytest.mark.parametrize("slow", [0, 4], indirect=True)
def test_a_successor_names_them_if_the_leader_dies_as_it_ends_the_drain(slow: World) -> None:
    lost, _ = lost_during_a_drain(slow)
    watched, killed = slow.broker.on_stored, list[float]()

    def kill() -> None:
        slow.controller.kill()
        slow.start_controller()

    def on_stored(records: tuple[Stored, ...]) -> None:
        watched(records)
        if not killed and any(row.stopped for row in the_rounds(slow)):
            killed.append(slow.timeline.now)
            assert not slow.checker.losses, "before it has named anybody"
            slow.timeline.after(0.0, kill)

    slow.broker.on_stored = on_stored
    slow.timeline.run_until(slow.timeline.now + AWAY_WINDOWS * WINDOW_S + ENDING_S)
    assert killed
    settle_after(slow, lost)
    assert slow.checker.losses
    assert not slow.checker.busy
