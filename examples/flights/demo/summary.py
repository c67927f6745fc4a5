"""The demo's summary, `out/demo/summary.json`, and the promises it is judged by; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flights.demo.evidence import Evidence
from flights.demo.loads import first_window_after, load_distance
from flights.demo.pauses import PauseSummary, around_handovers, in_calm
from trimtab_models.messages.names import WorkerId
from trimtab_models.messages.status import RoundStatus

SLACK_S = 0.25
"""Looked at on both sides of a hand-over."""
CALM_STEP_S = 1.0
MAX_MEDIAN_PAUSE_S = 0.3
MAX_DISTANCE_OVER_BOUND = 1.0


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
    phases: tuple[tuple[float, str], ...]
    """(when it began, what it was)"""
    rounds: tuple[RoundStatus, ...]
    drain_started_at: float
    calm: tuple[float, float]
    """A span with load in which nothing was moved."""
    drained: Drained
    cpu_seconds: Mapping[str, float]
    processes_left: int
    ports_left: int

    def draining_at(self, at: float) -> list[WorkerId]:
        """Workers that were marked for removal at this time."""
        return [self.drained.worker] if at >= self.drain_started_at else []


def pauses_of(round_: RoundStatus, evidence: Evidence) -> tuple[PauseSummary, PauseSummary]:
    """(moved, others) around the hand-overs of one round."""
    end = round_.ended_at or float("inf")
    handovers = [row for row in evidence.handovers if round_.started_at <= row.end <= end + 1.0]
    return around_handovers(evidence.waits, handovers, slack_s=SLACK_S)


def calm_pauses(course: Course, evidence: Evidence) -> PauseSummary:
    """Pauses of all key groups while nothing moved, in spans as long as those around a hand-over."""
    start, end = course.calm
    count = int((end - start) / CALM_STEP_S)
    starts = [start + index * CALM_STEP_S for index in range(count)]
    return in_calm(evidence.waits, [(at, at + 2 * SLACK_S) for at in starts])


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
        "calm_pause_seconds": _pause(calm_pauses(course, evidence)),
        "drained": asdict(course.drained),
        "cpu_seconds": {name: round(seconds, 1) for name, seconds in course.cpu_seconds.items()},
        "left_over": {"processes": course.processes_left, "ports": course.ports_left},
    }


def _round(row: RoundStatus, course: Course, evidence: Evidence) -> dict[str, Any]:
    moved, others = pauses_of(row, evidence)
    return {
        "at": round(row.started_at - course.started_at, 1),
        "reason": row.reason,
        "status": row.status,
        "load_distance_before": _pp(row.before),
        "load_distance_planned": _pp(row.planned),
        "load_distance_after": _pp(measured_after(row, course, evidence)),
        "lower_bound": _pp(row.lower_bound),
        "migrations": row.migrations,
        "bytes_moved": row.bytes_moved,
        "pause_seconds": {"moved": _pause(moved), "others": _pause(others)},
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
        (len(rounds) >= 3, f"{len(rounds)} rounds, expected one for the start, the shift and the drain at least"),
        *_round_checks(rounds),
    ]
    return [text for kept, text in checks if not kept]


def _round_checks(rounds: Sequence[Mapping[str, Any]]) -> list[tuple[bool, str]]:
    checks = []
    for number, row in enumerate(rounds, 1):
        median, bound, planned = (
            row["pause_seconds"]["moved"]["median"],
            row["lower_bound"],
            row["load_distance_planned"],
        )
        checks += [
            (
                row["migrations"] == 0 or (median is not None and median < MAX_MEDIAN_PAUSE_S),
                f"round {number}: median pause of a hand-over {median} s, expected below {MAX_MEDIAN_PAUSE_S}",
            ),
            (
                bound is not None and planned <= bound + MAX_DISTANCE_OVER_BOUND,
                f"round {number}: load distance {planned}, expected within {MAX_DISTANCE_OVER_BOUND} of {bound}",
            ),
        ]
    return checks
