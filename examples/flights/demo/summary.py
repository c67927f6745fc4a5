"""The demo's summary, `out/demo/summary.json`, and the promises that it checks; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from flights.demo.evidence import Evidence, Stay
from flights.demo.loads import (
    collocation,
    cpu_of,
    deviations,
    highest_use,
    local_sends,
    owned_by,
    received_s,
    windows_inside,
)
from flights.demo.noise import Deviations, Spread, lower_limit, means, spreads
from flights.demo.pauses import Moved, PauseSummary, around_handovers, calm_twins, in_calm
from flights.wire import EXTRACT
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import RoundStatus

SLACK_S = 0.25
"""Time on both sides of a hand-over that counts as around it."""
ROUND_MARGIN_S, STOP_MARGIN_S = 1.0, 3.0
"""Time before and after a round, and before and after the end of a worker, that does not count as calm."""
MAX_MEDIAN_PAUSE_S = 0.3
MAX_OVER_CALM_S = 0.05
"""Limit for the median pause of the other key groups around a hand-over, above their calm median."""
SATURATED_PCT = 100.0
MAX_DISTANCE_OVER_BOUND = 1.0
"""Limit for the load distance after the last round of a phase, with an allowance for noise (`flights.demo.noise`)."""
PHASES = ("start", "shift", "load tripled", "load back")
"""Phases in which something moves, before that with a local topic.  The load distance is promised for all but the
third, in which it is three times as noisy, and that one, in which flights cost something else."""
LEAST_SAVED = 0.5
"""Share of the CPU promised by plans for collocation that must be saved."""
ERRORS = 2.0
"""Standard errors of what is saved that may be noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The load grew by `factor`, and the controller should start `worker` meanwhile, drain it afterwards, and stop it.

    Times in epoch seconds: `rose_at`, `fell_at` of the load; `joined_at` = when the controller saw the worker run;
    `drain_began_at`; None: it did not happen.
    """

    worker: WorkerId
    factor: float
    rose_at: float
    fell_at: float
    joined_at: float | None
    drain_began_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collocated:
    """A topic is local: from `apart_from` on as balance has left the key groups, from `began_at` on together.

    Times in epoch seconds.
    """

    apart_from: float
    began_at: float


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
    calm: tuple[float, float]
    """A span with load in which nothing moved."""
    scaled: Scaled
    collocated: Collocated | None
    stay: Stay | None
    """When the worker of the pool was started and stopped; None: it was not started."""
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
        return [*rounds, *((start, end + STOP_MARGIN_S) for start, end in (self.joining, self.leaving) if end > start)]

    @property
    def joining(self) -> tuple[float, float]:
        """Span in which the worker of the pool starts and joins the group; empty if it did not."""
        if self.stay is None or self.scaled.joined_at is None:
            return 0.0, 0.0
        return self.stay.started_at, self.scaled.joined_at

    @property
    def leaving(self) -> tuple[float, float]:
        """Span in which it ends and leaves the group, with a margin; empty if it did not."""
        if self.stay is None or self.stay.stopped_at is None:
            return 0.0, 0.0
        return self.stay.stopped_at - STOP_MARGIN_S, self.stay.stopped_at + STOP_MARGIN_S

    def phase_of(self, round_: RoundStatus) -> tuple[str, float, float]:
        """(name, start, end) of the phase in which a round began."""
        ends = [*(at for at, _ in self.phases[1:]), self.started_at + self.seconds]
        started = [(name, at, end) for (at, name), end in zip(self.phases, ends, strict=True)]
        return max((row for row in started if row[1] <= round_.started_at), key=lambda row: row[1])

    def after(self, round_: RoundStatus) -> tuple[float, float]:
        """Span from the end of a round to the next round or phase; once the pool's worker is empty, from its end."""
        next_at = min(
            (row.started_at for row in self.rounds if row.started_at > round_.started_at), default=float("inf")
        )
        phase_end = self.phase_of(round_)[2]
        start, gone_at = round_.ended_at or float("inf"), self.leaving[1]
        if self.draining_at(round_.started_at) and next_at > gone_at:
            start = max(start, gone_at)
        return start, min(next_at, phase_end)

    def draining_at(self, at: float) -> list[WorkerId]:
        """Workers that were draining at this time."""
        began_at = self.scaled.drain_began_at
        return [self.scaled.worker] if began_at is not None and at >= began_at else []

    def judged(self, round_: RoundStatus) -> bool:
        """Whether the load distance after a round is promised, if it is the last one of its phase."""
        high = self.scaled.rose_at <= round_.started_at < self.scaled.fell_at
        return not high and (self.collocated is None or round_.started_at < self.collocated.apart_from)


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


