"""Forecasts beside the loop: what a successor recalls, and how they are told."""

import pytest

from tests.controller.loop.inbox_records import TOPICS
from tests.kafka_record import Record
from tests.narrow import not_none
from trimtab_controller.decider.memory.forecasts import (
    DAY,
    ForecastReport,
    encode_demand,
    key_of,
)
from trimtab_controller.decider.values.scaling import Mode
from trimtab_controller.decider.values.settings import ForecastSettings
from trimtab_controller.loop.recovery import recalled_demand
from trimtab_controller.loop.status_builder import forecast_status
from trimtab_models.forecast import Accuracy, Error
from trimtab_protocol.messages.names import AppId

APP = AppId("orders")
ADVISE = ForecastSettings(mode=Mode.ADVISE)


def demand(day: int, value: bytes | None) -> Record:
    """A record of the journal."""
    return Record(TOPICS.journal, value, key_of(APP, day))


def test_a_successor_recalls_what_it_can_read(caplog: pytest.LogCaptureFixture) -> None:
    messages = [
        demand(20_000, encode_demand(APP, 20_000, [1.0, None, 2.0])),
        demand(20_001, b"broken"),
        demand(20_002, encode_demand(APP, 20_002, [5.0])),
        demand(20_003, None),
        Record(TOPICS.journal, b"{}", b"execution"),
        Record(TOPICS.journal, b"a record that an earlier build has left", b"pattern/orders/7"),
    ]
    found = recalled_demand(messages, ADVISE).series[APP]
    known = [(place, value) for place, value in enumerate(found.values) if value == value]
    assert (found.first, known) == (20_000 * DAY, [(0, 1.0), (2, 2.0), (2 * DAY, 5.0)])
    assert [each.getMessage().partition(",")[0] for each in caplog.records] == [
        "cannot read the record b'demand/orders/20001' of demand"
    ], "and says what it cannot read; what is not demand is none of its business"
    assert recalled_demand(messages, ForecastSettings()).series == {}


def told(*, better: bool, used: bool = False, mode: Mode = Mode.ACT) -> ForecastReport:
    model, last = Error(mae=0.1 if better else 0.5, smape=3.0), Error(mae=0.5, smape=12.0)
    tested = Accuracy(horizon=2, tested=100, scored=90, model=model, last=last, seasonal=last)
    return ForecastReport(
        known_s=6e5, period_s=86_400.0, at=1.0, peak=5.2, near=tested, far=tested, used=used, mode=mode,
    )  # fmt: skip


def test_a_forecast_is_told_with_its_error_beside_that_of_the_last_value() -> None:
    found = not_none(forecast_status(told(better=True, used=True)))
    errors = "mean error 0.10 cores (3 %), of the last value 0.50 (12 %)"
    assert found.text == f"5.20 cores at most, 10 min ahead; {errors}"
    advised = not_none(forecast_status(told(better=True, mode=Mode.ADVISE)))
    assert advised.text == f"{found.text} (advise: nothing follows it)"
    worse = not_none(forecast_status(told(better=False)))
    assert worse.text.endswith("of the last value 0.50 (12 %), so it is not used")


def test_why_there_is_no_forecast_is_told() -> None:
    none = not_none(forecast_status(ForecastReport(known_s=3600.0, why="1.0 of 73.1 h of history")))
    assert (none.text, none.used, none.peak_cores) == ("none: 1.0 of 73.1 h of history", False, None)
    assert forecast_status(None) is None
