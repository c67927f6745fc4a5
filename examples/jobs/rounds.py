"""Compares methods on real job 1 over rounds, as Figures 7 to 9 of the paper: `python -m jobs rounds [--only milp]`.

Every method gets a run of its own, with the same edits at the same rate; nothing counts but balance: no band, no least
gain, and no topic is local.  Prints the load distance of each window, and a table.  Exit code 1 if a result is wrong.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from flights.cpu import Part
from flights.demo.loads import cpu_of
from flights.readback import read_topic
from jobs.catalogue import JOBS
from jobs.oracle import Verdict
from jobs.outcome import Scale, add_scale, scale_of
from jobs.run import JobRun
from jobs.windows import WINDOWS, deviations, keep, load_distance
from trimtab_controller.replay.outcome import Tally, count_events
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.events import Event
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.snapshot import Snapshot

SCALE = Scale(partitions=40, rate=200.0, capacity=0.12, warm_s=35.0, steer_s=240.0, window_s=15.0, local=False)
FIRST_S = 45.0
"""So long after a method was let loose, what it has found counts not yet: the figures are of how it keeps up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A method with a budget, the share of the key groups that may move in a round; `method` "" moves nothing."""

    method: str = ""
    budget: float = 1.0
    job: str = "job1"
    paper: str = ""

    def most(self, key_groups: int) -> int:
        """How many key groups may move in a round."""
        return max(1, round(self.budget * key_groups))


VARIANTS = {
    "none": Variant(),
    "two-choices": Variant(job="job1-two-choices", paper="not consistently good"),
    "flux": Variant(method="flux", budget=13 / 300, paper="up to 7"),
    "milp": Variant(method="milp", budget=13 / 300, paper="below 1"),
    "flux-few": Variant(method="flux", budget=10 / 300),
    "milp-few": Variant(method="milp", budget=10 / 300, paper="significant spikes"),
    "flux-free": Variant(method="flux"),
    "milp-free": Variant(method="milp", paper="best"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A run.  `windows` = since the method was let loose; `capacity` in cores; `worker_us` = CPU per edit."""

    windows: tuple[Snapshot, ...]
    capacity: float
    budget: int
    tally: Tally
    longest_s: float
    worker_us: float
    sent: int
    verdict: Verdict


def noise(windows: Sequence[Snapshot], capacity: float) -> float | None:
    """By how much a placement that nobody touches differs from itself in one window by chance (pp, median).

    Two windows in a row differ by the chance of both, hence the root; it includes what drifts from one to the next.
    """
    found = [each for window in windows if (each := deviations(window, capacity))]
    pairs = [max(abs(one[worker] - other[worker]) for worker in one) for one, other in pairwise(found)]
    return median(pairs) / math.sqrt(2.0) if pairs else None


def played(run: JobRun, variant: Variant) -> Course:
    """The course of one run."""
    run.feed.set_rate(run.rate)
    run.rest(run.scale.warm_s)
    cpu, count, begun = run.cpu.seconds()[Part.WORKERS], run.feed.count, time.time()
    if variant.method:
        run.trimtab("resume")
    run.rest(run.scale.steer_s)
    windows = run.windows_between(begun, time.time())
    used = run.cpu.seconds()[Part.WORKERS] - cpu
    edits = run.feed.count - count
    if variant.method:
        run.trimtab("pause", "--reason", "the comparison ends")
        run.until(lambda: not run.in_flight(), 60.0, "no plan in flight")
    sent = run.end()
    rows = read_topic(run.cluster.broker.address, run.cluster.topics.events)
    events = [decoded(row.value, Event) for row in rows if row.value]
    tally = Tally()
    count_events(tally, AppId(run.job.name), events)
    return Course(
        windows=tuple(windows),
        capacity=run.scale.capacity,
        budget=int(run.balance["max_migrations"]),
        tally=tally,
        longest_s=max(pauses(events), default=0.0),
        worker_us=used / edits * 1e6,
        sent=sent,
        verdict=run.verdict(sent),
    )


