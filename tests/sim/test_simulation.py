"""Whole clusters on fake time, the real machines in them: every invariant after every step, and balance in the end."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT, python_path
from tests.sim.simulated.simulation import simulating

ROUNDS = 1_000
"""At least; `make simulate-faults` plays 100,000."""
SEEDS = 22
AT_ONCE = 11
"""So many seeds are one test: then both processes that run the fast tests have some of them."""


@pytest.mark.timeout(900)  # some tens of seconds of CPU
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_breaks_an_invariant_and_every_cluster_becomes_balanced_and_stays_so(first: int) -> None:
    with simulating() as run:
        outcomes = [run(seed) for seed in range(first, first + AT_ONCE)]
    rounds, steps, plans, moved, faults = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("rounds", "steps", "plans", "moved", "faults")
    )
    print(f"{len(outcomes)} seeds, {rounds} rounds, {steps} steps, {faults} faults, {plans} plans, {moved} moves")
    assert rounds >= ROUNDS * AT_ONCE / SEEDS
    assert plans > len(outcomes), "too quiet: next to nothing was moved"


def test_a_seed_replays_exactly_in_another_process() -> None:
    with simulating() as run:
        run(6)
        here = run(7)
    command = [sys.executable, "-m", "tests.sim.simulate", "--seed", "7"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": python_path(ROOT)}
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=240)
    assert there.stdout == f"{here}\n"
