"""The demo's summary, `out/demo/summary.json`, and the promises it is judged by; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from flights.demo.evidence import Evidence
from flights.demo.loads import first_window_after, load_distance, window_noise, windows_inside
from flights.demo.pauses import Moved, PauseSummary, around_handovers, calm_twins, in_calm
from trimtab_models.messages.names import WorkerId
from trimtab_models.messages.status import RoundStatus

SLACK_S = 0.25
"""Looked at on both sides of a hand-over."""
ROUND_MARGIN_S, STOP_MARGIN_S = 1.0, 3.0
"""So long before and after a round, and before and after the end of a worker, nothing counts as calm."""
MAX_MEDIAN_PAUSE_S = 0.3
MAX_OVER_CALM_S = 0.05
"""Of the median pause of the key groups that stay, around a hand-over; half of what the hand-over itself adds."""
MAX_DISTANCE_OVER_BOUND = 1.0
NOISE_ERRORS = 3.0
"""Where other work on the machine makes windows so noisy that this is more, so many standard errors are let pass: a
perfect solver would not measure better.  Its plan is made from one window and judged by another: both err."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What became of the worker that was drained."""

    worker: WorkerId
    key_groups_left: int | None
    exit_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the run went, apart from what Kafka holds.  Times in epoch seconds."""

    started_at: float
    seconds: float
    versions: Mapping[str, str]
    capacities: Mapping[WorkerId, float]
    window_s: float
    phases: tuple[tuple[float, str], ...]
    """(when it began, what it was)"""
    rounds: tuple[RoundStatus, ...]
    drain_started_at: float
    stopped_at: float
    """When the drained worker had ended."""
    calm: tuple[float, float]
    """A span with load in which nothing was moved."""
    drained: Drained
    cpu_seconds: Mapping[str, float]
    processes_left: int
    ports_left: int

    @property
    def loaded(self) -> tuple[float, float]:
        """From when flights flow until the last was sent: the first phase starts everything, the last ends it."""
        return self.phases[1][0], self.phases[-1][0]

    @property
    def busy(self) -> list[tuple[float, float]]:
        """Spans in which something was moved or joined or left, with a margin."""
        rounds = [
            (row.started_at - ROUND_MARGIN_S, (row.ended_at or float("inf")) + ROUND_MARGIN_S) for row in self.rounds
        ]
        return [*rounds, (self.stopped_at - STOP_MARGIN_S, self.stopped_at + STOP_MARGIN_S)]

    def phase_of(self, round_: RoundStatus) -> tuple[str, float, float]:
        """(what it was, its start, its end) of the phase in which a round began."""
        ends = [*(at for at, _ in self.phases[1:]), self.started_at + self.seconds]
        started = [(name, at, end) for (at, name), end in zip(self.phases, ends, strict=True)]
        return max((row for row in started if row[1] <= round_.started_at), key=lambda row: row[1])

    def draining_at(self, at: float) -> list[WorkerId]:
        """Workers that were marked for removal at this time."""
        return [self.drained.worker] if at >= self.drain_started_at else []


def pauses_of(rounds: Sequence[RoundStatus], course: Course, evidence: Evidence) -> dict[str, PauseSummary]:
    """Around the hand-overs of these rounds: of what they moved, of the others, and of all while nothing moved.

    Calm are the same seconds of other windows, in the same phase of the run (the same traffic) where there are such.
    """
    handovers: list[Moved] = []
    spans: list[tuple[float, float]] = []
    for round_ in rounds:
        end = round_.ended_at or float("inf")
        own = [row for row in evidence.handovers if round_.started_at <= row.end <= end + 1.0]
        twins = (
            calm_twins(own, within, course.busy, period_s=course.window_s, slack_s=SLACK_S)
            for within in (course.phase_of(round_)[1:], course.loaded)
        )
        handovers += own
        spans += next((found for found in twins if found), [])
    moved, others = around_handovers(evidence.waits, handovers, slack_s=SLACK_S)
    return {"moved": moved, "others": others, "calm": in_calm(evidence.waits, spans)}


def measured_after(round_: RoundStatus, course: Course, evidence: Evidence) -> float | None:
    """Load distance in the first whole window measured after the round; None when there was none."""
    if round_.ended_at is None:
        return None
    window = first_window_after(evidence.snapshots, round_.ended_at)
    return None if window is None else load_distance(window, course.draining_at(window.start_ms / 1000))


def summary(course: Course, evidence: Evidence) -> dict[str, Any]:
    """The document."""
    return {
        "version": 1,
        "seconds": round(course.seconds, 1),
        "versions": dict(course.versions),
        "workers": len(course.capacities),
        "key_groups": len(evidence.waits),
        "nodes_capacity": dict(course.capacities),
        "events": {
            "sent": evidence.events.sent,
            "processed": evidence.events.processed,
            "lost": evidence.events.lost,
            "duplicated": evidence.events.duplicated,
        },
        "answers": {"checked": evidence.answers.checked, "wrong": evidence.answers.wrong},
        "rounds": [_round(row, course, evidence) for row in course.rounds],
        "pause_seconds": {name: _pause(pause) for name, pause in pauses_of(course.rounds, course, evidence).items()},
        "window_noise": _pp(window_noise(windows_inside(evidence.snapshots, *course.calm))),
        "drained": asdict(course.drained),
        "cpu_seconds": {name: round(seconds, 1) for name, seconds in course.cpu_seconds.items()},
        "left_over": {"processes": course.processes_left, "ports": course.ports_left},
    }


def _round(row: RoundStatus, course: Course, evidence: Evidence) -> dict[str, Any]:
    return {
        "at": round(row.started_at - course.started_at, 1),
        "phase": course.phase_of(row)[0],
        "reason": row.reason,
        "status": row.status,
        "load_distance_before": _pp(row.before),
        "load_distance_planned": _pp(row.planned),
        "load_distance_after": _pp(measured_after(row, course, evidence)),
        "lower_bound": _pp(row.lower_bound),
        "migrations": row.migrations,
        "bytes_moved": row.bytes_moved,
        "pause_seconds": {name: _pause(pause) for name, pause in pauses_of([row], course, evidence).items()},
    }


def _pp(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _pause(pause: PauseSummary) -> dict[str, float | None]:
    return {
        "median": None if pause.median_s is None else round(pause.median_s, 3),
        "max": None if pause.max_s is None else round(pause.max_s, 3),
    }


def broken_promises(document: Mapping[str, Any]) -> list[str]:
    """What the demo promises and this run did not keep, a sentence each; empty = all kept."""
    events, answers, drained = document["events"], document["answers"], document["drained"]
    left, rounds = document["left_over"], document["rounds"]
    moved, others, calm = (document["pause_seconds"][name]["median"] for name in ("moved", "others", "calm"))
    last = {row["phase"]: number for number, row in enumerate(rounds, 1)}
    checks: list[tuple[bool, str]] = [
        (
            events["sent"] > 0 and events["processed"] == events["sent"],
            f"processed {events['processed']} of {events['sent']}",
        ),
        (events["lost"] == 0, f"{events['lost']} flights lost"),
        (events["duplicated"] == 0, f"{events['duplicated']} flights counted twice"),
        (answers["checked"] > 0 and answers["wrong"] == 0, f"{answers['wrong']} of {answers['checked']} sums wrong"),
        (drained["key_groups_left"] == 0, f"{drained['worker']} still owns {drained['key_groups_left']} key groups"),
        (drained["exit_code"] == 0, f"{drained['worker']} ended with exit code {drained['exit_code']}"),
        (left["processes"] == 0 and left["ports"] == 0, f"{left['processes']} processes, {left['ports']} ports left"),
        (len(last) >= 3, f"rounds in {len(last)} phases, expected one for the start, the shift and the drain at least"),
        (
            moved is not None and moved < MAX_MEDIAN_PAUSE_S,
            f"median pause of a hand-over {moved} s, expected below {MAX_MEDIAN_PAUSE_S}",
        ),
        (
            others is not None and calm is not None and others <= calm + MAX_OVER_CALM_S,
            f"median pause of the others {others} s, expected at most {MAX_OVER_CALM_S} above {calm}",
        ),
        *(_plan_check(number, row) for number, row in enumerate(rounds, 1)),
        *(_distance_check(number, rounds[number - 1], tolerance(document)) for number in last.values()),
    ]
    return [text for kept, text in checks if not kept]


def _plan_check(number: int, row: Mapping[str, Any]) -> tuple[bool, str]:
    bound, planned = row["lower_bound"], row["load_distance_planned"]
    return (
        planned <= bound + MAX_DISTANCE_OVER_BOUND,
        f"round {number}: load distance {planned} planned, expected within {MAX_DISTANCE_OVER_BOUND} of {bound}",
    )


def tolerance(document: Mapping[str, Any]) -> float:
    """How far above its bound a load distance may be measured (pp)."""
    return max(MAX_DISTANCE_OVER_BOUND, NOISE_ERRORS * sqrt(2.0) * (document["window_noise"] or 0.0))


def _distance_check(number: int, row: Mapping[str, Any], tolerance_pp: float) -> tuple[bool, str]:
    """Of the last round of a phase: those before it are on the way, under a load that still changes."""
    after, bound = row["load_distance_after"], row["lower_bound"]
    kept = after is not None and after <= bound + tolerance_pp
    return kept, (
        f"round {number}, the last of its phase: load distance {after} measured after it, expected within "
        f"{tolerance_pp:.2f} of {bound}"
    )
