"""What the controller's metrics show of apps that come and go, of counts that others keep, before the first window."""

import math
from dataclasses import replace
from typing import get_args

import pytest

from tests.controller.decider.decider_situations import APP, W0, kg
from tests.controller.decider.deciders import window
from tests.controller.execution.execution_transcripts import BEGUN, PREPARING, T0
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.evaluate import Evaluation
from trimtab_controller.decider.memory.forecasts import ForecastReport
from trimtab_controller.decider.memory.headroom import NO_CAPACITY
from trimtab_controller.decider.memory.hosts import Host, HostsSeen
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.memory.predictions import MispredictedWorker, RoundMeasured
from trimtab_controller.decider.memory.redundancy import RedundancyGap
from trimtab_controller.decider.memory.unknown_load import Gaps
from trimtab_controller.decider.values.decision import (
    ALL_NAMES,
    Adopted,
    Decision,
    Forgotten,
    IntentRefused,
    MaintenanceEnded,
    PlanEnded,
    Planned,
    ProposalEnded,
    ProposalOutcome,
    Proposed,
    Resized,
    Restarted,
    Scaled,
    SizeVerdict,
    Skip,
    StandbysPlaced,
    names_of,
    not_ready,
)
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, NotReady, SkipReason
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.concerns import ClusterUse, Growth, WorkerUse
from trimtab_controller.decider.window.view import FixedWorker
from trimtab_controller.execution.events import RestoreEnded, RoundEnded
from trimtab_controller.execution.state import Execution, Recovery
from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_controller.loop.telemetry import Telemetry
from trimtab_controller.plan import PlanReason
from trimtab_models.forecast import Accuracy, Error
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import AppId, HostId, Topics, WorkerId
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow


def evaluation(load_distance: float | None, collocation: float | None) -> Evaluation:
    return Evaluation(
        worker_loads={}, mean_load=None, load_distance=load_distance, noise=None, collocation=collocation
    )  # fmt: skip


def served(metrics: ControllerMetrics, *names: str) -> dict[tuple[str, ...], float]:
    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    return {
        (sample.name.removeprefix("trimtab_controller_"), *sample.labels.values()): sample.value
        for sample in samples
        if sample.name.removeprefix("trimtab_controller_") in names
    }


