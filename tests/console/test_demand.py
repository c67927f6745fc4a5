"""The demand of an app over time, as the journal and the console know it, and what is forecast."""

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from tests.console.fleet import APP, NOW, TOPICS, Fleet, Record, source_of, status_record, watching
from trimtab_console.demand import KEPT_DAYS, MAX_APPS, OFF, Days, demand_of, noted
from trimtab_console.server import application
from trimtab_controller.decider.memory.forecasts import DAY, STEP_S, DemandRecord, key_of
from trimtab_protocol.console_documents import Point
from trimtab_protocol.messages.names import AppId

FLEET = Fleet()
(TOLD,) = FLEET.status().apps
DAY_S = DAY * STEP_S
MONDAY = 20_000
AT = MONDAY * float(DAY_S)
"""Midnight."""


def record(day: int, *values: float | None, app: AppId = APP) -> DemandRecord:
    return DemandRecord(app=app, day=day, values=values)


def point(at: float, cores: float | None) -> Point:
    return Point(at=at, load_distance=None, bound=None, mean_load=None, demand_cores=cores, capacity_cores=4.0)


def test_what_is_recorded_comes_before_what_the_console_has_seen_since() -> None:
    days = {MONDAY - 1: record(MONDAY - 1, *[1.0] * DAY), MONDAY: record(MONDAY, 2.0, None)}
    seen = [point(AT + at, cores) for at, cores in ((590.0, 9.0), (610.0, 3.0), (620.0, 5.0), (890.0, None))]
    found = demand_of(TOLD, days, [*seen, point(AT + 905.0, None)], AT + 910.0)
    assert list(zip(found.at, found.cores, strict=True))[-5:] == [
        (AT - 150.0, 1.0), (AT + 150.0, 2.0), (AT + 450.0, None), (AT + 750.0, 4.0), (AT + 1050.0, None),
    ]  # fmt: skip
    assert found.at[0] > AT + 910.0 - DAY_S, "one day is told"


def test_where_nothing_is_recorded_the_console_tells_its_windows_or_minutes() -> None:
    few = [point(AT + at, 1.0 + at / 10.0) for at in (0.0, 10.0, 20.0)]
    found = demand_of(TOLD, {}, few, AT + 30.0)
    assert (found.at, found.cores) == ([AT, AT + 10.0, AT + 20.0], [1.0, 2.0, 3.0])
    many = [point(AT + 10.0 * place, float(place // 6)) for place in range(6 * 120)]
    found = demand_of(TOLD, {}, many, AT + 7200.0)
    assert (found.at[:2], found.cores[:2], len(found.at)) == ([AT + 30.0, AT + 90.0], [0.0, 1.0], 120)


def test_the_forecast_has_its_error_and_its_words() -> None:
    assert TOLD.forecast is not None
    found = demand_of(TOLD, {}, (), NOW)
    assert (found.text, found.used) == (TOLD.forecast.text, True)
    assert (found.at, len(found.ahead), found.ahead_at[0]) == ([], 14, NOW // 300 * 300 + 150.0)
    assert TOLD.forecast.near is not None
    assert found.error == TOLD.forecast.near.error


@pytest.mark.parametrize("step_s", [None, 300.0])
def test_without_a_forecast_nothing_is_ahead_and_it_is_said_why(step_s: float | None) -> None:
    found = demand_of(replace(TOLD, forecast=None), {}, (), NOW)
    assert (found.text, found.used, found.error, found.ahead, found.ahead_at) == (OFF, False, None, [], [])
    assert TOLD.forecast is not None
    older = replace(TOLD.forecast, ahead_at=None, step_s=step_s, ahead=())
    found = demand_of(replace(TOLD, forecast=older), {}, (), NOW)
    assert (found.text, found.ahead) == (TOLD.forecast.text, [])


def test_the_newest_records_of_some_apps_are_kept() -> None:
    days: Days = {}
    for day in range(5):
        days = noted(days, APP, day, record(day, 1.0))
    assert sorted(days[APP]) == list(range(5))[-KEPT_DAYS:]
    assert noted(noted(days, APP, 3, None), APP, 4, None) == {}
    for number in range(MAX_APPS + 5):
        days = noted(days, AppId(f"app-{number}"), 1, record(1, 2.0, app=AppId(f"app-{number}")))
    assert len(days) == MAX_APPS
    assert APP in days


def test_the_journal_is_read_and_what_cannot_be_read_is_counted() -> None:
    watch = watching(FLEET)
    client = TestClient(application(source_of(watch)), base_url="http://localhost")
    found = client.get(f"/api/v1/apps/{APP}/demand").json()
    assert len(found["cores"]) == pytest.approx(DAY, abs=2)
    assert None in found["cores"]
    for key, value in ((b"demand/orders/today", b"{}"), (key_of(APP, 3), b"{}")):
        watch.take(Record(TOPICS.journal, key, value))
    rejected = client.get("/api/v1/cluster").json()["rejected"]
    assert rejected == {f"{TOPICS.journal}.out_of_range": 1, f"{TOPICS.journal}.missing_field": 1}
    for record_ in FLEET.demand_records():
        watch.take(Record(TOPICS.journal, record_.key(), None))
    watch.take(status_record(replace(FLEET.status(), at=NOW)))
    assert client.get(f"/api/v1/apps/{APP}/demand").json()["cores"] == [pytest.approx(FLEET.asked(NOW))]
    assert client.get("/api/v1/apps/none/demand").status_code == 404
