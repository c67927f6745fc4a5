"""The demo's summary, `out/demo/summary.json`, and the promises that it checks; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flights.demo.evidence import Evidence
from flights.demo.loads import deviations, windows_inside
from flights.demo.noise import Deviations, Spread, lower_limit, means, spreads
from flights.demo.pauses import Moved, PauseSummary, around_handovers, calm_twins, in_calm
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.round_status import RoundStatus

SLACK_S = 0.25
"""Time on both sides of a hand-over that counts as around it."""
ROUND_MARGIN_S, STOP_MARGIN_S = 1.0, 3.0
"""Time before and after a round, and before and after the end of a worker, that does not count as calm."""
MAX_MEDIAN_PAUSE_S = 0.3
MAX_OVER_CALM_S = 0.05
"""Limit for the median pause of the other key groups around a hand-over, above their calm median."""
MAX_DISTANCE_OVER_BOUND = 1.0
"""Limit for the load distance after the last round of a phase, with an allowance for noise (`flights.demo.noise`)."""
PHASES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The outcome of the drained worker."""

    worker: WorkerId
    key_groups_left: int | None
    exit_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Facts of the run that are not in Kafka; times in epoch seconds."""

    started_at: float
    seconds: float
    versions: Mapping[str, str]
    capacities: Mapping[WorkerId, float]
    window_s: float
    phases: tuple[tuple[float, str], ...]
    """(start, name)"""
    rounds: tuple[RoundStatus, ...]
    drain_started_at: float
    stopped_at: float
    """When the drained worker had ended."""
    calm: tuple[float, float]
    """A span with load in which nothing moved."""
    drained: Drained
    cpu_seconds: Mapping[str, float]
    processes_left: int
    ports_left: int

    @property
    def loaded(self) -> tuple[float, float]:
        """(start, end) of the time with flights, without the first phase (start) and the last one (end)."""
        return self.phases[1][0], self.phases[-1][0]

    @property
    def busy(self) -> list[tuple[float, float]]:
        """Spans in which something moved, joined or left, with a margin."""
        rounds = [
            (row.started_at - ROUND_MARGIN_S, (row.ended_at or float("inf")) + ROUND_MARGIN_S) for row in self.rounds
        ]
        return [*rounds, (self.stopped_at - STOP_MARGIN_S, self.stopped_at + STOP_MARGIN_S)]

    def phase_of(self, round_: RoundStatus) -> tuple[str, float, float]:
        """(name, start, end) of the phase in which a round began."""
        ends = [*(at for at, _ in self.phases[1:]), self.started_at + self.seconds]
        started = [(name, at, end) for (at, name), end in zip(self.phases, ends, strict=True)]
        return max((row for row in started if row[1] <= round_.started_at), key=lambda row: row[1])

    def after(self, round_: RoundStatus) -> tuple[float, float]:
        """Span from the end of a round to the next round or phase; for the last drain, from the end of the worker."""
        next_at = min(
            (row.started_at for row in self.rounds if row.started_at > round_.started_at), default=float("inf")
        )
        phase_end = self.phase_of(round_)[2]
        start = round_.ended_at or float("inf")
        if round_.started_at >= self.drain_started_at and next_at > self.stopped_at:
            start = max(start, self.stopped_at + STOP_MARGIN_S)
        return start, min(next_at, phase_end)

    def draining_at(self, at: float) -> list[WorkerId]:
        """Workers that were draining at this time."""
        return [self.drained.worker] if at >= self.drain_started_at else []


def pauses_of(rounds: Sequence[RoundStatus], course: Course, evidence: Evidence) -> dict[str, PauseSummary]:
    """Pauses around the hand-overs of these rounds: `moved` key groups, `others`, and all of them in `calm` times.

    Calm times are the same seconds of other windows, if possible in the same phase (with the same traffic).
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


def windows_of(span: tuple[float, float], course: Course, evidence: Evidence) -> list[Deviations]:
    """The deviations in the complete windows of a span, without windows in which anything is unknown."""
    windows = windows_inside(evidence.snapshots, *span)
    found = (deviations(window, course.draining_at(window.start_ms / 1000)) for window in windows)
    return [window for window in found if window is not None]


def summary(course: Course, evidence: Evidence) -> dict[str, Any]:
    """The summary as JSON types."""
    after = [windows_of(course.after(row), course, evidence) for row in course.rounds]
    last = {course.phase_of(row)[0]: number for number, row in enumerate(course.rounds)}
    judged = [after[number] for number in last.values()]
    still = [windows_of(course.calm, course, evidence), *judged]
    known = spreads(still)
    comparisons = sum(len(means(windows)) for windows in judged)
    document = {
        "version": 2,
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
        "answers": {
            "checked": evidence.answers.checked,
            "wrong": evidence.answers.wrong,
            "stepped_back": evidence.answers.stepped_back,
        },
        "rounds": [
            {
                **_round(row, course, evidence),
                **_measured(windows, known, comparisons),
                "last_of_phase": number in last.values(),
            }
            for number, (row, windows) in enumerate(zip(course.rounds, after, strict=True))
        ],
        "pause_seconds": {name: _pause(pause) for name, pause in pauses_of(course.rounds, course, evidence).items()},
        "window_noise": {worker: {"pp": _pp(row.pp), "degrees": row.degrees} for worker, row in known.items()},
        "comparisons": comparisons,
        "still_windows": [[{worker: _pp(pp) for worker, pp in window.items()} for window in span] for span in still],
        "drained": asdict(course.drained),
        "cpu_seconds": {name: round(seconds, 1) for name, seconds in course.cpu_seconds.items()},
        "left_over": {"processes": course.processes_left, "ports": course.ports_left},
    }
    return {**document, "broken": broken_promises(document), "missed": missed_promises(document)}