def test_what_is_known_of_a_window_is_shown_and_no_longer_when_it_is_unknown() -> None:
    metrics, snapshot = ControllerMetrics(), window({kg(0): W0}).snapshot
    names = {each.name for each in metrics.registry.collect()}
    use = WorkerUse(app=APP, used_pct=110.0, load_pct=None, demand_pct=130.0, backlog=Growth(now=7, before=7))
    model, last = Error(mae=0.1, smape=3.0), Error(mae=0.4, smape=12.0)
    tested = Accuracy(horizon=2, tested=864, scored=800, model=model, last=last, seasonal=None)
    fixed = FixedWorker(id=WorkerId("w1"), reason=SkipReason.WORKER_MISSING, detail="")
    known = WindowResult(
        snapshot=replace(
            snapshot, hosts=(replace(snapshot.hosts[0], cpu=0.5, cores=2.0), replace(snapshot.hosts[1], cpu=None))
        ),
        evaluations={APP: evaluation(4.0, None), AppId("a1"): evaluation(None, 0.25)},
        missing_standbys={AppId("a1"): 0},
        redundancy={
            APP: RedundancyGap(began_at=10.0, seen_at=40.0, lacking=3),
            AppId("a1"): RedundancyGap(began_at=10.0, seen_at=40.0, lacking=0),
        },
        gaps={AppId("a1"): Gaps(fixed=(fixed,), stale=2, share=0.03)},
        sizes={APP: SizeVerdict(app=APP, detail="", workers=3, wanted=4, desired=4, asked=2.7, capacity=3.0)},
        forecasts={
            APP: ForecastReport(known_s=6e5, period_s=86_400.0, at=1.0, peak=5.2, near=tested, far=tested, used=True)
        },
        use=ClusterUse(workers={W0: use}, backlogs={APP: Growth(now=7, before=7)}),
    )

    def shown() -> dict[tuple[str, ...], float]:
        return {
            key: value
            for key, value in served(metrics, *(name.removeprefix("trimtab_controller_") for name in names)).items()
            if len(key) > 1 and {"app", "a1", "h0", "h1"}.intersection(key)
        }

    metrics.observe(replace(known, evaluations={AppId(f"a{n}"): evaluation(5.0, 0.5) for n in range(100)}))
    metrics.observe(known)
    assert shown() == {
        ("load_distance_pp", "app"): 4.0,
        ("collocation_ratio", "a1"): 0.25,
        ("key_groups_without_standby", "a1"): 0.0,
        ("without_redundancy_seconds", "app"): 30.0,
        ("without_redundancy_seconds", "a1"): 0.0,
        ("fixed_workers", "a1"): 1.0,
        ("stale_key_groups", "a1"): 2.0,
        ("unknown_load_ratio", "a1"): 0.03,
        ("desired_workers", "app"): 4.0,
        ("demand_cores", "app"): 2.7,
        ("capacity_cores", "app"): 3.0,
        ("forecast_cores", "app"): 5.2,
        ("forecast_used", "app"): 1.0,
        ("forecast_error_cores", "app", "forecast"): 0.1,
        ("forecast_error_cores", "app", "last_value"): 0.4,
        ("worker_demand_ratio", "app", "w0"): 1.3,
        ("backlog_tuples", "app"): 7.0,
        ("host_used_ratio", "h0"): 0.25,
    }
    metrics.observe(
        WindowResult(
            sizes={APP: SizeVerdict(app=APP, detail="unknown")},
            forecasts={APP: ForecastReport(known_s=100.0, why="too little")},
        )
    )
    assert shown() == {}


def test_restores_show_what_was_planned_and_measured_once_a_round_has_ended() -> None:
    metrics = ControllerMetrics()
    telemetry = Telemetry("c", metrics, acting=True, previous=None)
    telemetry.executed(RestoreEnded(handover=PREPARING, seconds=1.5))
    planned = Recovery(slots={}, began_at=T0, planned_s=3.0, bound_s=2.0)
    telemetry.executed(RoundEnded(round=replace(BEGUN, ended_at=T0 + 6, recovery=planned)))
    get = metrics.registry.get_sample_value
    assert get("trimtab_controller_restore_seconds_sum", {"copy": "no"}) == 1.5
    assert get("trimtab_controller_recovery_seconds", {"app": BEGUN.app}) is None, "nothing was warm"

    telemetry.executed(RoundEnded(round=replace(BEGUN, ended_at=T0 + 6, recovery=replace(planned, warm_at=T0 + 4))))
    names = ("recovery_seconds", "recovery_planned_seconds", "recovery_bound_seconds")
    assert [get(f"trimtab_controller_{name}", {"app": BEGUN.app}) for name in names] == [4.0, 3.0, 2.0]


def test_counts_that_others_keep_are_counters() -> None:
    metrics = ControllerMetrics()
    key, inbox = {"topic": "t", "fault": Fault.MALFORMED}, Inbox(Topics("c"))
    for count in (5, 7, 2):  # the last: it was started again
        inbox.rejected["t", Fault.MALFORMED] = count
        metrics.messages.observe(inbox)
        assert metrics.registry.get_sample_value("trimtab_controller_rejected_messages_total", key) == count


def test_while_no_window_comes_the_age_grows_and_the_coverage_is_unknown() -> None:
    metrics = ControllerMetrics()
    telemetry = Telemetry("c", metrics, acting=True, previous=None)
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    ages = []
    for now in (1000.0, 1090.0):
        telemetry.turn(now, decider, Inbox(Topics("c")), solver_kills=0, stream_restarts=0)
        ages.append(metrics.registry.get_sample_value("trimtab_controller_snapshot_age_seconds"))
    assert ages == [0.0, 90.0]
    assert math.isnan(metrics.registry.get_sample_value("trimtab_controller_coverage_ratio") or 0.0)


