"""What the controller's metrics show of apps that come and go, of counts that others keep, before the first window."""

import math

import pytest

from trimtab_controller.chronicle import Chronicle
from trimtab_controller.decider.decide import Settings, not_ready
from trimtab_controller.decider.evaluate import Evaluation
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.observe import Requirements
from trimtab_controller.decider.view import Lack, NotReady
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.inbox import Inbox
from trimtab_controller.metrics import Metrics
from trimtab_models.messages.decode import Fault
from trimtab_models.messages.names import AppId, Topics


def evaluation(load_distance: float | None, collocation: float | None) -> Evaluation:
    return Evaluation(
        node_loads={}, mean_load=None, load_distance=load_distance, noise=None, collocation=collocation
    )  # fmt: skip


def test_an_app_that_is_gone_or_unknown_shows_no_figure_of_before() -> None:
    metrics = Metrics()
    metrics.see_evaluations({AppId(f"a{number}"): evaluation(5.0, 0.5) for number in range(100)})
    metrics.see_evaluations({AppId("a0"): evaluation(4.0, None), AppId("a1"): evaluation(None, 0.25)})
    metrics.see_missing_standbys({AppId("a0"): 2, AppId("a1"): 1})
    metrics.see_missing_standbys({AppId("a1"): 0})

    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    found = {(sample.name, sample.labels["app"]): sample.value for sample in samples if "app" in sample.labels}
    assert found == {
        ("trimtab_controller_load_distance_pp", "a0"): 4.0,
        ("trimtab_controller_collocation_ratio", "a1"): 0.25,
        ("trimtab_controller_key_groups_without_standby", "a1"): 0.0,
    }


def test_counts_that_others_keep_are_counters() -> None:
    metrics = Metrics()
    key = {"topic": "t", "fault": Fault.MALFORMED}
    for count in (5, 7, 2):  # the last: it was started again
        metrics.see_rejected({("t", Fault.MALFORMED): count})
        assert metrics.registry.get_sample_value("trimtab_controller_rejected_messages_total", key) == count


def test_while_no_window_comes_the_age_grows_and_the_coverage_is_unknown() -> None:
    metrics = Metrics()
    chronicle = Chronicle("c", metrics, acting=True, previous=None)
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    ages = []
    for now in (1000.0, 1090.0):
        chronicle.turn(now, decider, Inbox(Topics("c")), solver_kills=0, stream_restarts=0)
        ages.append(metrics.registry.get_sample_value("trimtab_controller_snapshot_age_seconds"))
    assert ages == [0.0, 90.0]
    assert math.isnan(metrics.registry.get_sample_value("trimtab_controller_coverage_ratio") or 0.0)


def test_a_scrape_at_any_moment_sees_the_apps_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    metrics.see_evaluations({AppId("a0"): evaluation(5.0, 0.5)})
    seen = []
    labels = metrics.load_distance.labels

    def scraped(app: str) -> object:
        seen.append(metrics.registry.get_sample_value("trimtab_controller_load_distance_pp", {"app": "a0"}))
        return labels(app)

    monkeypatch.setattr(metrics.load_distance, "labels", scraped)
    metrics.see_evaluations({AppId("a0"): evaluation(4.0, 0.5), AppId("a1"): evaluation(3.0, 0.5)})
    assert seen == [5.0, 4.0]


def test_what_an_app_had_is_unknown_when_windows_stay_away() -> None:
    metrics = Metrics()
    chronicle = Chronicle("c", metrics, acting=True, previous=None)
    metrics.see_evaluations({AppId("a0"): evaluation(5.0, 0.5)})
    metrics.see_missing_standbys({AppId("a0"): 2})
    stale = not_ready(NotReady(lack=Lack.STALE_SNAPSHOT, detail="the last window ended 90 s ago"))
    chronicle.decision(1000.0, stale, Execution(generation=1))
    for name in ("load_distance_pp", "key_groups_without_standby"):
        assert metrics.registry.get_sample_value(f"trimtab_controller_{name}", {"app": "a0"}) is None