def _measured(windows: Sequence[Deviations], known: Mapping[WorkerId, Spread], comparisons: int) -> dict[str, Any]:
    """Load distance of the mean loads over the windows after a round, and its lower confidence limit."""
    if not windows:
        return {"windows_after": 0, "load_distance_after": None, "load_distance_at_least": None}
    return {
        "windows_after": len(windows),
        "load_distance_after": _pp(max(abs(mean) for mean in means(windows).values())),
        "load_distance_at_least": _pp(lower_limit(windows, known, max(1, comparisons))),
    }


def _round(row: RoundStatus, course: Course, evidence: Evidence) -> dict[str, Any]:
    return {
        "at": round(row.started_at - course.started_at, 1),
        "phase": course.phase_of(row)[0],
        "reason": row.reason,
        "status": row.status,
        "load_distance_before": _pp(row.before),
        "load_distance_planned": _pp(row.planned),
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
    """Violations of what must hold in every run (data, owners, no leftovers), one sentence each."""
    events, answers, drained = document["events"], document["answers"], document["drained"]
    left = document["left_over"]
    return _failed(
        (
            events["sent"] > 0 and events["processed"] == events["sent"],
            f"processed {events['processed']} of {events['sent']}",
        ),
        (events["lost"] == 0, f"{events['lost']} flights lost"),
        (events["duplicated"] == 0, f"{events['duplicated']} flights counted twice"),
        (answers["checked"] > 0 and answers["wrong"] == 0, f"{answers['wrong']} of {answers['checked']} sums wrong"),
        (answers["stepped_back"] == 0, f"{answers['stepped_back']} counts stepped back in the table's changelog"),
        (drained["key_groups_left"] == 0, f"{drained['worker']} still owns {drained['key_groups_left']} key groups"),
        (drained["exit_code"] == 0, f"{drained['worker']} ended with exit code {drained['exit_code']}"),
        (left["processes"] == 0 and left["ports"] == 0, f"{left['processes']} processes, {left['ports']} ports left"),
    )


def missed_promises(document: Mapping[str, Any]) -> list[str]:
    """Promises on balance and pauses that were missed, one sentence each; a busy machine may be the cause."""
    rounds = list(enumerate(document["rounds"], 1))
    moved, others, calm = (document["pause_seconds"][name]["median"] for name in ("moved", "others", "calm"))
    phases = {row["phase"] for _, row in rounds}
    return _failed(
        (len(phases) >= PHASES, f"rounds in {len(phases)} phases, expected in {PHASES}: start, shift and drain"),
        (
            moved is not None and moved < MAX_MEDIAN_PAUSE_S,
            f"median pause of a hand-over {moved} s, expected below {MAX_MEDIAN_PAUSE_S}",
        ),
        (
            others is not None and calm is not None and others <= calm + MAX_OVER_CALM_S,
            f"median pause of the others {others} s, expected at most {MAX_OVER_CALM_S} above {calm}",
        ),
        *(_plan_check(number, row) for number, row in rounds),
        *(_distance_check(number, row) for number, row in rounds if row["last_of_phase"]),
    )


def _failed(*checks: tuple[bool, str]) -> list[str]:
    return [text for kept, text in checks if not kept]


def _plan_check(number: int, row: Mapping[str, Any]) -> tuple[bool, str]:
    bound, planned = row["lower_bound"], row["load_distance_planned"]
    return (
        planned <= bound + MAX_DISTANCE_OVER_BOUND,
        f"round {number}: load distance {planned} planned, expected within {MAX_DISTANCE_OVER_BOUND} of {bound}",
    )


def _distance_check(number: int, row: Mapping[str, Any]) -> tuple[bool, str]:
    """Check the last round of a phase; earlier ones saw a load that was still changing."""
    at_least, bound = row["load_distance_at_least"], row["lower_bound"]
    if at_least is None:
        return False, f"round {number}, the last of its phase: no window after it, its load distance is unknown"
    return at_least <= bound + MAX_DISTANCE_OVER_BOUND, (
        f"round {number}, the last of its phase: load distance {row['load_distance_after']} measured over "
        f"{row['windows_after']} windows after it, at least {at_least} allowing for noise; planned "
        f"{row['load_distance_planned']}, expected within {MAX_DISTANCE_OVER_BOUND} of {bound}"
    )
