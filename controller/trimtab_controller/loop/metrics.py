"""Prometheus metrics of one term of the controller.

Names begin with `trimtab_controller_`.  `_pp` = percentage points of load, `_ratio` = 0..1.
"""

import math
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_controller.decider.collocation import Together
from trimtab_controller.decider.concerns import ClusterUse, Concern, ConcernKind
from trimtab_controller.decider.describe import ALL_NAMES
from trimtab_controller.decider.evaluate import Evaluation
from trimtab_controller.decider.forecast.rounds import ForecastTold
from trimtab_controller.decider.headroom import Capacity
from trimtab_controller.decider.levels import Levels
from trimtab_controller.decider.size.verdict import SizeVerdict
from trimtab_controller.decider.standbys import Survival
from trimtab_controller.decider.unknown_load import Gaps
from trimtab_controller.execution.budget import BudgetUse
from trimtab_controller.execution.state import ENDED, Handover, HandoverPhase, Round
from trimtab_controller.loop.inbox import Inbox
from trimtab_models.albic.fit import Cost
from trimtab_models.elastic import Level
from trimtab_process.counts import Followed, from_zero
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import AppId, HostId, Topics
from trimtab_protocol.messages.snapshot import HostWindow, Snapshot
from trimtab_protocol.signing.hosts import HostChecking

PREFIX = "trimtab_controller_"
SIGNATURE_FAULTS = (Fault.UNSIGNED, Fault.UNKNOWN_KEY, Fault.WRONG_SIGNATURE, Fault.REPEATED)
"""What may be wrong with the signature of a host."""


