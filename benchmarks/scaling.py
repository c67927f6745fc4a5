"""Simulates an app whose load triples and falls back, under noise, and says how many workers it had when.

    python -m benchmarks.scaling [--hours 3] [--seeds 3] [--noise 0.1] [--blocked]

Four workers run, eight more are in the pool.  After an hour the load rises to three times its level within ten
minutes; after another hour it falls back within one window.  A worker has one core and does no more than that: what
does not fit waits.  A started worker runs a minute later.  Rates vary by `--noise` from window to window.  `--blocked`:
during the high load the job waits for a database and uses 20 % of its CPU, while its backlog grows.

Decider, solver and execution are the real ones; hosts, engine and stream are played.  A *flap* is a change of direction
of the size beyond those that the load asks for: one way up and one way down, or none while the job is blocked.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from benchmarks.played import PlayedController, host_of, host_window, node_window, snapshot_of
from trimtab_controller.decider.memory.forecasts import Forecasts
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.decider.values.settings import Requirements
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import KeyGroupWindow, Snapshot

CLUSTER, APP, OPERATOR = "scaling", AppId("app"), OperatorId("sums")
WINDOW_S = 10.0
WORKERS, POOL, PER_WORKER = 4, 8, 24
LEVEL, FACTOR = 0.55, 3.0
"""Utilisation of the four workers at first, and how many times as much comes later."""
COST_S, FIXED = 0.001, 0.05
"""CPU of an input, and cores that a worker uses for itself."""
HIGH_FROM_S, RAMP_S, HIGH_UNTIL_S = 3600.0, 600.0, 7200.0
START_S = 60.0
"""From a START command until the worker runs."""
BLOCKED_SHARE = 0.2
BEGIN_S = 1e6


@dataclass(slots=True)
class Job:
    """The truth: which workers run, who owns what, what arrives and what waits."""

    random: random.Random
    noise: float
    blocked: bool
    workers: int = WORKERS
    pool: int = POOL
    window_s: float = WINDOW_S
    running: dict[WorkerId, float] = field(default_factory=dict)  # and since when
    owner: dict[KeyGroup, WorkerId] = field(default_factory=dict)
    share: dict[KeyGroup, float] = field(default_factory=dict)
    backlog: dict[KeyGroup, float] = field(default_factory=dict)
    saturated: int = 0

    def __post_init__(self) -> None:
        self.running = {WorkerId(f"w{place:02}"): 0.0 for place in range(self.workers)}
        workers = list(self.running)
        for place in range(WORKERS * PER_WORKER):
            key_group = KeyGroup(APP, OPERATOR, place)
            self.owner[key_group] = workers[place % self.workers]
            self.share[key_group] = self.random.lognormvariate(0.0, 0.5)
            self.backlog[key_group] = 0.0
        total = sum(self.share.values())
        self.share = {each: share / total for each, share in self.share.items()}

    def here(self, at: float) -> list[WorkerId]:
        """The workers that run by then."""
        return [worker for worker, since in self.running.items() if since <= at]

    def times(self, at: float) -> float:
        """How many times the first rate arrives at this time."""
        since_s = at - BEGIN_S
        rise = min(1.0, max(0.0, (since_s - HIGH_FROM_S) / RAMP_S)) if since_s < HIGH_UNTIL_S else 0.0
        return 1.0 + (FACTOR - 1.0) * rise

    def window(self, start_s: float) -> Snapshot:
        """One window passes; what the hosts report of it."""
        return self._snapshot(start_s, *self.work(start_s))

    def work(self, start_s: float) -> tuple[dict[KeyGroup, float], dict[WorkerId, float]]:
        """One window passes; the inputs that are done by key group, and the cores that are used by worker."""
        times = self.times(start_s)
        rate = times * WORKERS * (LEVEL - FIXED) / COST_S
        waits = self.blocked and times > 1.0
        done: dict[KeyGroup, float] = {}
        cpu: dict[WorkerId, float] = {}
        for worker in self.here(start_s):
            mine = [each for each, owner in self.owner.items() if owner == worker]
            todo = {
                each: self.backlog[each]
                + self.window_s * rate * self.share[each] * max(0.0, self.random.gauss(1.0, self.noise))
                for each in mine
            }
            room = self.window_s * ((BLOCKED_SHARE if waits else 1.0) - FIXED) / COST_S
            fitting = min(1.0, room / max(1e-9, sum(todo.values())))
            self.saturated += fitting < 1.0 and not waits
            done.update({each: fitting * count for each, count in todo.items()})
            self.backlog.update({each: (1.0 - fitting) * count for each, count in todo.items()})
            cpu[worker] = FIXED + COST_S * sum(done[each] for each in mine) / self.window_s
        return done, cpu

    def _snapshot(self, start_s: float, done: dict[KeyGroup, float], cpu: dict[WorkerId, float]) -> Snapshot:
        every = [WorkerId(f"w{place:02}") for place in range(self.workers + self.pool)]
        nodes = []
        for place, worker in enumerate(every):
            row = node_window(
                worker,
                host_of(worker),
                APP,
                self.window_s,
                cpu=cpu.get(worker),
                operators={OPERATOR: len(self.owner)},
                standbys=0,
                declared=APP if place >= self.workers else None,
            )
            if worker not in cpu:
                absence = Absence.STARTING if worker in self.running else Absence.STOPPED
                row = replace(
                    row,
                    app=None,
                    state=WorkerState.AWAY,
                    steering=False,
                    operators=None,
                    absence=absence,
                )
            nodes.append(row)
        return snapshot_of(
            CLUSTER,
            start_s,
            self.window_s,
            hosts=(host_window(host_of(worker), self.window_s, cores=2.0) for worker in every),
            nodes=nodes,
            key_groups=(
                KeyGroupWindow(
                    key_group=each,
                    worker=owner,
                    covered_s=self.window_s,
                    cpu=COST_S * done[each] / self.window_s,
                    tuples_in_s=done[each] / self.window_s,
                    state_bytes=1_000_000,
                    backlog=round(self.backlog[each]),
                )
                for each, owner in self.owner.items()
            ),
        )


class Controller(PlayedController):
    """The controller of a job whose agents answer at once."""

    def __init__(self, job: Job, scaling: ScalingSettings, forecasts: Forecasts | None = None) -> None:
        super().__init__(
            APP,
            cluster=CLUSTER,
            window_s=job.window_s,
            answers=self._answered,
            needs=Requirements(),
            scaling=scaling,
            forecasts=forecasts,
        )
        self._job = job

    def _answered(self, now: float, command: Command) -> Iterator[Ack]:
        if command.kind is CommandKind.START:
            self._job.running[command.worker] = now + START_S
            yield Ack.to(command, Phase.STARTED, at=now)
        elif command.kind is CommandKind.STOP:
            self._job.running.pop(command.worker)
            yield Ack.to(command, Phase.STOPPED, at=now)
        else:
            yield from self.handed_over(now, command, self._job.owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`sizes` = when the number of running workers changed (s), and to what; `saturated` = windows of workers."""

    sizes: tuple[tuple[float, int], ...]
    flaps: int
    saturated: int
    concerns: frozenset[str]

    def __str__(self) -> str:
        said = ", ".join(f"{size} at {at:.0f} s" for at, size in self.sizes)
        concerns = f"; concerns {', '.join(sorted(self.concerns))}" if self.concerns else ""
        return f"workers: {said}; {self.flaps} flaps, {self.saturated} saturated windows of workers{concerns}"


