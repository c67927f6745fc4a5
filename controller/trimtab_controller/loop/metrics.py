"""The Prometheus metrics of one term of the controller."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry

from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.decision import ALL_NAMES
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.execution.budget import BudgetUse
from trimtab_controller.execution.disruption import Cause
from trimtab_controller.execution.state import ENDED, Handover, HandoverPhase, Round
from trimtab_controller.loop.gauges import APPS, WORKERS_AND_HOSTS, Declare, show
from trimtab_controller.loop.inbox import Inbox
from trimtab_process.metrics_port import from_zero
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import AppId, HostId, Topics


class HandoverMetrics:
    """What moves, how long it takes, and what the jobs suffer from it."""

    def __init__(self, declare: Declare) -> None:
        text = "Key groups in ended hand-overs, by outcome."
        self._moves = from_zero(declare.counter("moves_total", text, "phase"), ENDED)
        text = "Ended hand-overs, by outcome."
        self._ended = from_zero(declare.counter("handovers_total", text, "phase"), ENDED)
        text = "Hand-overs of the plans in flight, by phase."
        self._in_flight = declare.gauge("handovers_in_flight", text, "phase")
        text = "Hand-overs of the app that may be in flight; absent until it has suffered from one."
        self._pace = declare.gauge("handovers_allowed", text, "app")
        text = "Restores of the plan in flight that may run, while that is fewer than handovers_in_flight."
        self._restores = declare.gauge("restores_allowed", text, "app")
        text = "Key-group seconds that the app has paused in the last hour, measured or assumed, by cause."
        self._causes = declare.gauge("paused_key_group_cause_seconds", text, "app", "cause")
        text = "Key-group seconds that the app may pause in an hour; absent without a limit."
        self._disruption_limit = declare.gauge("paused_key_group_limit_seconds", text, "app")
        text = "Backlog of the app in seconds of its processing rate; absent while unknown."
        self._lag = declare.gauge("lag_seconds", text, "app")
        text = "Processing pause of key groups during a hand-over, in seconds, measured by the new owner."
        self._pause = declare.seconds("handover_pause_seconds", text)
        text = "Seconds from prepare until the new owner's state was warm; copy = it was a standby (yes, no)."
        self._restore = from_zero(declare.seconds("restore_seconds", text, "copy"), ("yes", "no"))
        text = "Seconds until all state of the last ended round is warm, as expected at its begin."
        self._recovery_planned = declare.gauge("recovery_planned_seconds", text, "app")
        text = "Bound of trimtab_controller_recovery_planned_seconds: no schedule takes less."
        self._recovery_bound = declare.gauge("recovery_bound_seconds", text, "app")
        text = "Measured seconds until all state of the last round that ended was warm."
        self._recovery = declare.gauge("recovery_seconds", text, "app")
        self._plans = declare.gauge("plan_in_flight", "Number of plans in flight, at most one per app.")

    def see_rounds(self, rows: Sequence[Round]) -> None:
        """Set the gauges of the plans in flight."""
        self._plans.set(len(rows))
        for phase in HandoverPhase:
            self._in_flight.labels(phase).set(sum(each.phase is phase for row in rows for each in row.handovers))

    def ended(self, handover: Handover) -> None:
        """Count a hand-over that has ended."""
        self._ended.labels(handover.phase).inc()
        self._moves.labels(handover.phase).inc(len(handover.key_groups))
        if handover.pause_s is not None:
            self._pause.observe(handover.pause_s)

    def restored(self, handover: Handover, seconds: float) -> None:
        """Count a restore that has ended."""
        self._restore.labels("yes" if handover.has_copy else "no").observe(seconds)

    def round_ended(self, row: Round) -> None:
        """Set what the restores of a round that has ended were expected to take, and took."""
        if row.recovery is not None and row.recovery.measured_s is not None:
            self._recovery_planned.labels(row.app).set(row.recovery.planned_s)
            self._recovery_bound.labels(row.app).set(row.recovery.bound_s)
            self._recovery.labels(row.app).set(row.recovery.measured_s)

    def see_pace(self, app: AppId, number: int) -> None:
        """Set how many hand-overs of an app may be in flight."""
        self._pace.labels(app).set(number)

    def see_lags(self, lags_s: Mapping[AppId, float], restores: Mapping[AppId, int]) -> None:
        """Set how far apps are behind, and how many restores of their plans may run, for exactly these."""
        show(self._restores, {(app,): float(number) for app, number in restores.items()})
        show(self._lag, {(app,): lag_s for app, lag_s in lags_s.items()})

    def see_disruption(self, uses: Iterable[BudgetUse]) -> None:
        """Set what each app has used of its disruption budget."""
        self._disruption_limit.clear()
        self._causes.clear()
        for use in uses:
            causes = use.causes
            for cause in Cause:
                self._causes.labels(use.app, cause).set(causes.get(cause, 0.0))
            if use.limit_s is not None:
                self._disruption_limit.labels(use.app).set(use.limit_s)


SIGNATURE_FAULTS = (Fault.UNSIGNED, Fault.UNKNOWN_KEY, Fault.WRONG_SIGNATURE, Fault.REPEATED)
"""What may be wrong with the signature of a host."""


class ControllerMetrics:
    """The metrics of one term, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        declare = Declare(self.registry)
        self._of_apps = declare.of_apps
        self._told_apps: set[AppId] = set()
        self.handovers = HandoverMetrics(declare)
        self.messages = MessageMetrics(declare)
        self._known = [
            (each, declare.gauge(each.name, each.text, *each.labels)) for each in (*APPS, *WORKERS_AND_HOSTS)
        ]
        self.decisions = declare.counter("decisions_total", "Decisions, by kind and reason.", "kind", "reason")
        for kind, reason in ALL_NAMES:
            self.decisions.labels(kind, reason)
        text = "Bound of the last plan: no plan within its budget has a lower load distance."
        self.lower_bound = declare.gauge("lower_bound_pp", text, "app")
        text = "Load distance that the last plan predicted, in percentage points."
        self.planned = declare.gauge("planned_load_distance_pp", text, "app")
        text = "Load distance measured in the first window after the last round, in percentage points."
        self.measured = declare.gauge("measured_load_distance_pp", text, "app")
        text = "Rounds whose measured loads differed from the plan by more than noise."
        self.missed = declare.counter("plans_missed_total", text)
        text = "1 while the app has this problem, else 0.  The kind is the name of a runbook."
        self._concerns = declare.gauge("concern", text, "app", "kind")
        text = "1 for each host in maintenance, until that ends."
        self._maintenance = declare.gauge("host_maintenance", text, "host")
        self.solver = declare.seconds("solver_seconds", "Time that the solver took for a plan.")
        self.solver_kills = declare.followed("solver_kills_total", "Solver processes that were killed or died.")
        text = "Seconds since the end of the last window; before the first window, since the start of this term."
        self.snapshot_age = declare.gauge("snapshot_age_seconds", text)
        text = "Hosts seen / hosts expected in the last window; NaN before the first window."
        self.coverage = declare.gauge("coverage_ratio", text)
        self.coverage.set(math.nan)
        self.acting = declare.gauge("acting", "1 if the controller acts, 0 in a dry run.")
        text = "1 while the controller waits for an operator because the journal cannot be trusted, else 0."
        self.on_hold = declare.gauge("on_hold", text)
        self.generation = declare.gauge("epoch_generation", "Leader generation of the current epoch.")
        text = "Restarts of the stream (Spark's process)."
        self.stream_restarts = declare.followed("stream_restarts_total", text)

    def observe(self, known: WindowResult) -> None:
        """Show what is known of apps, workers and hosts, and nothing else; `WindowResult()` = nothing is known now."""
        for each, gauge in self._known:
            show(gauge, each.values(known))

    def keep_apps(self, apps: Collection[AppId]) -> None:
        """Remove all that is still shown of apps other than these: nobody runs them, and they have no placement."""
        for each in self._told_apps.difference(apps):
            for metric in self._of_apps:
                metric.remove_by_labels({"app": each})
        self._told_apps = set(apps)

    def see_concerns(self, concerns: Iterable[Concern]) -> None:
        """Set the present concerns, and remove those of all other apps."""
        present = {(concern.app, str(concern.kind)) for concern in concerns}
        apps = {app for app, _ in present}
        show(
            self._concerns,
            {(app, str(kind)): float((app, str(kind)) in present) for app in apps for kind in ConcernKind},
        )

    def see_maintenance(self, hosts: Iterable[HostId]) -> None:
        """Set the hosts in maintenance."""
        self._maintenance.clear()
        for host in hosts:
            self._maintenance.labels(host).set(1)