def replayed(run: JobRun, course: Course) -> str:
    """What each method, and none, would have done with the windows of a run: a table of `trimtab replay`."""
    key_groups = run.job.operators * run.scale.partitions
    settings = ["balance.load_distance=100"]
    settings += [
        f"balance.method={each.method},balance.max_migrations={each.most(key_groups)}"
        for each in VARIANTS.values()
        if each.method
    ]
    last_s = time.time() - course.windows[0].start_ms / 1000.0
    return run.trimtab("replay", "--last", f"{last_s:.0f}s", *(part for each in settings for part in ("--set", each)))


def pauses(events: Sequence[Event]) -> list[float]:
    """The pause of each key group that moved (seconds)."""
    ended = [event for event in events if event.phase == "ended"]
    return [move.pause_s for event in ended for move in event.moves if move.pause_s is not None]


def report(courses: Mapping[str, Course]) -> str:
    """A Markdown table, a line per run."""
    head = (
        "", "paper, pp", "moves a round, at most", "mean load", "load distance, pp: median", "95 % below", "longest",
        "noise", "rounds", "key groups moved", "sum of pauses, s", "longest pause, s", "CPU per edit, µs",
        "lost, repeated, wrong",
    )  # fmt: skip
    rows = [head, ("---",) * len(head), *(_row(name, each) for name, each in courses.items())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(name: str, course: Course) -> tuple[str, ...]:
    windows, capacity, tally, verdict = course.windows, course.capacity, course.tally, course.verdict
    start_ms = windows[0].start_ms + 1000.0 * FIRST_S
    settled = [each for each in windows if each.start_ms >= start_ms and cpu_of(each) is not None]
    far = sorted(load_distance(each, capacity) or 0.0 for each in settled)
    cores = mean(cpu_of(each) or 0.0 for each in settled)
    load = 100.0 * cores / (capacity * len({row.worker for row in settled[0].key_groups}))
    chance = None if VARIANTS[name].method else noise(settled, capacity)
    return (
        name,
        VARIANTS[name].paper,
        str(course.budget) if VARIANTS[name].method else "",
        f"{load:.0f} %",
        f"{median(far):.1f}",
        f"{far[math.ceil(0.95 * len(far)) - 1]:.1f}",
        f"{far[-1]:.1f}",
        "" if chance is None else f"{chance:.1f}",
        str(tally.plans),
        str(tally.moved),
        f"{tally.paused_s:.1f}",
        f"{course.longest_s:.2f}",
        f"{course.worker_us:,.0f}",
        f"{verdict.lost}, {verdict.repeated}, {verdict.wrong} of {verdict.results:,}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs rounds", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--logs", type=Path, help="folder that keeps the sandboxes' files and the windows")
    add_scale(parser, SCALE)
    given = parser.parse_args(arguments)
    scale, courses = scale_of(given), dict[str, Course]()
    for name in given.only:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            place = given.logs / name if given.logs else Path(folder)
            with job_run(VARIANTS[name], scale, place) as run:
                course = courses[name] = played(run, VARIANTS[name])
                if run.job.name == "job1":
                    print(replayed(run, course), flush=True)
                if given.logs:
                    keep(run.windows(), place / WINDOWS)
        far = (load_distance(each, scale.capacity) for each in course.windows)
        print("  pp:", *("?" if each is None else f"{each:.1f}" for each in far), flush=True)
        print(*course.verdict.examples, sep="\n", end="", flush=True)
        print(report(courses), flush=True)
    return 0 if all(each.verdict.right for each in courses.values()) else 1


def job_run(variant: Variant, scale: Scale, folder: Path) -> JobRun:
    """The run of a variant; the controller plans once for each pair of windows, as it waits for a whole one."""
    job = JOBS[variant.job]
    return JobRun(
        job=job,
        method=variant.method or "milp",
        scale=scale,
        folder=folder,
        say=print,
        balance={
            "max_migrations": variant.most(job.operators * scale.partitions),
            "load_distance": 0.0,
            "min_gain": 0.0,
            "min_windows": 2,
        },
    )
