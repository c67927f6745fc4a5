"""[anomalies]: one table of what becomes of each kind of trouble, as settings of other sections."""

from typing import Any

import pytest

from trimtab_controller.configuration import decode
from trimtab_controller.decider.forecast.settings import ForecastMode
from trimtab_controller.decider.operators.anomalies import Anomalies, Word, with_anomalies
from trimtab_controller.decider.operators.modes import PlanMode
from trimtab_controller.decider.size.settings import Mode
from trimtab_controller.execution.guarding import GuardMode
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import AppId

LEAST: dict[str, Any] = {
    "controller": {"cluster": "c"},
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "stream": {"checkpoint_dir": "/tmp/c"},
}
ORDERS, OTHER = AppId("orders"), AppId("other")


def test_the_presets_as_words_are_the_presets() -> None:
    words = {"uneven_load": "fix", "wrong_size": "check", "daily_peak": "ignore", "suffering_job": "fix"}
    assert decode({**LEAST, "anomalies": words}) == decode(LEAST)
    assert decode(LEAST).anomalies.text == (
        "mends uneven load, plans under which a job suffers; only reports too few or too many workers; "
        "leaves alone daily peaks ahead"
    )


@pytest.mark.parametrize(
    ("word", "plans", "scaling", "forecast", "guard"),
    [
        ("fix", PlanMode.ACT, Mode.ACT, ForecastMode.ACT, GuardMode.ROLL_BACK),
        ("check", PlanMode.APPROVE, Mode.ADVISE, ForecastMode.ADVISE, GuardMode.CHECK),
        ("ignore", PlanMode.ACT, Mode.OFF, ForecastMode.OFF, GuardMode.OFF),
    ],
)
def test_each_word_is_a_setting_of_the_section_that_mends_it(
    word: str, plans: PlanMode, scaling: Mode, forecast: ForecastMode, guard: GuardMode
) -> None:
    kinds = ("uneven_load", "wrong_size", "daily_peak", "suffering_job")
    found = decode({**LEAST, "anomalies": dict.fromkeys(kinds, word)})
    assert found.plans.mode is plans
    assert found.scaling.mode is scaling
    assert found.forecast.mode is forecast
    assert found.execution.guard.mode is guard
    assert found.anomalies == Anomalies(**dict.fromkeys(kinds, Word(word)))
    closed = found.plans.times.closed(0.0)
    assert (closed is not None) == (word == "ignore"), "no plan for balance ever begins; all others do"


def test_apps_may_have_words_of_their_own_beside_what_their_sections_say() -> None:
    document = {
        **LEAST,
        "anomalies": {"wrong_size": "ignore", "apps": {"orders": {"uneven_load": "check", "wrong_size": "fix"}}},
        "plans": {"apps": {"orders": "approve", "other": "dry-run"}},
        "scaling": {"max_workers": 8, "apps": {"orders": {"min_workers": 2}}},
    }
    found = decode(document)
    assert (found.plans.of(ORDERS), found.plans.of(OTHER)) == (PlanMode.APPROVE, PlanMode.DRY_RUN)
    orders = found.scaling.of(ORDERS)
    assert (orders.mode, orders.min_workers, orders.max_workers) == (Mode.ACT, 2, 8)
    assert found.scaling.of(OTHER).mode is Mode.OFF
    assert document["plans"]["apps"]["orders"] == "approve", "the document is left as it was"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"anomalies": {"wrong_size": "check"}, "scaling": {"mode": "act"}},
            "anomalies.wrong_size: found 'check', expected what scaling.mode = 'act' means, or this key alone",
        ),
        (
            {"anomalies": {"apps": {"orders": {"uneven_load": "fix"}}}, "plans": {"apps": {"orders": "dry-run"}}},
            "anomalies.apps.orders.uneven_load: found 'fix', expected what plans.apps.orders.mode = 'dry-run' means",
        ),
        ({"anomalies": {"wrong_size": "act"}}, "anomalies.wrong_size: found 'act', expected one of fix, check, ignore"),
        ({"anomalies": {"crash": "fix"}}, "anomalies.crash"),
        ({"anomalies": {"apps": {"orders": {"daily_peak": "fix"}}}}, "anomalies.apps.orders.daily_peak"),
        ({"anomalies": "fix"}, ", expected a table"),
        ({"anomalies": {"uneven_load": "fix"}, "plans": 4}, "plans: found"),
    ],
)
def test_what_contradicts_itself_or_is_unknown_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(BadMessage) as refused:
        decode({**LEAST, **changes})
    assert told in str(refused.value)


def test_a_word_that_its_section_repeats_is_no_contradiction() -> None:
    found = with_anomalies({"anomalies": {"suffering_job": "fix"}, "guard": {"mode": "stop"}})
    assert found == ({"guard": {"mode": "stop"}}, [])


def test_what_other_sections_say_has_words_too() -> None:
    found = decode({**LEAST, "plans": {"mode": "dry-run"}, "guard": {"mode": "stop"}, "scaling": {"mode": "off"}})
    assert (found.anomalies.uneven_load, found.anomalies.suffering_job) == (Word.CHECK, Word.FIX)
    assert found.anomalies.wrong_size is Word.IGNORE