class MessageMetrics:
    """What is refused, and what is not signed by its host."""

    def __init__(self, declare: Declare) -> None:
        text = "Messages refused by the controller, and reports refused by the stream, by topic and fault."
        self._rejected = declare.followed("rejected_messages_total", text, "topic", "fault")
        text = "Reports and acks that are used although their host has not signed them, by topic and fault."
        self._unsigned = declare.followed("unsigned_messages_total", text, "topic", "fault")
        text = "Hosts that have a key; 0 if signatures are not checked."
        self._hosts_enrolled = declare.gauge("hosts_enrolled", text)

    def read_from(self, topics: Topics) -> None:
        """Show that nothing of these topics is refused yet."""
        read = (topics.reports, topics.snapshots, topics.acks, topics.intents, topics.placement, topics.journal)
        from_zero(self._rejected, (*read, topics.commands), Fault)
        from_zero(self._unsigned, (topics.reports, topics.acks), SIGNATURE_FAULTS)

    def observe(self, inbox: Inbox) -> None:
        """Set the counts of refused messages, and of those without a signature of their host."""
        for metric, counts in ((self._rejected, inbox.rejected), (self._unsigned, inbox.unsigned)):
            for (topic, fault), count in counts.items():
                metric.labels(topic, fault).follow(count)
        self._hosts_enrolled.set(len(inbox.known_hosts.enrolled))
