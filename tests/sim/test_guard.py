"""The guard under faults: what it ends and moves back breaks no invariant, and every cluster becomes balanced."""

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.sim.simulated import faults
from tests.sim.simulated.faults import Fault
from tests.sim.simulated.guarded import FallingBehind, GuardCheck, fall_behind, suffer_from
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.simulation import Simulation, simulating
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.world import world_folder
from trimtab_controller.decider.policies import order
from trimtab_controller.execution.state import Round

SUFFERING: tuple[Fault, ...] = (
    fall_behind,
    fall_behind,
    faults.slow_worker,
    faults.shift_load,
    faults.kill_worker,
    faults.kill_controller,
    faults.lose_lease,
    faults.drain,
    faults.join,
)
"""Plans last for windows where a target does not catch up."""
SUFFERS_S = 300.0
SEEDS = (3, 27, 36)
"""The second one has a plan that ends and of which nothing can be moved back."""


def guarded(seed: int, folder: Path) -> GuardCheck:
    """One cluster from begin to end, with the guard's own invariants; most of its plans make their targets suffer."""
    simulation, check = Simulation(seed, folder, SUFFERING, FallingBehind), GuardCheck()
    world = simulation._world

    def on_begin(row: Round) -> None:
        if world.timeline.now < START_S + SUFFERS_S and world.random.random() < 0.7:
            suffer_from(world, row)

    check.on_begin = on_begin
    world.checker.on_journal = lambda now, before: check.see(world.timeline.now, now, before)
    simulation.run()
    return check


def play_all(seeds: Sequence[int] = SEEDS) -> list[GuardCheck]:
    found = []
    for seed in seeds:
        with simulating(), world_folder() as folder:
            found.append(guarded(seed, folder))
    return found


@pytest.mark.timeout(900)
def test_what_the_guard_ends_and_moves_back_breaks_no_invariant() -> None:
    found = play_all()
    ended, rolled_back = sum(len(each.ended) for each in found), sum(len(each.rolled_back) for each in found)
    print(f"{len(SEEDS)} seeds: {ended} plans ended, {rolled_back} of them rolled back")
    assert ended > rolled_back > 0, "too quiet"


@pytest.mark.timeout(900)
def test_a_controller_that_does_not_wait_after_a_stop_is_found() -> None:
    forgetful = patch.object(order, "backs_off", lambda *_: None)
    with forgetful, pytest.raises(Violation, match="while the guard lets the app have none"):
        play_all()
