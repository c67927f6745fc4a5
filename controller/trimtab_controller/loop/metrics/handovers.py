"""Metrics of hand-overs, and of the rounds that they belong to."""

from collections.abc import Iterable, Mapping, Sequence

from trimtab_controller.execution.budget import BudgetUse
from trimtab_controller.execution.disruption import Cause
from trimtab_controller.execution.state import ENDED, Handover, HandoverPhase, Round
from trimtab_controller.loop.metrics.shown import Declare, show
from trimtab_process.metrics_port import from_zero
from trimtab_protocol.messages.names import AppId


class HandoverMetrics:
    """What moves, how long it takes, and what the jobs suffer from it."""

    def __init__(self, declare: Declare) -> None:
        text = "Key groups in ended hand-overs, by outcome."
        self._moves = from_zero(declare.counter("moves_total", text, "phase"), ENDED)
        text = "Ended hand-overs, by outcome."
        self._ended = from_zero(declare.counter("handovers_total", text, "phase"), ENDED)
        text = "Hand-overs of the plans in flight, by phase."
        self._in_flight = declare.gauge("handovers_in_flight", text, "phase")
        text = "Hand-overs of the app that may be in flight, since it has suffered from some; absent before that."
        self._pace = declare.gauge("handovers_allowed", text, "app")
        text = "Restores of the plan in flight that may run, while that is fewer than handovers_in_flight."
        self._restores = declare.gauge("restores_allowed", text, "app")
        text = "Key-group seconds that the app has paused in the last hour, measured or assumed."
        self._disruption = declare.gauge("paused_key_group_seconds", text, "app")
        text = "Key-group seconds that the app has paused in the last hour, by cause."
        self._causes = declare.gauge("paused_key_group_cause_seconds", text, "app", "cause")
        text = "Key-group seconds that the app may pause in an hour; absent without a limit."
        self._disruption_limit = declare.gauge("paused_key_group_limit_seconds", text, "app")
        text = "Plans of the app that the guard has ended, because the job suffered from them."
        self._guard_stops = declare.counter("guard_stops_total", text, "app")
        text = "Backlog of the app in seconds of its processing rate; absent while unknown."
        self._lag = declare.gauge("lag_seconds", text, "app")
        text = "Processing pause of key groups during a hand-over, in seconds, measured by the new owner."
        self._pause = declare.seconds("handover_pause_seconds", text)
        text = "Seconds from prepare until the new owner's state was warm; copy = it was a standby (yes, no)."
        self._restore = from_zero(declare.seconds("restore_seconds", text, "copy"), ("yes", "no"))
        text = "Expected seconds until all state of the last round that ended is warm, at its begin."
        self._recovery_planned = declare.gauge("recovery_planned_seconds", text, "app")
        text = "Bound of trimtab_controller_recovery_planned_seconds: no schedule is expected to take less."
        self._recovery_bound = declare.gauge("recovery_bound_seconds", text, "app")
        text = "Measured seconds until all state of the last round that ended was warm."
        self._recovery = declare.gauge("recovery_seconds", text, "app")
        text = "Duration of a round, from its plan to the end of its last hand-over."
        self._round = declare.seconds("round_seconds", text)
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
        """Count a round that has ended; set what its restores were expected to take, and took."""
        self._round.observe((row.ended_at or row.started_at) - row.started_at)
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
        self._disruption.clear()
        self._disruption_limit.clear()
        self._causes.clear()
        for use in uses:
            causes = use.causes
            for cause in Cause:
                self._causes.labels(use.app, cause).set(causes.get(cause, 0.0))
            self._disruption.labels(use.app).set(use.used_s)
            if use.limit_s is not None:
                self._disruption_limit.labels(use.app).set(use.limit_s)

    def guard_stopped(self, app: AppId) -> None:
        """Count a plan that the guard has ended."""
        self._guard_stops.labels(app).inc()
