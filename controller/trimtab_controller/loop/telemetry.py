"""Reports the controller's work to operators: by log, metrics, health and status."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.intents import in_maintenance
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.memory.predictions import RoundMeasured
from trimtab_controller.decider.policies.judgement import DrainBlocked
from trimtab_controller.decider.values.decision import Decision, Planned, Skip, describe, names_of
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, SkipReason
from trimtab_controller.decider.window.concerns import WINDOWS
from trimtab_controller.execution import guard
from trimtab_controller.execution.events import GuardActed, HandoverEnded, PaceChanged, RestoreEnded, RoundEnded
from trimtab_controller.execution.journal import Hold
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_controller.loop.health import Health
from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_controller.loop.status_builder import StatusBuilder, describe_end
from trimtab_controller.seen import CALM
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.names import AppId, HostId, Topics
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import MAX_REVOKED, SignatureStatus, Status
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)

REPEAT_LOG_S = 60.0
"""How often to repeat the log line of a decision that stays the same."""
SETTLED = WINDOWS + 2
"""So many windows in a row show whether a concern holds, also if a plan makes one or two of them incomparable."""
Reported = RestoreEnded | HandoverEnded | PaceChanged | GuardActed | RoundEnded
SHOWN_BY_EACH_WINDOW = frozenset({ConcernKind.WORKER_CRASHES, ConcernKind.DISRUPTION_BUDGET, ConcernKind.JOB_SUFFERS})


class Telemetry:
    """The telemetry of one term; it continues with decisions, rounds and concerns of the `previous` status."""

    def __init__(
        self,
        cluster: str,
        metrics: ControllerMetrics,
        *,
        acting: bool,
        previous: Status | None,
        health: Health | None = None,
    ) -> None:
        self._metrics = metrics
        self._health = health
        metrics.messages.read_from(Topics(cluster))
        self._acting = acting
        self._status_builder = StatusBuilder(cluster, acting=acting, previous=previous)
        self._logged_at = 0.0
        self._began_at: float | None = None
        self._hold: Hold | None = None
        self._lasting = LastingConcerns(previous)
        self._status_builder.kept_concerns = self._lasting.kept
        self._concerns: set[tuple[ConcernKind, AppId]] = set()
        self._full_links: tuple[HostId, ...] = ()
        self._waiting: dict[AppId, SkipReason] = {}
        self._see_concerns(self._lasting.kept)

    def hold(self, hold: Hold | None) -> None:
        """Report a hold, or its end (None)."""
        self._hold = hold
        self._metrics.on_hold.set(hold is not None)
        if hold is not None:
            log.error(
                "on hold: %s; nothing moves until an operator runs `trimtab resume --accept-journal`", hold.reason
            )

    def snapshot(self, snapshot: Snapshot, decider: Decider) -> None:
        """Report a window, as the decider evaluated it."""
        if self._health is not None:
            self._health.see_window(snapshot.end_ms / 1000.0)
        self._metrics.coverage.set(snapshot.coverage)
        self._metrics.observe(decider.known)
        self._metrics.keep_apps(decider.known.views)
        self._lasting.observe(snapshot, decider.known.concerns)
        self._status_builder.kept_concerns = self._lasting.kept
        self._see_concerns([*decider.known.concerns, *self._lasting.kept])

    def lags(self, lags_s: Mapping[AppId, float], restores: Mapping[AppId, int]) -> None:
        """Report how far each app is behind, and how many restores of its plan may run while that is limited."""
        self._metrics.handovers.see_lags(lags_s, restores)

    def full_links(self, hosts: tuple[HostId, ...]) -> None:
        """Log the hosts on which new standbys wait since the foreground fills their links, when they change."""
        if hosts and hosts != self._full_links:
            log.warning("new standbys wait: other traffic fills the links of %s", first_few(hosts))
        self._full_links = hosts

    def _see_concerns(self, concerns: Sequence[Concern]) -> None:
        """Log each concern when it begins and when it ends."""
        self._metrics.see_concerns(concerns)
        present = {(concern.kind, concern.app): concern for concern in concerns}
        for kind, app in sorted(self._concerns - present.keys()):
            log.info("%s of %s has ended", kind, app)
        for kind, app in sorted(present.keys() - self._concerns):
            log.warning("%s: %s: %s", kind, app, present[kind, app].detail)
        self._concerns = set(present)

    def answer(self, answer: Answer | NoAnswer) -> None:
        """Report the solver's answer."""
        if isinstance(answer, Answer):
            self._metrics.solver.observe(answer.solve_s)

    def drain_blocked(self, event: DrainBlocked) -> None:
        """Report a drain that cannot continue."""
        log.warning(
            "%s cannot be drained: %s cannot leave it: %s", event.worker, first_few(event.key_groups), event.obstacle
        )

    def decision(self, now: float, decision: Decision, execution: Execution) -> None:
        """Report a decision; `execution` is the state after it."""
        self._metrics.decisions.labels(*names_of(decision)).inc()
        if isinstance(decision, Skip) and decision.reason is SkipReason.STALE_SNAPSHOT:
            self._metrics.observe(WindowResult())
            self._metrics.handovers.see_lags({}, {})
        if isinstance(decision, Planned):
            self._metrics.lower_bound.labels(decision.plan.app).set(decision.plan.lower_bound)
            self._metrics.planned.labels(decision.plan.app).set(decision.plan.planned)
        text = self._told(decision, execution)
        new = self._status_builder.decided(now, decision, text)
        if new or now - self._logged_at >= REPEAT_LOG_S:
            self._logged_at = now
            log.info("%s", text)

    def others_wait(self, skips: Sequence[Skip]) -> None:
        """Count why further apps get no plan; log a reason that needs somebody when it begins."""
        waiting = {}
        for skip in skips:
            self._metrics.decisions.labels(*names_of(skip)).inc()
            if skip.app is not None and skip.reason not in CALM:
                waiting[skip.app] = skip.reason
                if self._waiting.get(skip.app) is not skip.reason:
                    log.info("%s", describe(skip))
        if skips:
            self._waiting = waiting

    def _told(self, decision: Decision, execution: Execution) -> str:
        text = describe(decision)
        if isinstance(decision, Skip):
            return text
        if not self._acting:
            return f"dry run, would do: {text}"
        return f"plan {execution.rounds[decision.plan.app].plan}: {text}" if isinstance(decision, Planned) else text

    def execution(self, execution: Execution) -> None:
        """Report the published state."""
        for seen in execution.rounds.values():
            self._status_builder.see_round(seen)
        self._metrics.handovers.see_rounds(execution.in_flight)
        self._metrics.generation.set(execution.generation)

    def executed(self, action: Reported) -> None:
        """Report what the execution has met; of hand-overs only failures are logged, since their round counts all."""
        metrics = self._metrics.handovers
        match action:
            case RestoreEnded(handover=handover, seconds=seconds):
                metrics.restored(handover, seconds)
            case HandoverEnded(handover=handover):
                metrics.ended(handover)
                if handover.phase is not HandoverPhase.DONE:
                    ends = f"{handover.source} -> {handover.target}"
                    told = (handover.id, len(handover.key_groups), ends, handover.phase, handover.detail)
                    log.warning("hand-over %s of %d key groups %s %s: %s", *told)
            case PaceChanged(app=app, before=before, after=after):
                metrics.see_pace(app, after)
                if after < before:
                    log.warning("%s: %s: %d hand-overs at a time, until now %d", app, _why(action), after, before)
            case GuardActed(stop=stop):
                log.warning("%s: %s", stop.app, guard.describe_stop(stop))
            case RoundEnded(round=row):
                metrics.round_ended(row)
                log.info("%s", describe_end(row))

    def round_measured(self, event: RoundMeasured) -> None:
        """Report the result of a round."""
        after = event.load_distance
        if after is not None:
            log.info("plan %s: load distance %.1f measured, %.1f predicted", event.plan, after, event.planned)
            self._metrics.measured.labels(event.app).set(after)
        if event.saving is not None and event.saving.measured_pp is not None:
            measured, planned = event.saving.measured_pp, event.saving.planned_pp
            log.info("plan %s: %.1f pp of load saved by collocation, %.1f predicted", event.plan, measured, planned)
        if event.incomparable is not None:
            log.info("plan %s: cannot be compared with its prediction: %s", event.plan, event.incomparable)
        if event.missed:
            log.warning("plan %s missed: %s", event.plan, first_few(event.missed))
            self._metrics.missed.inc()
        self._status_builder.see_measured(event.plan, after, event.incomparable, event.saving)

    def turn(self, now: float, decider: Decider, inbox: Inbox, *, solver_kills: int, stream_restarts: int) -> None:
        """Update the metrics that change without an event."""
        if self._began_at is None:
            self._began_at = now
        snapshot = decider.known.snapshot
        self._metrics.snapshot_age.set(now - (self._began_at if snapshot is None else snapshot.end_ms / 1000.0))
        self._metrics.messages.observe(inbox)
        self._metrics.solver_kills.follow(solver_kills)
        self._metrics.stream_restarts.follow(stream_restarts)

    def status(self, now: float, decider: Decider, execution: Execution, inbox: Inbox) -> Status:
        """The message to publish."""
        self._metrics.see_maintenance(in_maintenance(decider.intents))
        self._metrics.handovers.see_disruption(decider.budget.use(now, execution, app) for app in decider.known.views)
        status = self._status_builder.status(now, decider, execution, inbox.rejected, self._hold)
        return replace(status, signatures=signature_status(inbox), refused_hosts=inbox.refused_hosts)