class Metrics:
    """The metrics of one term, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(PREFIX + name, text, labels, registry=registry)

        def followed(name: str, text: str, *labels: str) -> Followed:
            return Followed(PREFIX + name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(PREFIX + name, text, labels, buckets=buckets, registry=registry)

        seconds = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
        self.decisions = counter("decisions_total", "Decisions, by kind and reason.", "kind", "reason")
        for kind, reason in ALL_NAMES:
            self.decisions.labels(kind, reason)
        text = "Smoothed load distance in percentage points; absent while unknown."
        self.load_distance = gauge("load_distance_pp", text, "app")
        text = "Share of the tuples between key groups that stay within a worker; absent while unknown."
        self.collocation = gauge("collocation_ratio", text, "app")
        text = (
            "Share of the tuples between key groups that skipped the broker in the last window; absent while unknown."
        )
        self.local_sends = gauge("local_sends_ratio", text, "app")
        text = "Key groups with fewer standbys than the app asks for; absent while unknown."
        self.missing_standbys = gauge("key_groups_without_standby", text, "app")
        text = "Highest load of a worker after the loss of any one host / its capacity; absent while unknown."
        self.n_minus_1 = gauge("n_minus_1_ratio", text, "app")
        text = "Bound of trimtab_controller_n_minus_1_ratio: no choice of standbys has a lower one."
        self.n_minus_1_bound = gauge("n_minus_1_bound_ratio", text, "app")
        text = "What following a key group costs / its load, as measured; absent until then."
        self.following = gauge("following_ratio", text, "app")
        text = "Workers that take no part in plans for the app: away, not running, not steering, not measured."
        self.fixed_workers = gauge("fixed_workers", text, "app")
        text = "Key groups whose load the last window did not measure; their last known load stands in for it."
        self.stale_key_groups = gauge("stale_key_groups", text, "app")
        text = "Share of the app's load that the last window did not measure; absent while unknown."
        self.unknown_load = gauge("unknown_load_ratio", text, "app")
        text = "Bound of the last plan: no plan within its budget has a lower load distance."
        self.lower_bound = gauge("lower_bound_pp", text, "app")
        text = "Load distance that the last plan predicted, in percentage points."
        self.planned = gauge("planned_load_distance_pp", text, "app")
        text = "Load distance measured in the first window after the last round, in percentage points."
        self.measured = gauge("measured_load_distance_pp", text, "app")
        text = "Rounds whose measured loads differed from the plan by more than noise."
        self.missed = counter("plans_missed_total", text)
        text = "1 while the app has this problem, else 0.  The kind is the name of a runbook."
        self.concerns = gauge("concern", text, "app", "kind")
        text = "CPU that the worker's process used in the last window / its capacity; absent while unknown."
        self.used = gauge("worker_used_ratio", text, "app", "worker")
        text = "CPU charged to the worker's key groups in the last window / its capacity; absent while unknown."
        self.loads = gauge("worker_key_groups_ratio", text, "app", "worker")
        text = "CPU asked of the worker in the last window, with its backlog / its capacity; absent while unknown."
        self.demand = gauge("worker_demand_ratio", text, "app", "worker")
        text = "Workers of the app by how busy they are: light below 40 % of their capacity, heavy from 80 % on."
        self.worker_levels = gauge("workers_at_level", text, "app", "level")
        text = "Hosts by how busy their bottleneck is: light below 40 %, heavy from 80 % on."
        self.host_levels = gauge("hosts_at_level", text, "level")
        text = "Inputs in Kafka not yet processed by the worker at the end of the last window; absent while unknown."
        self.worker_backlog = gauge("worker_backlog_tuples", text, "app", "worker")
        text = "Times the present input that fits until a worker or host is full, as placed; absent while unknown."
        self.headroom = gauge("headroom_ratio", text, "app")
        text = "Times the present input that fits with free moves; absent while unknown."
        self.headroom_potential = gauge("headroom_potential_ratio", text, "app")
        text = "Bound of trimtab_controller_headroom_potential_ratio: no placement carries more."
        self.headroom_bound = gauge("headroom_bound_ratio", text, "app")
        text = "Share of the workers' CPU that the fitted costs predict; absent while unknown."
        self.accuracy = gauge("prediction_accuracy_ratio", text, "app")
        text = "CPU seconds that a tuple costs more because it goes to another worker, at its end (sending, receiving)."
        self.remote_cost = gauge("remote_tuple_cpu_seconds", text, "app", "operator", "end")
        text = "Standard error of trimtab_controller_remote_tuple_cpu_seconds."
        self.remote_cost_error = gauge("remote_tuple_cpu_error_seconds", text, "app", "operator", "end")
        text = "Share of the tuples between key groups that could stay within a worker at most; absent while unknown."
        self.obtainable = gauge("collocation_obtainable_ratio", text, "app")
        text = "Cores that collocation would save besides, by the costs that are significant; absent while unknown."
        self.collocation_worth = gauge("collocation_worth_cores", text, "app")
        text = "CPU asked of the host, with what other processes use / its cores; absent while unknown."
        self.host_demand = gauge("host_demand_ratio", text, "host")
        self.host_speed = gauge("host_speed_ratio", "Speed of a core of the host, relative to other types.", "host")
        self.worker_memory = gauge("worker_memory_bytes", "Memory of the worker's process.", "app", "worker")
        self.host_used = gauge("host_used_ratio", "CPU used on the host / its cores.", "host")
        self.host_memory = gauge("host_memory_bytes", "Memory used on the host.", "host")
        self.host_memory_limit = gauge("host_memory_limit_bytes", "Memory that the host has, or may use.", "host")
        text = "Free on the disk of the workers' state; of several disks, on the one with the least free."
        self.host_disk_free = gauge("host_disk_free_bytes", text, "host")
        self.host_disk_total = gauge("host_disk_total_bytes", "Used and free on that disk.", "host")
        text = "Bytes per second on the host's link, by direction (received, sent)."
        self.host_link = gauge("host_link_bytes_per_second", text, "host", "direction")
        text = "Inputs in Kafka not yet processed by the app at the end of the last window; absent while unknown."
        self.backlog = gauge("backlog_tuples", text, "app")
        text = "Highest demand forecast until a worker that is started now runs, in cores; absent while unknown."
        self.forecast = gauge("forecast_cores", text, "app")
        text = "1 while the number of workers follows the forecast, else 0; absent without a forecast."
        self.forecast_used = gauge("forecast_used", text, "app")
        text = "Mean absolute error that far ahead: of the forecast, the last value, the value one period before."
        self.forecast_error = gauge("forecast_error_cores", text, "app", "method")
        text = "Workers that agents declare for the app, that do not run, and that can be started."
        self.pool = gauge("pool_workers", text, "app")
        text = "Workers that the app should have, for whoever adds and removes them from outside; absent while unknown."
        self.desired = gauge("desired_workers", text, "app")
        text = "CPU asked of the workers of the app that stay, with their backlogs, in cores; absent while unknown."
        self.demand_cores = gauge("demand_cores", text, "app")
        text = "Capacity of the workers of the app that stay, in cores; absent while unknown."
        self.capacity_cores = gauge("capacity_cores", text, "app")
        text = "Key groups in ended hand-overs, by outcome."
        self.moves = from_zero(counter("moves_total", text, "phase"), ENDED)
        self.handovers = from_zero(counter("handovers_total", "Ended hand-overs, by outcome.", "phase"), ENDED)
        self.in_flight = gauge("handovers_in_flight", "Hand-overs of the plans in flight, by phase.", "phase")
        text = "Hand-overs of the app that may be in flight, since it has suffered from some; absent before that."
        self.pace = gauge("handovers_allowed", text, "app")
        text = "1 for each host in maintenance, until that ends."
        self.maintenance = gauge("host_maintenance", text, "host")
        text = "Key-group seconds that the app has paused in the last hour, measured or assumed."
        self.disruption = gauge("paused_key_group_seconds", text, "app")
        text = "Key-group seconds that the app may pause in an hour; absent without a limit."
        self.disruption_limit = gauge("paused_key_group_limit_seconds", text, "app")
        text = "Plans of the app that the guard has ended, because the job suffered from them."
        self.guard_stops = counter("guard_stops_total", text, "app")
        text = "Backlog of the app in seconds of its processing rate; absent while unknown."
        self.lag = gauge("lag_seconds", text, "app")
        text = "Processing pause of key groups during a hand-over, in seconds, measured by the new owner."
        self.pause = histogram("handover_pause_seconds", text, seconds)
        text = "Seconds from prepare until the new owner's state was warm; copy = it was a standby (yes, no)."
        self.restore = from_zero(histogram("restore_seconds", text, seconds, "copy"), ("yes", "no"))
        text = "Expected seconds until all state of the last round that ended is warm, at its begin."
        self.recovery_planned = gauge("recovery_planned_seconds", text, "app")
        text = "Bound of trimtab_controller_recovery_planned_seconds: no schedule is expected to take less."
        self.recovery_bound = gauge("recovery_bound_seconds", text, "app")
        text = "Measured seconds until all state of the last round that ended was warm."
        self.recovery = gauge("recovery_seconds", text, "app")
        text = "Duration of a round, from its plan to the end of its last hand-over."
        self.round = histogram("round_seconds", text, seconds)
        self.solver = histogram("solver_seconds", "Time that the solver took for a plan.", seconds)
        self.solver_kills = followed("solver_kills_total", "Solver processes that were killed or died.")
        text = "Seconds since the end of the last window; before the first window, since the start of this term."
        self.snapshot_age = gauge("snapshot_age_seconds", text)
        text = "Hosts seen / hosts expected in the last window; NaN before the first window."
        self.coverage = gauge("coverage_ratio", text)
        self.coverage.set(math.nan)
        text = "Messages refused by the controller, and reports refused by the stream, by topic and fault."
        self.rejected = followed("rejected_messages_total", text, "topic", "fault")
        text = "Reports and acks that are used although their host has not signed them, by topic and fault."
        self.unsigned = followed("unsigned_messages_total", text, "topic", "fault")
        text = (
            "What becomes of what a host has not signed: 0 = signatures are not looked at, 1 = it is used, 2 = dropped."
        )
        self.host_checking = gauge("host_checking", text)
        self.hosts_enrolled = gauge("hosts_enrolled", "Hosts that have a key; 0 where signatures are not looked at.")
        self.plan_in_flight = gauge("plan_in_flight", "Number of plans in flight, at most one per app.")
        self.acting = gauge("acting", "1 if the controller acts, 0 in a dry run.")
        text = "1 while the controller waits for an operator because the journal cannot be trusted, else 0."
        self.on_hold = gauge("on_hold", text)
        self.generation = gauge("epoch_generation", "Leader generation of the current epoch.")
        self.number = gauge("epoch_number", "Publication number of the current epoch.")
        self.stream_restarts = followed("stream_restarts_total", "Restarts of the stream (Spark's process).")

    def see_handover(self, handover: Handover) -> None:
        """Count a hand-over that has ended."""
        self.handovers.labels(handover.phase).inc()
        self.moves.labels(handover.phase).inc(len(handover.key_groups))
        if handover.pause_s is not None:
            self.pause.observe(handover.pause_s)

    def see_pace(self, app: AppId, number: int) -> None:
        """Set how many hand-overs of an app may be in flight."""
        self.pace.labels(app).set(number)

    def see_maintenance(self, hosts: Iterable[HostId]) -> None:
        """Set the hosts in maintenance."""
        self.maintenance.clear()
        for host in hosts:
            self.maintenance.labels(host).set(1)

    def see_disruption(self, uses: Iterable[BudgetUse]) -> None:
        """Set what each app has used of its disruption budget."""
        self.disruption.clear()
        self.disruption_limit.clear()
        for use in uses:
            self.disruption.labels(use.app).set(use.used_s)
            if use.limit_s is not None:
                self.disruption_limit.labels(use.app).set(use.limit_s)

    def see_lags(self, lags_s: Mapping[AppId, float]) -> None:
        """Set how far apps are behind, for exactly these."""
        _show(self.lag, {(app,): lag_s for app, lag_s in lags_s.items()})

    def see_restore(self, handover: Handover, seconds: float) -> None:
        """Count a restore that has ended."""
        self.restore.labels("yes" if handover.has_copy else "no").observe(seconds)

    def see_recovery(self, row: Round) -> None:
        """Set what the restores of a round that has ended were expected to take, and took."""
        if row.recovery is not None and row.recovery.measured_s is not None:
            self.recovery_planned.labels(row.app).set(row.recovery.planned_s)
            self.recovery_bound.labels(row.app).set(row.recovery.bound_s)
            self.recovery.labels(row.app).set(row.recovery.measured_s)

    def see_rounds(self, rows: Sequence[Round]) -> None:
        """Set the gauges of the plans in flight."""
        self.plan_in_flight.set(len(rows))
        for phase in HandoverPhase:
            self.in_flight.labels(phase).set(sum(each.phase is phase for row in rows for each in row.handovers))

    def see_missing_standbys(self, missing: Mapping[AppId, int]) -> None:
        """Set the key groups without standby, for exactly these apps."""
        _show(self.missing_standbys, {(app,): float(count) for app, count in missing.items()})

    def see_survivals(self, survivals: Mapping[AppId, Survival]) -> None:
        """Set what the loss of one host leads to, for exactly these apps."""
        _show(self.n_minus_1, {(app,): _ratio(found.worst_pct) for app, found in survivals.items()})
        _show(self.n_minus_1_bound, {(app,): _ratio(found.bound_pct) for app, found in survivals.items()})

    def see_following(self, following: Mapping[AppId, float]) -> None:
        """Set what following costs, for exactly these apps."""
        _show(self.following, {(app,): share for app, share in following.items()})

    def see_gaps(self, gaps: Mapping[AppId, Gaps]) -> None:
        """Set what is not known, for exactly these apps."""
        _show(self.fixed_workers, {(app,): float(len(found.fixed)) for app, found in gaps.items()})
        _show(self.stale_key_groups, {(app,): float(found.stale) for app, found in gaps.items()})
        _show(self.unknown_load, {(app,): found.share for app, found in gaps.items()})

    def see_evaluations(self, evaluations: Mapping[AppId, Evaluation]) -> None:
        """Set load distance and collocation, for exactly the apps of the last snapshot."""
        _show(self.load_distance, {(app,): found.load_distance for app, found in evaluations.items()})
        _show(self.collocation, {(app,): found.collocation for app, found in evaluations.items()})

    def see_local_sends(self, shares: Mapping[AppId, float]) -> None:
        """Set the share of sends that skip the broker, for exactly these apps."""
        _show(self.local_sends, {(app,): share for app, share in shares.items()})

    def see_use(self, use: ClusterUse) -> None:
        """Set what workers use and the backlogs of apps."""
        workers = {(worker_use.app or "", worker): worker_use for worker, worker_use in use.workers.items()}
        _show(self.used, {names: _ratio(worker_use.used_pct) for names, worker_use in workers.items()})
        _show(self.loads, {names: _ratio(worker_use.load_pct) for names, worker_use in workers.items()})
        _show(self.demand, {names: _ratio(worker_use.demand_pct) for names, worker_use in workers.items()})
        backlogs = {names: worker_use.backlog for names, worker_use in workers.items() if worker_use.backlog}
        _show(self.worker_backlog, {names: float(growth.now) for names, growth in backlogs.items()})
        _show(self.backlog, {(app,): float(growth.now) for app, growth in use.backlogs.items()})

    def see_levels(self, levels: Levels, use: ClusterUse) -> None:
        """Set how many workers of each app, and how many hosts, are light, moderate and heavy."""
        apps = {use.workers[worker].app or "" for worker in levels.workers}
        workers = Tally((use.workers[worker].app or "", level) for worker, level in levels.workers.items())
        hosts = Tally(levels.hosts.values())
        _show(self.worker_levels, {(app, each.value): float(workers[app, each]) for app in apps for each in Level})
        _show(self.host_levels, {(each.value,): float(hosts[each]) for each in Level if levels.hosts})

    def see_hosts(self, snapshot: Snapshot | None) -> None:
        """Set the memory of workers, and CPU, memory, disk and link of hosts; None = no recent window."""
        hosts, nodes = (snapshot.hosts, snapshot.nodes) if snapshot else ((), ())
        _show(self.worker_memory, {(row.app or "", row.worker): row.memory_bytes for row in nodes})
        _show(self.host_used, {(row.host,): _ratio(row.used_pct) for row in hosts})
        _show(self.host_memory, {(row.host,): row.memory_bytes for row in hosts})
        _show(self.host_memory_limit, {(row.host,): row.memory_limit_bytes for row in hosts})
        _show(self.host_disk_free, {(row.host,): row.disk_free_bytes for row in hosts})
        _show(self.host_disk_total, {(row.host,): row.disk_total_bytes for row in hosts})
        link = ((row.host, way, rate) for row in hosts for way, rate in _link_rates(row))
        _show(self.host_link, {(host, way): rate for host, way, rate in link})

    def see_capacity(self, capacity: Capacity) -> None:
        """Set what else fits, and what is known of hosts, for exactly these apps and hosts."""
        headrooms, hosts = capacity.headrooms, capacity.seen.hosts
        _show(self.headroom, {(app,): found.as_placed for app, found in headrooms.items()})
        _show(self.headroom_potential, {(app,): found.potential for app, found in headrooms.items()})
        _show(self.headroom_bound, {(app,): found.bound for app, found in headrooms.items()})
        _show(self.accuracy, {(app,): found for app, found in capacity.accuracies.items()})
        _show(self.host_demand, {(name,): _ratio(host.used.get("CPU")) for name, host in hosts.items()})
        _show(self.host_speed, {(name,): host.speed for name, host in hosts.items()})

    def see_together(self, together: Mapping[AppId, Together]) -> None:
        """Set what tuples between workers cost, and what collocation can bring, for exactly these apps."""
        costs = {
            (app, str(operator), end): cost
            for app, found in together.items()
            for operator, fit in found.fits.items()
            for end, cost in (("sending", fit.sending), ("receiving", fit.receiving))
            if isinstance(cost, Cost)
        }
        _show(self.remote_cost, {names: cost.value for names, cost in costs.items()})
        _show(self.remote_cost_error, {names: cost.error for names, cost in costs.items()})
        _show(self.obtainable, {(app,): found.obtainable for app, found in together.items()})
        _show(self.collocation_worth, {(app,): found.worth for app, found in together.items()})

    def see_pool(self, workers: Mapping[AppId, int]) -> None:
        """Set the number of workers that can be started, for exactly these apps."""
        _show(self.pool, {(app,): float(count) for app, count in workers.items()})

    def see_sizes(self, sizes: Mapping[AppId, SizeVerdict]) -> None:
        """Set the sizes, for exactly these apps."""
        known = {app: row for app, row in sizes.items() if row.desired is not None}
        _show(self.desired, {(app,): float(row.desired or 0) for app, row in known.items()})
        _show(self.demand_cores, {(app,): row.asked for app, row in known.items()})
        _show(self.capacity_cores, {(app,): row.capacity for app, row in known.items()})

    def see_forecasts(self, told: Mapping[AppId, ForecastTold]) -> None:
        """Set the forecasts and their errors, for exactly these apps."""
        peaks = {app: row.peak for app, row in told.items()}
        _show(self.forecast, {(app,): peak for app, peak in peaks.items() if peak is not None})
        _show(self.forecast_used, {(app,): float(row.used) for app, row in told.items() if row.near is not None})
        errors: dict[tuple[str, ...], float | None] = {
            (app, method): error.mae
            for app, row in told.items()
            if row.near is not None
            for method, error in (
                ("forecast", row.near.model),
                ("last_value", row.near.last),
                ("seasonal_naive", row.near.seasonal),
            )
            if error is not None
        }
        _show(self.forecast_error, errors)

    def see_concerns(self, concerns: Iterable[Concern]) -> None:
        """Set the present concerns, and remove those of all other apps."""
        present = {(concern.app, str(concern.kind)) for concern in concerns}
        apps = {app for app, _ in present}
        _show(
            self.concerns,
            {(app, str(kind)): float((app, str(kind)) in present) for app in apps for kind in ConcernKind},
        )

    def read_from(self, topics: Topics) -> None:
        """Show that nothing of these topics is refused yet."""
        read = (topics.reports, topics.snapshots, topics.acks, topics.intents, topics.placement, topics.journal)
        from_zero(self.rejected, (*read, topics.commands), Fault)
        from_zero(self.unsigned, (topics.reports, topics.acks), SIGNATURE_FAULTS)

    def see_inbox(self, inbox: Inbox) -> None:
        """Set the counts of refused messages, and of those without a signature of their host."""
        for metric, counts in ((self.rejected, inbox.rejected), (self.unsigned, inbox.unsigned)):
            for (topic, fault), count in counts.items():
                metric.labels(topic, fault).follow(count)
        self.host_checking.set(list(HostChecking).index(inbox.checking))
        self.hosts_enrolled.set(len(inbox.known_hosts.enrolled))


def _link_rates(row: HostWindow) -> tuple[tuple[str, float | None], ...]:
    return ("received", row.received_bytes_s), ("sent", row.sent_bytes_s)


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _show(gauge: Gauge, values: Mapping[tuple[str, ...], float | None]) -> None:
    """Set the known values and remove all other labels, in this order: a scrape in between must not miss a value."""
    known = {labels: value for labels, value in values.items() if value is not None}
    for labels, value in known.items():
        gauge.labels(*labels).set(value)
    shown = {tuple(sample.labels.values()) for metric in gauge.collect() for sample in metric.samples}
    for gone in shown - known.keys():
        gauge.remove(*gone)