def rebalances_of(course: Course, evidence: Evidence) -> dict[str, PauseSummary]:
    """Pauses of all key groups while the worker of the pool was `joining` and `leaving` the group."""
    spans = {"joining": course.joining, "leaving": course.leaving}
    return {name: in_calm(evidence.waits, [span] if span[1] > span[0] else []) for name, span in spans.items()}


def scaling_of(course: Course, evidence: Evidence) -> dict[str, Any]:
    """What became of the worker of the pool while the load was high, and afterwards; as JSON types.

    `highest_use_pct` = of the capacity of a worker process, in a window before the one of the pool had key groups.
    """
    scaled, stay = course.scaled, course.stay
    late = windows_inside(evidence.snapshots, scaled.rose_at, float("inf"))
    owned = [(row, owned_by(row, scaled.worker)) for row in late]
    helped_ms = next((row.end_ms for row, count in owned if count), None)
    alone = [row for row in late if helped_ms is None or row.end_ms <= helped_ms]
    alone = [row for row in alone if row.start_ms < 1000 * scaled.fell_at]
    last = owned[-1] if owned and owned[-1][0].start_ms >= 1000 * scaled.fell_at else None
    return {
        "worker": scaled.worker,
        "load_factor": scaled.factor,
        "started_after_s": None if stay is None else _seconds(stay.started_at - scaled.rose_at),
        "helped_after_s": None if helped_ms is None else _seconds(helped_ms / 1000 - scaled.rose_at),
        "highest_use_pct": _pp(highest_use(alone)),
        "key_groups": max((count for _, count in owned), default=0),
        "drained": scaled.drain_began_at is not None,
        "stopped_after_s": None
        if stay is None or stay.stopped_at is None
        else _seconds(stay.stopped_at - scaled.fell_at),
        "key_groups_left": None if last is None else last[1],
        "exit_code": None if stay is None else stay.exit_code,
    }


def collocation_of(course: Course, collocated: Collocated, evidence: Evidence) -> dict[str, Any]:
    """What collocation was to save and has saved, as JSON types; cores are at the rate of the windows after it.

    `saved_cores` = difference of the CPU of key groups per flight, by the windows before the first and after the last
    round of the phase; `saved_error` = its standard error.  `promised_cores` = by the plans.  None: not known.
    """
    began_at = collocated.began_at
    rounds = [row for row in course.rounds if row.started_at >= began_at]
    ended_at = max((row.ended_at or float("inf") for row in rounds), default=float("inf"))
    before = windows_inside(evidence.snapshots, collocated.apart_from, began_at)
    after = windows_inside(evidence.snapshots, ended_at, course.phases[-1][0])
    costs = [[each for row in part if (each := _cpu_per_flight(row)) is not None] for part in (before, after)]
    planned = [row.saved_planned_pp for row in rounds if row.saved_planned_pp is not None]
    capacity = sum(share for worker, share in course.capacities.items() if worker != course.scaled.worker)
    found: dict[str, Any] = {
        "rounds": len(rounds),
        "migrations": sum(row.migrations for row in rounds),
        "promised_cores": round(sum(planned) / 100.0 * capacity, 4) if planned else None,
        "saved_cores": None,
        "saved_error": None,
        "cores_before": None,
    }
    for name, part, values in (("before", before, costs[0]), ("after", after, costs[1])):
        found[f"collocation_{name}"] = _mean(collocation(row) for row in part)
        found[f"local_sends_{name}"] = _mean(local_sends(row) for row in part)
        found[f"cpu_per_flight_us_{name}"] = round(1e6 * fmean(values), 1) if values else None
    if min(map(len, costs)) > 1:
        rate = fmean(received_s(row, EXTRACT) for row in after)
        error = sqrt(sum(stdev(values) ** 2 / len(values) for values in costs))
        found["saved_cores"] = round(rate * (fmean(costs[0]) - fmean(costs[1])), 4)
        found["saved_error"] = round(rate * error, 4)
        found["cores_before"] = round(rate * fmean(costs[0]), 4)
    return found