def _why(event: PaceChanged) -> str:
    """Why fewer hand-overs of an app may be in flight."""
    if event.pause_s is not None:
        return f"a key group paused for {event.pause_s:.1f} s"
    who = "it" if event.worker is None else event.worker
    if event.lag_s is None:
        return f"{who}, which takes part in its plan, reports no whole windows any more"
    return f"{who} is {event.lag_s:.1f} s further behind than its plan found it"


class LastingConcerns:
    """The concerns in force, beginning with those of the `previous` status.

    They stay until enough windows in a row have shown whether they hold.  Most concerns need several windows in a row.
    A new leader has not seen these, and a gap in the windows begins the count anew.  Without this, a concern would be
    reported as ended then, and soon after as begun again.  Each window shows by itself whether a worker was given up,
    and the journal has what the guard has ended: these concerns end with the first window that does not show them.

    `kept` = those that the last window does not show, and that too few windows in a row have ruled out.
    """

    def __init__(self, previous: Status | None) -> None:
        known = {str(kind): kind for kind in ConcernKind}  # another version may have further ones
        self.kept: tuple[Concern, ...] = tuple(
            Concern(kind=known[row.kind], app=row.app, workers=(), detail=row.text)
            for row in (previous.concerns if previous else ())
            if row.kind in known
        )
        self._in_force: dict[tuple[ConcernKind, AppId], Concern] = {(each.kind, each.app): each for each in self.kept}
        self._end_ms = 0
        self._windows = 0

    def observe(self, snapshot: Snapshot, found: Sequence[Concern]) -> None:
        """Take a window, and the concerns that were found in it."""
        if snapshot.end_ms > self._end_ms:
            follows = snapshot.start_ms - self._end_ms <= snapshot.end_ms - snapshot.start_ms
            self._windows = self._windows + 1 if follows else 1
            self._end_ms = snapshot.end_ms
        shown = {(each.kind, each.app): each for each in found}
        settled = self._windows >= SETTLED
        unseen = {k: c for k, c in self._in_force.items() if k not in shown and c.kind not in SHOWN_BY_EACH_WINDOW}
        self.kept = () if settled else tuple(unseen.values())
        self._in_force = {**{(each.kind, each.app): each for each in self.kept}, **shown}


def signature_status(inbox: Inbox) -> SignatureStatus | None:
    """What is known of the hosts' signatures; None: nobody looks at them."""
    if inbox.checking is HostChecking.OFF:
        return None
    return SignatureStatus(
        checking=str(inbox.checking),
        enrolled=len(inbox.known_hosts.enrolled),
        unsigned={f"{topic}.{fault}": count for (topic, fault), count in inbox.unsigned.items()},
        doubted=inbox.doubted,
        revoked=inbox.known_hosts.revoked[:MAX_REVOKED],
    )
