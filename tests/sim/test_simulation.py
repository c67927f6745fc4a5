"""Whole clusters on fake time, the real machines in them: every invariant after every step, and balance in the end."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.paths import ROOT, python_path
from tests.sim.simulated.simulation import Outcome, play, simulating

ROUNDS = 1_000
AT_ONCE = 30


@pytest.mark.timeout(900)  # some hundred seconds of CPU
def test_nothing_breaks_an_invariant_and_every_cluster_becomes_balanced_and_stays_so() -> None:
    outcomes: list[Outcome] = []
    rounds = 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        while rounds < ROUNDS:
            outcomes += processes.map(play, range(len(outcomes), len(outcomes) + AT_ONCE))
            rounds = sum(outcome.rounds for outcome in outcomes)
    steps, plans, moved, faults = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("steps", "plans", "moved", "faults")
    )
    print(f"{len(outcomes)} seeds, {rounds} rounds, {steps} steps, {faults} faults, {plans} plans, {moved} moves")
    assert plans > len(outcomes), "too quiet: next to nothing was moved"


def test_a_seed_replays_exactly_in_another_process() -> None:
    with simulating() as run:
        run(6)
        here = run(7)
    command = [sys.executable, "-m", "tests.sim.simulate", "--seed", "7"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": python_path(ROOT)}
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=240)
    assert there.stdout == f"{here}\n"
