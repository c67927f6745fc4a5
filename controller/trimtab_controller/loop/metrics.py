"""Prometheus metrics of the controller.  Names begin with `trimtab_controller_`; seconds and percentage points."""

import math
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_controller.decider.concerns import Concern, ConcernKind, Strains
from trimtab_controller.decider.evaluate import Evaluation
from trimtab_controller.execution.state import Handover, HandoverPhase, Round
from trimtab_process.counts import Followed
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import AppId

PREFIX = "trimtab_controller_"


class Metrics:
    """What is counted and measured in one run of the controller."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(PREFIX + name, text, labels, registry=registry)

        def followed(name: str, text: str, *labels: str) -> Followed:
            return Followed(PREFIX + name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(PREFIX + name, text, buckets=buckets, registry=registry)

        seconds = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
        self.decisions = counter("decisions_total", "Decisions by kind and reason.", "kind", "reason")
        self.load_distance = gauge("load_distance_pp", "Smoothed load distance; absent while unknown.", "app")
        self.collocation = gauge("collocation_ratio", "Tuples between key groups that stay within a worker.", "app")
        text = "Key groups with fewer standbys than the app asks for; absent while unknown."
        self.missing_standbys = gauge("key_groups_without_standby", text, "app")
        self.lower_bound = gauge("lower_bound_pp", "Proven bound of the last plan.", "app")
        self.planned = gauge("planned_load_distance_pp", "Load distance that the last plan predicted.", "app")
        self.measured = gauge("measured_load_distance_pp", "Load distance in the first window after the round.", "app")
        self.missed = counter("plans_missed_total", "Rounds that did not bring what was planned.")
        text = "1 for what is wrong with an app though balancing goes on, or waits."
        self.concerns = gauge("concern", text, "app", "kind")
        text = "What the worker's process used in the last window, as a share of its capacity; absent while unknown."
        self.used = gauge("worker_used_ratio", text, "app", "worker")
        text = "What the worker's key groups cost in the last window, as a share of its capacity; absent while unknown."
        self.loads = gauge("worker_key_groups_ratio", text, "app", "worker")
        text = "Inputs that waited for an app at the last window's end; absent while unknown."
        self.backlog = gauge("backlog_tuples", text, "app")
        self.moves = counter("moves_total", "Key groups by how their hand-over ended.", "phase")
        self.handovers = counter("handovers_total", "Hand-overs by how they ended.", "phase")
        self.in_flight = gauge("handovers_in_flight", "Hand-overs of the plan in flight, by phase.", "phase")
        self.pause = histogram("handover_pause_seconds", "Pause that the new owner measured.", seconds)
        self.round = histogram("round_seconds", "Duration of a round.", seconds)
        self.solver = histogram("solver_seconds", "Time that the solver took.", seconds)
        self.solver_kills = followed("solver_kills_total", "Solver processes that were killed or died.")
        text = "Age of the last window's end; until there is one, of this controller's term."
        self.snapshot_age = gauge("snapshot_age_seconds", text)
        self.coverage = gauge(
            "coverage_ratio", "Hosts seen / hosts expected in the last window; NaN until there is one."
        )
        self.coverage.set(math.nan)
        text = "Messages refused by the controller, and reports by the stream, by topic and fault."
        self.rejected = followed("rejected_messages_total", text, "topic", "fault")
        self.plan_in_flight = gauge("plan_in_flight", "1 while a plan is carried out.")
        self.acting = gauge("acting", "1 when it acts, 0 in a dry run.")
        self.on_hold = gauge("on_hold", "1 while the journal is not to be believed and an operator must decide.")
        self.generation = gauge("epoch_generation", "Leader generation.")
        self.number = gauge("epoch_number", "Number of the last publication.")
        self.stream_restarts = followed("stream_restarts_total", "How often the stream was started again.")

    def see_handover(self, handover: Handover) -> None:
        """A hand-over has ended."""
        self.handovers.labels(handover.phase).inc()
        self.moves.labels(handover.phase).inc(len(handover.key_groups))
        if handover.pause_s is not None:
            self.pause.observe(handover.pause_s)

    def see_round(self, row: Round | None) -> None:
        """The round as it is now."""
        busy = row is not None and row.ended_at is None
        self.plan_in_flight.set(busy)
        for phase in HandoverPhase:
            rows = row.handovers if busy and row is not None else ()
            self.in_flight.labels(phase).set(sum(handover.phase is phase for handover in rows))

    def see_missing_standbys(self, missing: Mapping[AppId, int]) -> None:
        """The apps of which it is known; nothing of the others."""
        _show(self.missing_standbys, {(app,): float(count) for app, count in missing.items()})

    def see_evaluations(self, evaluations: Mapping[AppId, Evaluation]) -> None:
        """The apps in the last snapshot; of all others nothing is known any more."""
        _show(self.load_distance, {(app,): found.load_distance for app, found in evaluations.items()})
        _show(self.collocation, {(app,): found.collocation for app, found in evaluations.items()})

    def see_strains(self, strains: Strains) -> None:
        """What the workers use, and what waits for the apps."""
        workers = {(strain.app or "", worker): strain for worker, strain in strains.workers.items()}
        _show(self.used, {names: _ratio(strain.used_pct) for names, strain in workers.items()})
        _show(self.loads, {names: _ratio(strain.load_pct) for names, strain in workers.items()})
        _show(self.backlog, {(app,): float(growth.now) for app, growth in strains.backlogs.items()})

    def see_concerns(self, concerns: Iterable[Concern]) -> None:
        """What is wrong now."""
        present = {(concern.app, str(concern.kind)) for concern in concerns}
        apps = {app for app, _ in present}
        _show(
            self.concerns,
            {(app, str(kind)): float((app, str(kind)) in present) for app in apps for kind in ConcernKind},
        )

    def see_rejected(self, rejected: Mapping[tuple[str, Fault], int]) -> None:
        """The counts of refused messages."""
        for (topic, fault), count in rejected.items():
            self.rejected.labels(topic, fault).follow(count)


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _show(gauge: Gauge, values: Mapping[tuple[str, ...], float | None]) -> None:
    """What is known, under its labels, and nothing else; at no moment less than that, somebody may be reading."""
    known = {labels: value for labels, value in values.items() if value is not None}
    for labels, value in known.items():
        gauge.labels(*labels).set(value)
    shown = {tuple(sample.labels.values()) for metric in gauge.collect() for sample in metric.samples}
    for gone in shown - known.keys():
        gauge.remove(*gone)
