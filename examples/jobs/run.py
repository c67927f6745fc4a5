"""One run of a job on a sandbox: start, measure, let the controller decide, measure again, saturate, check."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from flights.backlog import Backlog
from flights.cpu import CpuMeter, Part
from flights.demo.loads import collocation, cpu_of, local_sends
from flights.readback import read_topic
from flights.watch import StatusWatch, read_snapshots
from jobs.alternate import SETTLE_S, alternated, placed
from jobs.catalogue import Job
from jobs.feed import Feed
from jobs.latencies import NAME, read_latencies
from jobs.oracle import NOTHING, Change, Verdict, judge
from jobs.outcome import Outcome, Phase, Saturated, Scale, Step
from jobs.windows import load_distance, mean, share, step_of
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import AppStatus
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster, program
from trimtab_sandbox.configuration import SandboxSettings, worker_name

EXAMPLES = Path(__file__).parents[1]
LIMIT_S = 150.0
COMMAND_LIMIT_S = 300.0
TICK_S = 0.25
WINDOW_LATE_S = 20.0
"""How long the last window of a measurement is waited for."""
ENOUGH = 0.95
"""Share of the obtainable collocation at which a run is done, as soon as no plan is in flight."""
SETTLED_S, AT_REST_S = 20.0, 45.0
"""So long without a plan, with that share and without it, until the controller is taken to have done all it will."""


class RunError(Exception):
    """The run did not reach the expected state."""


@dataclass
class JobRun:
    """A cluster with a job on it.  Entering starts everything, with the controller paused."""

    job: Job
    method: str
    scale: Scale
    folder: Path
    say: Callable[[str], None]
    balance: Mapping[str, str | float] = field(default_factory=dict)
    """Keys of [balance] in place of those below."""
    steps: list[Step] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "JobRun":
        scale = self.scale
        settings = SandboxSettings(
            app=f"{self.job.module}:app",
            app_folder=EXAMPLES,
            cluster=f"{self.job.name}-{self.method}",
            workers=scale.workers,
            capacity_cores=scale.capacity,
            interval_s=max(1.0, scale.window_s / 5.0),  # on a busy machine long ones are measured better
            host_cores=1.0,  # what else runs on this machine must not fill the hosts
            environment={
                "JOBS_PARTITIONS": str(scale.partitions),
                "JOBS_WORK": str(scale.work_us),
                "JOBS_LOCAL": str(int(scale.local)),
                "JOBS_KEYLESS": str(int(scale.keyless)),
                "JOBS_LATENCIES": f"{{data}}/{NAME}",
            },
            controller={
                "balance": {
                    "method": self.method,
                    "max_migrations": scale.moves
                    or max(1, int(self.job.budget * self.job.operators * scale.partitions)),
                    "load_distance": 10.0,
                    "min_interval_s": 5.0,
                    "min_gain": scale.min_gain,
                    "max_disk": 1.0,
                    **self.balance,
                },
                "stream": {"window_s": scale.window_s, "watermark_s": max(2.0, scale.window_s / 3.0)},
                "placement": {"first": "adopt"},
            },
        )
        self._open = ExitStack()
        with ExitStack() as opening:
            self.cluster = opening.enter_context(SandboxCluster(settings, self.folder))
            self.cpu = opening.enter_context(CpuMeter(lambda: self.cluster.pids))
            self._start(opening)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self, opening: ExitStack) -> None:
        cluster, partitions = self.cluster, self.scale.partitions
        cluster.start_broker()
        cluster.write_controller_toml()
        self.trimtab("pause", "--reason", "measure the job as Faust starts it")
        compacted = {"cleanup.policy": "compact"}
        cluster.broker.create_topics(
            [
                *(Topic(name=name, partitions=partitions) for name in self.job.topics),
                *(
                    Topic(name=self.job.changelog(name), partitions=partitions, settings=compacted)
                    for name in self.job.tables
                ),
            ]
        )
        cluster.start_controller(act=True)
        for index in range(self.scale.workers):
            cluster.start_agent(index)
        for index in range(self.scale.workers):
            cluster.start_worker(index)
        self.inputs = list(self.job.inputs(partitions))
        bootstrap = cluster.broker.address
        self.watch = opening.enter_context(StatusWatch(bootstrap, cluster.topics))
        self.feed = opening.enter_context(Feed(bootstrap, self.inputs))
        self.backlog = Backlog(bootstrap, self.job.name, dict.fromkeys(self.job.topics, partitions))
        self.until(self.all_run, LIMIT_S, "all workers run")

    # ------------------------------------------------------------------ observing
    def app(self) -> AppStatus | None:
        """The app in the last status."""
        status = self.watch.poll()
        return next(iter(status.apps), None) if status else None

    def all_run(self) -> bool:
        """Whether every worker runs and owns key groups."""
        nodes = self.watch.last.nodes if self.watch.last else ()
        good = [row for row in nodes if row.state is WorkerState.RUNNING and row.key_groups > 0]
        return len(good) == self.scale.workers

    def until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait for the condition.  Raises RunError."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                last = self.watch.last
                raise RunError(f"not within {limit_s:g} s: {what}; {last.decisions[-1].text if last else 'no status'}")
            self.cluster.check()
            self.watch.poll()
            time.sleep(TICK_S)

    def trimtab(self, *arguments: str) -> str:
        """Run a command of `trimtab`; returns what it prints.  Raises RunError when it fails."""
        command = program("trimtab_controller.cli", *arguments, "--config", str(self.cluster.controller_toml))
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
        if done.returncode:
            raise RunError(f"trimtab {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def measure(self, seconds: float) -> Phase:
        """CPU per record over the next seconds, with the rate as it is."""
        begun, cpu, count = time.time(), self.cpu.seconds(), self.feed.count
        self.rest(seconds)
        took, used, done = time.time() - begun, self.cpu.seconds(), self.feed.count - count
        windows = self.windows_between(begun, begun + took)
        rate = done / took
        return Phase(
            worker_us=(used[Part.WORKERS] - cpu[Part.WORKERS]) / done * 1e6,
            broker_us=(used[Part.BROKER] - cpu[Part.BROKER]) / done * 1e6,
            rate=rate,
            collocation=mean(map(collocation, windows)),
            local_sends=mean(map(local_sends, windows)),
            load=None if (load := mean(map(cpu_of, windows))) is None else load / rate,
            load_distance=mean(load_distance(each, self.scale.capacity) for each in windows),
            latencies_ms=self._latencies(begun, begun + took),
        )

    def windows(self) -> tuple[Snapshot, ...]:
        """Every window so far."""
        return read_snapshots(self.cluster.broker.address, self.cluster.topics)

    def windows_between(self, start: float, end: float) -> list[Snapshot]:
        """The windows since `start`, up to the one that contains `end`: a busy machine publishes it late."""
        deadline = time.monotonic() + WINDOW_LATE_S
        while True:
            found = [each for each in self.windows() if each.start_ms / 1000 >= start and each.key_groups]
            if (found and found[-1].end_ms / 1000 >= end) or time.monotonic() > deadline:
                return found
            self.rest(1.0)

    def _latencies(self, start: float, end: float) -> tuple[float, float] | None:
        paths = [self.cluster.folder / worker_name(index) / NAME for index in range(self.scale.workers)]
        found = read_latencies(paths, start, end)
        return (sum(found) / len(found), found[int(0.99 * len(found))]) if found else None

    def rest(self, seconds: float) -> None:
        """Wait, and check that everything runs."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, seconds + 1.0, "time passes")

    # ------------------------------------------------------------------ the phases
    def play(self) -> Outcome:
        """The whole run."""
        scale = self.scale
        self.feed.set_rate(self.rate)
        self.rest(scale.warm_s)
        self.saturate()  # does not count: workers that have just started are slow at first
        self.rest(SETTLE_S)
        began, before = placed(self), self.measure(scale.measure_s)
        saturated = self.saturate()
        self.say(f"before: {before}, {saturated}")
        self.trimtab("resume")
        self.steer()
        self.trimtab("pause", "--reason", "measure again")
        self.until(lambda: not self.in_flight(), 60.0, "no plan in flight")
        after = self.measure(scale.measure_s)
        saturated_after = self.saturate()
        self.say(f"after: {after}, {saturated_after}")
        rounds = tuple(self.watch.rounds.values())
        turns = alternated(self, began, scale.turns, scale.turn_s)
        sent = self.end()
        app = self.app()
        return Outcome(
            job=self.job.name,
            method=self.method,
            before=before,
            after=after,
            rounds=rounds,
            steps=tuple(self.steps),
            obtainable=app.remote_costs.obtainable if app and app.remote_costs else None,
            saturated=(saturated, saturated_after),
            turns=turns,
            sent=sent,
            verdict=self.verdict(sent),
        )

    def end(self) -> int:
        """Send no more, and wait for all that was sent; returns how many records that was."""
        sent = self.feed.stop()
        self.until(self._all_done, LIMIT_S, "everything is processed and committed")
        return sent

    def in_flight(self) -> bool:
        """Whether a plan is being carried out."""
        return bool(self.watch.last and self.watch.last.plans_in_flight)

    def steer(self) -> None:
        """Let the controller act until it has brought together what it can, or until the time is over."""
        begun, seen, quiet_at, rounds = time.monotonic(), "", time.monotonic(), 0
        while (now := time.monotonic()) < begun + self.scale.steer_s:
            self.rest(1.0)
            status = self.watch.last
            step = step_of(status, now - begun, len(self.watch.rounds)) if status else None
            if step is None:
                continue
            if step.decision != seen:
                seen = step.decision
                self.steps.append(step)
                self.say(f"{step.at_s:5.0f} s, round {step.rounds}: {share(step.collocation)} of "
                         f"{share(step.obtainable)} collocated; {step.costs}; {step.decision}")  # fmt: skip
            if step.rounds != rounds or self.in_flight():
                quiet_at, rounds = now, step.rounds
            together = step.collocation and step.obtainable and step.collocation >= ENOUGH * step.obtainable
            if now - quiet_at > (SETTLED_S if together or self.method == "milp" else AT_REST_S):
                return

    def saturate(self) -> Saturated:
        """A burst, and then the rate of before again."""
        count = self.scale.burst
        self.feed.set_rate(0.0)
        self.until(self._all_done, LIMIT_S, "no backlog")
        begun, cpu = time.monotonic(), self.cpu.seconds()
        self.feed.burst(count)
        self.rest(1.0)
        self.until(self._all_done, LIMIT_S, "the burst is processed")
        took, used = time.monotonic() - begun, self.cpu.seconds()
        self.feed.set_rate(self.rate)
        return Saturated(
            rate=count / took,
            worker_us=(used[Part.WORKERS] - cpu[Part.WORKERS]) / count * 1e6,
            broker_us=(used[Part.BROKER] - cpu[Part.BROKER]) / count * 1e6,
        )

    def _all_done(self) -> bool:
        return self.backlog.records() == 0

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.scale.rate or self.job.rate

    def verdict(self, sent: int) -> Verdict:
        """Every result compared with the recomputation."""
        total, expected = NOTHING, self.job.expected(list(islice(self.inputs, sent)))
        for table in self.job.tables:
            rows = read_topic(self.cluster.broker.address, self.job.changelog(table))
            total = total.plus(
                judge(
                    expected[table],
                    (Change(row.partition, json.loads(row.key), json.loads(row.value)) for row in rows
                     if row.key and row.value),
                    self.job.together,
                )
            )  # fmt: skip
        return total