def test_a_scrape_at_any_moment_sees_the_apps_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ControllerMetrics()
    metrics.observe(WindowResult(evaluations={AppId("a0"): evaluation(5.0, 0.5)}))
    seen = []
    gauge = next(gauge for shown, gauge in metrics._known if shown.name == "load_distance_pp")
    labels = gauge.labels

    def scraped(app: str) -> object:
        seen.append(metrics.registry.get_sample_value("trimtab_controller_load_distance_pp", {"app": "a0"}))
        return labels(app)

    monkeypatch.setattr(gauge, "labels", scraped)
    metrics.observe(WindowResult(evaluations={AppId("a0"): evaluation(4.0, 0.5), AppId("a1"): evaluation(3.0, 0.5)}))
    assert seen == [5.0, 4.0]


def test_what_an_app_had_is_unknown_when_windows_stay_away() -> None:
    metrics = ControllerMetrics()
    telemetry = Telemetry("c", metrics, acting=True, previous=None)
    metrics.observe(
        WindowResult(
            evaluations={AppId("a0"): evaluation(5.0, 0.5)},
            missing_standbys={AppId("a0"): 2},
            gaps={AppId("a0"): Gaps(stale=2)},
        )
    )
    telemetry.lags({AppId("a0"): 3.0}, {AppId("a0"): 2})
    assert metrics.registry.get_sample_value("trimtab_controller_restores_allowed", {"app": "a0"}) == 2
    stale = not_ready(NotReady(reason=SkipReason.STALE_SNAPSHOT, detail="the last window ended 90 s ago"))
    telemetry.decision(1000.0, stale, Execution(generation=1))
    gone = ("load_distance_pp", "key_groups_without_standby", "stale_key_groups", "lag_seconds", "restores_allowed")
    for name in gone:
        assert metrics.registry.get_sample_value(f"trimtab_controller_{name}", {"app": "a0"}) is None


def test_a_concern_is_said_once_when_it_begins_and_ends_and_is_1_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    metrics, app = ControllerMetrics(), AppId("a")
    telemetry = Telemetry("c", metrics, acting=True, previous=None)
    concern = Concern(kind=ConcernKind.BACKLOG_GROWS, app=app, workers=(), detail="9 inputs wait")
    with caplog.at_level("INFO"):
        for concerns in ((concern,), (concern,), ()):
            telemetry._see_concerns(concerns)
            assert served(metrics, "concern").get(("concern", "a", "backlog_grows")) == (1.0 if concerns else None)
    assert [record.getMessage() for record in caplog.records] == [
        "backlog_grows: a: 9 inputs wait",
        "backlog_grows of a has ended",
    ]


def test_a_round_that_missed_is_counted_and_one_that_cannot_be_compared_is_no_figure() -> None:
    metrics = ControllerMetrics()
    telemetry = Telemetry("c", metrics, acting=True, previous=None)
    wrong = MispredictedWorker(worker=WorkerId("w1"), planned=20.0, measured=0.0)

    telemetry.round_measured(
        RoundMeasured(plan="1.2", app=APP, planned=2.0, load_distance=None, incomparable="w2 joined")
    )
    assert served(metrics, "measured_load_distance_pp") == {}
    telemetry.round_measured(RoundMeasured(plan="1.2", app=APP, planned=2.0, load_distance=9.0, missed=(wrong,)))
    assert served(metrics, "measured_load_distance_pp", "plans_missed_total") == {
        ("measured_load_distance_pp", "app"): 9.0,
        ("plans_missed_total",): 1.0,
    }


