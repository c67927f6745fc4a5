"""`trimtab stop` while a plan of 1,000 moves is under way, and the leader dies: it ends within 5 s, nothing is lost."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim.simulated.controller import ControllerProcess
from tests.sim.simulated.simulation import simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.traits import APP, BALANCE, WINDOW_S
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.world import World, world_folder
from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_protocol.messages.intents import MoveKeyGroups, RequestedMove

KEY_GROUPS, MOVES = 1_400, 1_000
ENDS_WITHIN_S = 5.0
STARTED_WINDOWS, PLANNED_WINDOWS, AFTER_WINDOWS = 8, 8, 4


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A cluster with the product's own limits, and a budget of 1,000 moves."""
    monkeypatch.setattr("tests.sim.simulated.world.BALANCE", replace(BALANCE, max_migrations=MOVES))
    monkeypatch.setattr("tests.sim.simulated.world.LIMITS", ExecutionLimits())
    with simulating(), world_folder() as folder:
        yield World(request.param, folder, WorkerProcess, many_key_groups=KEY_GROUPS)


def last_round(world: World) -> Round | None:
    """The plan of the app in the journal, in flight or ended."""
    execution = world.checker.execution
    return execution.rounds.get(APP) if execution is not None else None


def begin_a_large_plan(world: World) -> Round:
    """An operator moves 1,000 key groups, each to the worker after its own."""
    world.timeline.run_until(START_S + STARTED_WINDOWS * WINDOW_S)
    workers = sorted(each.id for each in world.workers())
    after = dict(zip(workers, [*workers[1:], workers[0]], strict=True))
    chosen = sorted(world.ledger.accounts.items())[:MOVES]
    moves = tuple(RequestedMove(key_group=name, worker=after[each.worker]) for name, each in chosen if each.worker)
    world.say(MoveKeyGroups(moves=moves, by="operator", at=world.timeline.now, reason="simulated"))
    for _ in range(round(PLANNED_WINDOWS * WINDOW_S)):
        world.timeline.run_until(world.timeline.now + 1.0)
        row = last_round(world)
        if row is not None and row.ended_at is None and len(row.handovers) * 4 >= MOVES:
            return row
    raise AssertionError("no large plan has begun")


def done(row: Round) -> int:
    return row.key_groups(HandoverPhase.DONE)


def stopped(world: World, *, kill_leader: bool) -> tuple[Round, float]:
    """Stop, and return the plan once it has ended, with how long that took since somebody led."""
    leader: ControllerProcess = world.controller
    world.stop()
    if kill_leader:
        leader.kill()
        while not any(each.in_office for each in world.living_controllers()):
            world.timeline.run_until(world.timeline.now + 0.1)
    began = world.timeline.now
    while (row := last_round(world)) is None or row.ended_at is None:
        world.timeline.run_until(world.timeline.now + 0.1)
        assert world.timeline.now - began < 10 * ENDS_WITHIN_S, "the plan does not end"
    return row, world.timeline.now - began


@pytest.mark.timeout(900)  # some tens of seconds of CPU
@pytest.mark.parametrize(
    ("moved", "kill_leader"),
    [
        pytest.param(0, False, id="just begun"),
        pytest.param(250, False, id="a quarter of it done"),
        pytest.param(100, True, id="the leader dies"),
    ],
)
@pytest.mark.parametrize("world", [1], indirect=True)
def test_a_plan_of_a_thousand_moves_ends_within_seconds_wherever_it_is(
    world: World, moved: int, kill_leader: bool
) -> None:
    begun = begin_a_large_plan(world)
    total = sum(len(each.key_groups) for each in begun.handovers)
    while (row := last_round(world)) is not None and done(row) < moved and row.ended_at is None:
        world.timeline.run_until(world.timeline.now + 0.1)
    assert row is not None
    assert row.ended_at is None
    if kill_leader and len(world.living_controllers()) < 2:
        world.start_controller()
        world.timeline.run_until(world.timeline.now + 0.5)

    ended, seconds = stopped(world, kill_leader=kill_leader)

    assert (ended.plan, ended.stopped) == (begun.plan, "stopped by operator: simulated")
    assert seconds <= ENDS_WITHIN_S
    assert moved <= done(ended) < total, "some had arrived, and not all"
    assert {each.phase for each in ended.handovers} <= {HandoverPhase.DONE, HandoverPhase.FAILED}
    print(f"{total} key groups, {done(ended)} moved, ended {seconds:.1f} s after the stop")
    world.pause()
    world.timeline.run_until(world.timeline.now + AFTER_WINDOWS * WINDOW_S)
    assert world.checker.misplaced() == [], "every key group is where the placement says"
    assert world.unanswered_stops() == 0
