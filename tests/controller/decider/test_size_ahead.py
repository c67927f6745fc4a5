"""The size of an app when its demand is forecast."""

from dataclasses import replace

from tests.controller.decider.sized_apps import ACT, facts, verdict, word
from trimtab_controller.decider.memory.forecasts import Ahead, Peak
from trimtab_controller.decider.policies.verdict import judge
from trimtab_controller.decider.values.decision import SizeDirection


def ahead(soon: float | None = None, later: float | None = None) -> Ahead:
    made = [
        None if cores is None else Peak(cores=cores, in_s=120.0, error=0.1, last_error=0.5) for cores in (soon, later)
    ]
    return Ahead(soon=made[0], later=made[1])


def test_a_peak_that_is_forecast_is_met_ahead() -> None:
    found = verdict(facts(4, 2.0, ahead=ahead(soon=4.9)))
    assert (found.direction, found.wanted, found.due) == (SizeDirection.OUT, 7, True), "4.9 / 0.7"
    said = "demand above 85% by the forecast of 4.90 cores in 2 min (mean error 0.10 cores, of the last value 0.50)"
    assert said in found.detail
    assert not judge(facts(4, 2.0, ahead=ahead(soon=4.9)), ACT)[0].due, "the delay holds for forecasts too"


def test_a_forecast_below_the_demand_changes_nothing() -> None:
    seen = facts(4, 3.6)
    assert verdict(replace(seen, ahead=ahead(soon=1.0, later=1.0))) == verdict(seen)
    assert verdict(facts(4, 2.4, ahead=ahead(soon=3.3))).direction is SizeDirection.STAY


def test_a_forecast_can_ask_for_more_than_the_demand_does() -> None:
    found = verdict(facts(4, 3.6, ahead=ahead(soon=5.5)))
    assert found.wanted == 8
    assert "forecast" not in found.detail, "it would be more workers without it, too"


def test_nothing_piles_up_before_a_peak_that_is_only_forecast() -> None:
    slow = facts(10, 5.0, restart_s=180.0, catch_up_s=300.0, ahead=ahead(soon=12.0))
    assert verdict(slow).wanted == 18, "12 / 0.7"


def test_no_worker_leaves_before_a_peak_that_is_forecast() -> None:
    calm = facts(4, 1.0)
    assert verdict(calm).wanted == 2
    kept = verdict(replace(calm, ahead=ahead(later=2.8)))
    assert (kept.wanted, kept.due) == (4, False)
    assert kept.detail.endswith(
        "demand below 40%, but a smaller cluster would be above the target at the forecast of 2.80 cores in 2 min "
        "(mean error 0.10 cores, of the last value 0.50)"
    )
    assert verdict(replace(calm, ahead=ahead(later=2.0))).wanted == 3, "as many leave as the peak allows"


def test_what_stands_against_a_smaller_cluster_anyway_is_not_put_down_to_the_forecast() -> None:
    few = replace(ACT, min_workers=4)
    assert verdict(facts(4, 1.0, ahead=ahead(later=2.8)), few).detail.endswith("but min_workers is reached")


def test_an_operators_word_goes_before_a_forecast() -> None:
    found = verdict(facts(4, 2.0, ahead=ahead(soon=9.0)), word=word(4))
    assert (found.direction, found.wanted) == (SizeDirection.STAY, 4)
