"""The reasons to do nothing, with the names that status, metrics and runbooks use."""

from dataclasses import dataclass
from enum import StrEnum

from trimtab_protocol.messages.names import AppId, WorkerId


class SkipReason(StrEnum):
    """Why the controller does nothing."""

    JOURNAL = "journal"
    PAUSED = "paused"
    PLAN_IN_FLIGHT = "plan_in_flight"
    SCALING_IN_FLIGHT = "scaling_in_flight"
    DRY_RUN = "dry_run"
    AWAITING_APPROVAL = "awaiting_approval"
    REJECTED = "rejected"
    DISRUPTION_BUDGET = "disruption_budget"
    PLANS_FROZEN = "plans_frozen"
    TOO_SOON = "too_soon"
    INSIDE_BAND = "inside_band"
    INSIDE_NOISE = "inside_noise"
    ALL_DRAINING = "all_draining"
    NOTHING_BETTER = "nothing_better"
    SOLVER_FAILED = "solver_failed"
    PLANS_MISS = "plans_miss"
    JOB_SUFFERS = "job_suffers"
    NO_SNAPSHOT = "no_snapshot"
    STALE_SNAPSHOT = "stale_snapshot"
    LOW_COVERAGE = "low_coverage"
    HOSTS_LOST = "hosts_lost"
    NO_WORKERS = "no_workers"
    WORKER_MISSING = "worker_missing"
    WORKER_NOT_RUNNING = "worker_not_running"
    WORKER_NOT_STEERING = "worker_not_steering"
    WORKER_INCOMPLETE = "worker_incomplete"
    WORKER_TWICE = "worker_twice"
    OPERATORS_DIFFER = "operators_differ"
    APP_TOO_LARGE = "app_too_large"
    TOO_MANY_APPS = "too_many_apps"
    KEY_GROUPS_MISSING = "key_groups_missing"
    OWNER_UNKNOWN = "owner_unknown"
    LOAD_UNKNOWN = "load_unknown"
    WINDOW_TOO_EARLY = "window_too_early"
    TOO_FEW_WINDOWS = "too_few_windows"


NOT_READY = frozenset(
    {
        SkipReason.NO_SNAPSHOT,
        SkipReason.STALE_SNAPSHOT,
        SkipReason.LOW_COVERAGE,
        SkipReason.HOSTS_LOST,
        SkipReason.NO_WORKERS,
        SkipReason.WORKER_MISSING,
        SkipReason.WORKER_NOT_RUNNING,
        SkipReason.WORKER_NOT_STEERING,
        SkipReason.WORKER_INCOMPLETE,
        SkipReason.WORKER_TWICE,
        SkipReason.OPERATORS_DIFFER,
        SkipReason.APP_TOO_LARGE,
        SkipReason.KEY_GROUPS_MISSING,
        SkipReason.OWNER_UNKNOWN,
        SkipReason.LOAD_UNKNOWN,
        SkipReason.WINDOW_TOO_EARLY,
        SkipReason.TOO_FEW_WINDOWS,
    }
)
"""Too little is known about the cluster or an app to plan for it.  Only these are reasons of a `NotReady`."""


OF_BALANCE = frozenset(
    {SkipReason.TOO_SOON, SkipReason.INSIDE_BAND, SkipReason.INSIDE_NOISE, SkipReason.NOTHING_BETTER}
)
"""The loads of an app need no plan, or no plan yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """Too little is known to plan for `app`; None = for any app of the cluster."""

    reason: SkipReason
    detail: str
    app: AppId | None = None

    def __post_init__(self) -> None:
        if self.reason not in NOT_READY:
            raise ValueError(f"{self.reason} says nothing about what is missing")


class ConcernKind(StrEnum):
    """Kinds of concerns.  Each is an alert and has a runbook."""

    OVER_CAPACITY = "over_capacity"
    BACKLOG_GROWS = "backlog_grows"
    BLOCKED = "blocked"
    HOST_FULL = "host_full"
    PLANS_MISS = "plans_miss"
    JOB_SUFFERS = "job_suffers"
    WORKER_CRASHES = "worker_crashes"
    DRAINED_RUNS = "drained_runs"
    WORKER_TWICE = "worker_twice"
    LOSS_OVERLOADS = "loss_overloads"
    WITHOUT_STANDBY = "without_standby"
    ORPHANS_CROWD = "orphans_crowd"
    TOO_FEW_WORKERS = "too_few_workers"
    SCALING_IN_VAIN = "scaling_in_vain"
    RULES_CONFLICT = "rules_conflict"
    DISRUPTION_BUDGET = "disruption_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A problem of an app.  `workers` are those it concerns; empty when it concerns none in particular."""

    kind: ConcernKind
    app: AppId
    workers: tuple[WorkerId, ...]
    detail: str
