"""Simulates a fleet in which somebody is always away, and counts the windows in which it is balanced.

    python -m benchmarks.never_whole [--workers 40] [--away 0.02] [--windows 360] [--seeds 3]

Each worker is away for `--away` of the time, for half a minute on average, in one of three ways: its agent is silent,
its statistics are partial, or it restarts.  A restarting worker's key groups go to their standbys, and return with it.
Loads of key groups drift all the time, so without plans the workers leave the band.  Decider, solver and execution are
the real ones; hosts, engine and stream are played.

*Balanced*: the true loads of all workers are within `[balance] load_distance` of their mean, each key group counted
where the placement has it.  *With standbys*: the same for the workers that run, each key group counted where it is
while its owner restarts.  *Decided*: the decision was not one of those for want of data.  The second line is the rule
before 0.2.0: one worker that is not whole makes its app wait.  The last one is without plans.
"""

import argparse
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

from benchmarks.played import ACTED_ON, GENERATION, PlayedController, host_of, host_window, node_window, snapshot_of
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.values.reasons import NOT_READY
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_protocol.messages.commands import Ack, Command, Phase
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.snapshot import KeyGroupWindow, Snapshot

CLUSTER, APP, OPERATOR = "never-whole", AppId("app"), OperatorId("sums")
WINDOW_S = 10.0
AWAY_WINDOWS = 3.0
"""How many windows a worker is away on average."""
WARM_UP = 30
"""Windows in which nobody is away, until the cluster is balanced for the first time."""
PER_WORKER = 16
"""Key groups per worker."""
MEAN_LOAD = 0.5
"""Mean load of a worker, in cores; each has one."""
DRIFT, PULL, NOISE = 0.02, 0.01, 0.03
"""Loads are a random walk of their logarithms: its step per window, its pull to the mean, the error of measuring."""
NEEDS = Requirements()
ONE_FOR_ALL = Requirements(min_coverage=0.95, max_unknown=0.0)
"""The rule before 0.2.0."""


class Way(Enum):
    """How a worker is away."""

    SILENT = auto()  # its agent does not report; the worker runs on
    PARTIAL = auto()  # its statistics are marked as partial
    RESTART = auto()  # its process ends and starts again