def _cpu_per_flight(window: Snapshot) -> float | None:
    """CPU seconds of the key groups per flight; None if it is unknown."""
    used, rate = cpu_of(window), received_s(window, EXTRACT)
    return None if used is None or window.coverage < 1 or not rate else used / rate


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return round(fmean(known), 3) if known else None


def windows_of(span: tuple[float, float], course: Course, evidence: Evidence) -> list[Deviations]:
    """The deviations in the complete windows of a span, without windows in which anything is unknown."""
    windows = windows_inside(evidence.snapshots, *span)
    found = (deviations(window, course.draining_at(window.start_ms / 1000)) for window in windows)
    return [window for window in found if window is not None]


def summary(course: Course, evidence: Evidence) -> dict[str, Any]:
    """The summary as JSON types."""
    after = [windows_of(course.after(row), course, evidence) for row in course.rounds]
    last = {course.phase_of(row)[0]: number for number, row in enumerate(course.rounds) if course.judged(row)}
    judged = [after[number] for number in last.values()]
    still = [windows_of(course.calm, course, evidence), *judged]
    known = spreads(still)
    comparisons = sum(len(means(windows)) for windows in judged)
    pauses = pauses_of(course.rounds, course, evidence) | rebalances_of(course, evidence)
    document = {
        "version": 4,
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
        "pause_seconds": {name: _pause(pause) for name, pause in pauses.items()},
        "window_noise": {worker: {"pp": _pp(row.pp), "degrees": row.degrees} for worker, row in known.items()},
        "comparisons": comparisons,
        "still_windows": [[{worker: _pp(pp) for worker, pp in window.items()} for window in span] for span in still],
        "scaled": scaling_of(course, evidence),
        "collocated": course.collocated and collocation_of(course, course.collocated, evidence),
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


def _seconds(value: float) -> float:
    return round(value, 1)


def _pp(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _pause(pause: PauseSummary) -> dict[str, float | None]:
    return {
        "median": None if pause.median_s is None else round(pause.median_s, 3),
        "max": None if pause.max_s is None else round(pause.max_s, 3),
    }


def broken_promises(document: Mapping[str, Any]) -> list[str]:
    """Violations of what must hold in every run (data, owners, no leftovers), one sentence each."""
    events, answers, scaled = document["events"], document["answers"], document["scaled"]
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
        (
            not scaled["drained"] or scaled["key_groups_left"] == 0,
            f"{scaled['worker']} still owns {scaled['key_groups_left']} key groups",
        ),
        (
            not scaled["drained"] or scaled["exit_code"] == 0,
            f"{scaled['worker']} ended with exit code {scaled['exit_code']}",
        ),
        (left["processes"] == 0 and left["ports"] == 0, f"{left['processes']} processes, {left['ports']} ports left"),
    )


def _saves_what_it_promised(collocated: Mapping[str, Any]) -> tuple[bool, str]:
    promised, saved, error = (collocated[name] for name in ("promised_cores", "saved_cores", "saved_error"))
    return (
        None not in (promised, saved, error) and saved + ERRORS * error >= LEAST_SAVED * promised,
        f"collocation has saved {saved} +- {error} cores, expected at least {LEAST_SAVED:g} of {promised} promised",
    )


def missed_promises(document: Mapping[str, Any]) -> list[str]:
    """Promises on balance and pauses that were missed, one sentence each; a busy machine may be the cause."""
    rounds = list(enumerate(document["rounds"], 1))
    moved, others, calm = (document["pause_seconds"][name]["median"] for name in ("moved", "others", "calm"))
    phases, scaled = {row["phase"] for _, row in rounds}, document["scaled"]
    expected = (*PHASES, *(["collocation"] if document["collocated"] else []))
    return _failed(
        (
            len(phases) >= len(expected),
            f"rounds in {len(phases)} phases, expected in {len(expected)}: {', '.join(expected)}",
        ),
        *([_saves_what_it_promised(document["collocated"])] if document["collocated"] else []),
        (
            scaled["helped_after_s"] is not None,
            f"{scaled['worker']} of the pool got no key groups at {scaled['load_factor']:g} times the load",
        ),
        (
            scaled["started_after_s"] is None or scaled["drained"],
            f"{scaled['worker']} was not drained when the load had fallen back",
        ),
        (
            (scaled["highest_use_pct"] or 0.0) < SATURATED_PCT,
            f"a worker used {scaled['highest_use_pct']} % of its capacity before {scaled['worker']} had key groups",
        ),
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