def play(*, hours: float, seed: int, noise: float, blocked: bool = False, level: bool = False) -> Outcome:
    """Simulate so many hours; `level`: the load stays as it is at first."""
    job = Job(random.Random(seed), noise, blocked)
    controller = Controller(job, ScalingSettings(mode=Mode.ACT))
    sizes = [(0.0, WORKERS)]
    concerns: set[str] = set()
    for number in range(round((HIGH_FROM_S if level else 3600.0 * hours) / WINDOW_S)):
        start_s = BEGIN_S + WINDOW_S * number
        controller.see(start_s + WINDOW_S, job.window(start_s))
        concerns |= {str(concern.kind) for concern in controller.decider.known.concerns}
        count = len(job.here(start_s))
        if count != sizes[-1][1]:
            sizes.append((start_s - BEGIN_S, count))
    turns = [after - before > 0 for (_, before), (_, after) in pairwise(sizes)]
    changes = sum(one != other for one, other in pairwise(turns))
    asked = 0 if blocked or level else 1
    return Outcome(
        sizes=tuple(sizes),
        flaps=max(0, changes - asked),
        saturated=job.saturated,
        concerns=frozenset(concerns),
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noise", type=float, default=0.1, help="standard deviation of the rates of a window")
    parser.add_argument("--blocked", action="store_true", help="the job waits for a database")
    given = parser.parse_args()
    for seed in range(given.seeds):
        print(play(hours=given.hours, seed=seed, noise=given.noise, blocked=given.blocked), flush=True)


if __name__ == "__main__":
    main()