@dataclass(slots=True)
class Fleet:
    """The truth: who is away, who owns what, and what it costs."""

    workers: list[WorkerId]
    random: random.Random
    away_share: float
    errors: Random = field(default_factory=lambda: Random(0))
    """Of measuring: apart, so that what happens is the same whatever the controller does."""
    away: dict[WorkerId, Way] = field(default_factory=dict)
    load: dict[KeyGroup, float] = field(default_factory=dict)
    base: dict[KeyGroup, float] = field(default_factory=dict)
    owner: dict[KeyGroup, WorkerId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in range(PER_WORKER * len(self.workers)):
            key_group = KeyGroup(APP, OPERATOR, place)
            self.base[key_group] = self.load[key_group] = (
                MEAN_LOAD / PER_WORKER * self.random.lognormvariate(-0.3, 0.77)
            )
            self.owner[key_group] = self.workers[place % len(self.workers)]

    def step(self, placed: dict[KeyGroup, tuple[WorkerId, ...]]) -> None:
        """One window passes."""
        ends, begins = 1.0 / AWAY_WINDOWS, self.away_share / (1.0 - self.away_share) / AWAY_WINDOWS
        rebalanced = False
        for worker in self.workers:
            if worker in self.away and self.random.random() < ends:
                rebalanced |= self.away.pop(worker) is Way.RESTART
            elif worker not in self.away and self.random.random() < begins:
                self.away[worker] = self.random.choice(list(Way))
                rebalanced |= self.away[worker] is Way.RESTART
        for key_group, load in self.load.items():
            pull = (self.base[key_group] / load) ** PULL
            self.load[key_group] = load * pull * self.random.lognormvariate(0.0, DRIFT)
        if rebalanced:
            for key_group, owner in self.owner.items():
                row = (*placed.get(key_group, ()), owner, *self.workers)
                self.owner[key_group] = next(each for each in row if self.runs(each))

    def runs(self, worker: WorkerId) -> bool:
        """Whether its process runs."""
        return self.away.get(worker) is not Way.RESTART

    def load_distance(self, owners: Mapping[KeyGroup, WorkerId], workers: Iterable[WorkerId]) -> float:
        """By the true loads of these workers, with these owners (pp)."""
        loads = dict.fromkeys(workers, 0.0)
        for key_group, owner in owners.items():
            loads[owner] += 100.0 * self.load[key_group]
        mean = sum(loads.values()) / len(loads)
        return max(abs(load - mean) for load in loads.values())

    def snapshot(self, start_s: float) -> Snapshot:
        """What the hosts report of a window; each has one worker."""
        heard = [worker for worker in self.workers if self.away.get(worker) is not Way.SILENT]
        running = [worker for worker in heard if self.runs(worker)]
        return snapshot_of(
            CLUSTER,
            start_s,
            WINDOW_S,
            expected=len(self.workers),
            hosts=(host_window(host_of(worker), WINDOW_S, cores=1.0) for worker in heard),
            nodes=(
                node_window(
                    worker,
                    host_of(worker),
                    APP,
                    WINDOW_S,
                    complete=worker not in self.away,
                    generation=GENERATION,
                    operators={OPERATOR: len(self.load)},
                    standbys=1,
                )
                for worker in running
            ),
            key_groups=(
                KeyGroupWindow(
                    key_group=key_group,
                    worker=owner,
                    covered_s=WINDOW_S,
                    cpu=self.load[key_group] * self.errors.lognormvariate(0.0, NOISE),
                    tuples_in_s=1.0,
                    state_bytes=1_000_000,
                )
                for key_group, owner in self.owner.items()
                if self.away.get(owner) is not Way.SILENT
            ),
        )


class Controller(PlayedController):
    """The controller of a fleet; agents answer unless their host or worker is away."""

    def __init__(self, fleet: Fleet, needs: Requirements, *, plans: bool) -> None:
        acts_on = ACTED_ON if plans else tuple(kind for kind in ACTED_ON if kind is not Planned)
        super().__init__(APP, cluster=CLUSTER, window_s=WINDOW_S, answers=self._answered, needs=needs, acts_on=acts_on)
        self._fleet = fleet
        self.moved = 0

    @property
    def placed(self) -> dict[KeyGroup, tuple[WorkerId, ...]]:
        """The rows of the placement."""
        rows = self.state.placements[APP].owners[OPERATOR] if self.state.placements else ()
        return {KeyGroup(APP, OPERATOR, place): row for place, row in enumerate(rows)}

    def _answered(self, now: float, command: Command) -> Iterator[Ack]:
        ends = [worker for worker in (command.source, command.target) if worker is not None]
        if any(self._fleet.away.get(worker) in (Way.SILENT, Way.RESTART) for worker in ends):
            return
        for ack in self.handed_over(now, command, self._fleet.owner):
            self.moved += len(command.key_groups) if ack.phase is Phase.TOOK else 0
            yield ack


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of `windows`, those that were `balanced`, balanced `with_standbys`, `decided` and `whole`: nobody was away."""

    windows: int
    balanced: int
    with_standbys: int
    decided: int
    whole: int
    moved: int

    def __str__(self) -> str:
        counts = (self.balanced, self.with_standbys, self.decided, self.whole)
        balanced, with_standbys, decided, whole = (f"{100.0 * count / self.windows:.1f} %" for count in counts)
        return (
            f"balanced {balanced} (with standbys {with_standbys}), decided {decided}, nobody away {whole} "
            f"of {self.windows} windows; {self.moved} key groups moved"
        )


def play(
    *, workers: int, away: float, windows: int, seeds: int, needs: Requirements = NEEDS, plans: bool = True
) -> Counts:
    """Simulate so many windows per seed, after `WARM_UP` more in which the cluster is balanced for the first time."""
    balanced = with_standbys = decided = whole = moved = 0
    for seed in range(seeds):
        fleet = Fleet([WorkerId(f"w{place:02}") for place in range(workers)], random.Random(seed), 0.0)
        controller = Controller(fleet, needs, plans=plans)
        for window in range(-WARM_UP, windows):
            fleet.away_share = away if window >= 0 else 0.0
            fleet.step(controller.placed)
            now = 1e6 + WINDOW_S * window
            controller.advance(now)
            controller.see(now, fleet.snapshot(now - WINDOW_S))
            if window >= 0:
                placed = {key_group: row[0] for key_group, row in controller.placed.items()}
                running = filter(fleet.runs, fleet.workers)
                balanced += fleet.load_distance(placed, fleet.workers) <= Settings().load_distance
                with_standbys += fleet.load_distance(fleet.owner, running) <= Settings().load_distance
                decision = controller.decision
                decided += not (isinstance(decision, Skip) and decision.reason in NOT_READY)
                whole += not fleet.away
        moved += controller.moved
    return Counts(
        windows=seeds * windows,
        balanced=balanced,
        with_standbys=with_standbys,
        decided=decided,
        whole=whole,
        moved=moved,
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=40)
    parser.add_argument("--away", type=float, default=0.02, help="share of the time")
    parser.add_argument("--windows", type=int, default=360, help=f"of {WINDOW_S:g} s, for each seed")
    parser.add_argument("--seeds", type=int, default=3)
    given = vars(parser.parse_args())
    print(f"planned around who is away: {play(**given)}", flush=True)
    print(f"one for all, as before 0.2.0: {play(**given, needs=ONE_FOR_ALL)}", flush=True)
    print(f"no plans: {play(**given, plans=False)}")


if __name__ == "__main__":
    main()