def test_workers_and_hosts_have_a_level() -> None:
    app = AppId("a")
    pcts = {"w0": (10.0, None), "w1": (10.0, 79.0), "w2": (95.0, 40.0), "w3": (None, 81.0), "w4": (None, None)}
    use = ClusterUse(
        workers={
            WorkerId(name): WorkerUse(app=app, used_pct=used, load_pct=None, demand_pct=asked)
            for name, (used, asked) in pcts.items()
        }
    )
    window = HostWindow(host=HostId("h0"), covered_s=10.0, cpu=1.0, cores=4.0, basis=Basis.CONFIG)
    full = replace(window, host=HostId("h1"), memory_bytes=90, memory_limit_bytes=100)
    unknown = replace(window, host=HostId("h2"), cores=None)
    hosts = {
        row.host: Host(id=row.host, window=row, others=0.0, speed=1.0, asked=1.0) for row in (window, full, unknown)
    }
    known = WindowResult(use=use, capacity=replace(NO_CAPACITY, seen=HostsSeen(hosts=hosts)))
    assert {name: level.value for name, level in known.worker_levels.items()} == {
        "w0": "light", "w1": "moderate", "w2": "heavy", "w3": "heavy",
    }  # fmt: skip
    assert {name: level.value for name, level in known.host_levels.items()} == {"h0": "light", "h1": "heavy"}


def test_counters_of_what_alerts_watch_stand_at_zero_before_the_first_event() -> None:
    metrics = ControllerMetrics()
    Telemetry("c", metrics, acting=True, previous=None)
    rejected = served(metrics, "rejected_messages_total")
    assert rejected["rejected_messages_total", "trimtab.c.reports", "flooding"] == 0.0
    assert len(rejected) == 7 * len(Fault)
    decisions = served(metrics, "decisions_total")
    assert {row[2] for row in decisions if row[1] == "skip"} == set(SkipReason)
    assert set(decisions.values()) == {0.0}
    phases = {("handovers_total", phase): 0.0 for phase in ("done", "failed", "unresolved")}
    assert served(metrics, "handovers_total") == phases


def test_every_decision_is_counted_under_a_name_that_is_shown_from_the_start() -> None:
    w0, nothing = WorkerId("w0"), {"detail": ""}
    decisions = (
        *(Skip(reason=reason, **nothing) for reason in SkipReason),
        *(
            Scaled(kind=kind, worker=w0, host=HostId("h0"), app=app, **nothing)
            for kind in (CommandKind.START, CommandKind.STOP)
            for app in (APP, None)
        ),
        *(ProposalEnded(app=APP, plan="1.2", outcome=each, **nothing) for each in ProposalOutcome),
        *(IntentRefused(what=what, answered=(), **nothing) for what in ("move", "undo", "approve", "reject", "forget")),
        Adopted(app=APP, owners={}, **nothing),
        StandbysPlaced(app=APP, rows={}, **nothing),
        PlanEnded(app=APP, reason="", lost=frozenset({w0})),
        Restarted(app=APP, answered=(), **nothing),
        MaintenanceEnded(answered=(), **nothing),
        *(Resized(app=APP, **nothing, **what) for what in ({"drain": (w0,)}, {"short": 1}, {"keep": (w0,)})),
        *(Forgotten(what="", answered=(), **nothing, **what) for what in ({"app": APP}, {"worker": w0})),
    )
    plans = {("plan", str(reason)) for reason in PlanReason}
    plans |= {("propose", str(reason)) for reason in PlanReason if reason.may_wait}
    assert sorted({names_of(each) for each in decisions} | plans) == sorted(ALL_NAMES)
    assert {type(each) for each in decisions} | {Planned, Proposed} == set(get_args(Decision))


def test_nothing_is_shown_any_longer_of_an_app_that_is_gone() -> None:
    """One host can invent apps, and each had these for ever."""
    metrics, other = ControllerMetrics(), AppId("other")
    metrics.keep_apps({APP, other})
    for app in (APP, other):
        for gauge in (metrics.lower_bound, metrics.planned, metrics.measured):
            gauge.labels(app).set(1.0)
        metrics.handovers.see_pace(app, 2)
    metrics.keep_apps({APP})
    shown = {sample.labels["app"] for family in metrics.registry.collect() for sample in family.samples
             if "app" in sample.labels}  # fmt: skip
    assert shown == {APP}
