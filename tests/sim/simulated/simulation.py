"""One seed from start to end: a cluster starts, is disturbed, is healed, and must become balanced and stay so."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.sim.simulated.agent import simulated_hosts
from tests.sim.simulated.budgeted import short_hours
from tests.sim.simulated.controller import simulated_clients
from tests.sim.simulated.faults import FAULTS, Fault
from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.timeline import START_S
from tests.sim.simulated.told import check_told
from tests.sim.simulated.traits import BALANCE, WINDOW_S
from tests.sim.simulated.worker import WorkerProcess
from tests.sim.simulated.world import Heal, World, world_folder
from tests.sim.simulated.zone_faults import ZONE_FAULTS
from trimtab_controller.decider.memory import standbys as rounds
from trimtab_controller.leadership.machine import CandidateRole

CHOSEN = 100
"""Tests choose their seeds below."""
QUIET_S = 60.0
"""At the start nothing fails for so long."""
DISTURBED_WINDOWS = 30
PLAN_S = 5.0
"""About so long a plan is in flight."""
HEALED_AFTER_S = (1.0, 8.0, 20.0, 60.0, 120.0, 240.0)
SETTLE_WINDOWS = 75
"""So many windows after the last fault the cluster has to become balanced (lost hosts count for 600 s) ..."""
STEADY_WINDOWS = 8
"""... and so many it must stay so, without a move."""
MEASURED_PP = 0.4
"""Loads are measured to 2 % each: what was measured may be so far from the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a seed brought: rounds (windows, each with its reports and its decision), steps, plans, moved key groups.

    `approved` = plans that an operator has approved, `by_hand` = how often one has moved key groups, `released` =
    hand-overs that a disruption budget was judged for, `used_share` = the most of it
    that was used, `in_windows` = plans that could begin in windows only.
    """

    seed: int
    rounds: int
    steps: int
    plans: int
    moved: int
    faults: int
    losses: int
    approved: int
    by_hand: int
    released: int
    in_windows: int
    used_share: float
    trace: str


class Simulation:
    """`faults` and `worker_type` are replaced by tests that plant a defect."""

    def __init__(self, seed: int, folder: Path, faults: tuple[Fault, ...], worker_type: type[WorkerProcess]) -> None:
        self._seed = seed
        self._world = World(seed, folder, worker_type)
        self._faults = (*faults, *ZONE_FAULTS) if self._world.traits.zoned and faults is FAULTS else faults
        self._heals: list[Heal] = []
        self._inflicted: list[tuple[float, str]] = []

    def run(self) -> Outcome:
        """Raises Violation."""
        try:
            self._disturb()
            self._settle()
            self._stay()
        except Violation as violation:
            raise Violation(self._story(str(violation))) from violation
        except Exception as fault:  # the product's own: a controller or an agent that crashes
            raise Violation(self._story(repr(fault))) from fault
        world = self._world
        return Outcome(
            seed=self._seed,
            rounds=round((world.timeline.now - START_S) / WINDOW_S),
            steps=world.timeline.steps,
            plans=len(world.checker.plans),
            moved=world.checker.moved,
            faults=len(self._inflicted),
            losses=len(world.checker.losses),
            approved=len(world.operator.approved) if world.operator else 0,
            by_hand=world.operator.moves if world.operator else 0,
            released=world.checker.budget.judged,
            in_windows=world.checker.in_windows,
            used_share=world.checker.budget.highest_s / (world.traits.limit_s or 1.0),
            trace=world.broker.trace,
        )

    def _story(self, what: str) -> str:
        at = self._world.timeline.now - START_S
        faults = "".join(f"\n  {when - START_S:7.1f} s  {name}" for when, name in self._inflicted)
        return f"seed {self._seed}: after {at:.1f} s: {what}{faults}"

    def _disturb(self) -> None:
        world = self._world
        world.timeline.run_until(START_S + QUIET_S)
        for _ in range(world.random.randint(2, 12)):
            self._inflict_within(DISTURBED_WINDOWS * WINDOW_S)
        world.checker.on_plan = self._disturb_plan
        world.timeline.run_until(world.timeline.now + DISTURBED_WINDOWS * WINDOW_S)
        world.checker.on_plan = lambda: None
        for heal in list(self._heals):
            heal()
        if world.operator is not None:
            world.operator.calm = True

    def _disturb_plan(self) -> None:
        """Most time no plan is in flight; what fails then is what matters most."""
        if self._world.random.random() < 0.6:
            self._inflict_within(PLAN_S)

    def _inflict_within(self, seconds: float) -> None:
        world = self._world
        world.timeline.soon(0.0, seconds, lambda: self._inflict(world.random.choice(self._faults)))

    def _inflict(self, fault: Fault) -> None:
        world = self._world
        undo = fault(world)
        if undo is None:
            return
        self._inflicted.append((world.timeline.now, fault.__name__))
        world.faults_active += 1

        def heal() -> None:
            if heal in self._heals:
                self._heals.remove(heal)
                undo()
                world.faults_active -= 1
                world.checker.disturbed_at = world.timeline.now

        self._heals.append(heal)
        world.timeline.after(world.random.choice(HEALED_AFTER_S), heal)

    def _settle(self) -> None:
        """Until the cluster is balanced for three windows in a row."""
        calm = 0
        for _ in range(SETTLE_WINDOWS):
            self._world.timeline.run_until(self._world.timeline.now + WINDOW_S)
            calm = calm + 1 if self._unsettled() is None else 0
            if calm == 3:
                return
        raise Violation(f"no convergence: {self._unsettled()} {SETTLE_WINDOWS} windows after the last fault")

    def _stay(self) -> None:
        """Only where noise may take the measured load distance out of the band is another move no fault."""
        world = self._world
        for _ in range(STEADY_WINDOWS):
            begun, settled = len(world.checker.plans), self._unsettled() is None
            inside = world.load_distance() <= BALANCE.load_distance - MEASURED_PP
            world.timeline.run_until(world.timeline.now + WINDOW_S)
            if inside and len(world.checker.plans) > begun:
                raise Violation("a plan begins although the cluster was balanced and nothing happened since")
            if inside and settled and (why := self._unsettled()) is not None:
                raise Violation(f"the cluster was balanced and is not any more: {why}")
        world.checker.check_answers(set(world.present()))
        plans = [*(plan for _, plan in world.checker.plans), *world.checker.losses]
        check_told(world.broker.read(world.topics.events, 0), plans, world.checker.in_flight)

    def _unsettled(self) -> str | None:
        """Why the cluster is not as it should be, or None."""
        world = self._world
        missing = [
            worker
            for host in world.hosts.values()
            if not host.left
            for worker in host.names
            if worker not in host.workers or not host.workers[worker].alive
        ]
        if missing:
            return f"workers do not run: {missing}"
        roles = sorted(process.role for process in world.living_controllers())
        if roles != [CandidateRole.LEADING] + [CandidateRole.WAITING] * (len(roles) - 1):
            return f"controllers are {roles}"
        if world.checker.busy:
            return "a plan is in flight"
        if world.unanswered_stops():
            return "nobody has answered what an operator said"
        if misplaced := world.checker.misplaced():
            return f"{len(misplaced)} key groups are elsewhere than placed"
        hosts = {worker: name for name, host in world.hosts.items() if not host.left for worker in host.names}
        if world.standbys and (unsafe := world.checker.without_standby(hosts)):
            return f"{len(unsafe)} key groups have no standby on another host"
        present = [worker.id for worker in world.workers()]
        if sharing := world.checker.zones.against(world.checker.rows(), present, world.checker.rules.allows):
            return f"the copies of {len(sharing)} key groups share a zone: {sharing[0]}"
        if against := world.checker.against_rules(hosts):
            return f"{len(against)} key groups are where a rule does not want them"
        distance, traits = world.load_distance(), world.traits
        # Rules, a budget or windows may leave no better placement.
        free = not traits.rules and traits.limit_s is None and not traits.times.windows
        if free and distance > BALANCE.load_distance + MEASURED_PP:
            return f"load distance {distance:.2f}"
        return None


@contextmanager
def simulating() -> Iterator[Callable[..., Outcome]]:
    """The product's shells meet simulated surroundings; gives a function that runs one seed.

    The loads after a loss have the bound of large clusters: the other one takes most of the CPU of a small cluster, and
    is played by a quarter of the seeds that no test has chosen.
    """
    tightly = rounds.TIGHTLY_BOUND

    def run(
        seed: int, *, faults: tuple[Fault, ...] = FAULTS, worker_type: type[WorkerProcess] = WorkerProcess
    ) -> Outcome:
        bound = tightly if seed >= CHOSEN and seed % 4 == 0 else 0
        with world_folder() as folder, patch.object(rounds, "TIGHTLY_BOUND", bound):
            return Simulation(seed, folder, faults, worker_type).run()

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with simulated_clients(), simulated_hosts(), short_hours(), patch.object(rounds, "TIGHTLY_BOUND", 0):
            yield run
    finally:
        logging.disable(disabled)
