"""The process that fits forecasts: answers, and is ended when it does not."""

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection

import numpy as np
import pytest

from trimtab_controller.solver.forecast_answer import ForecastAnswer, ForecastQuestion
from trimtab_controller.solver.forecasting import LIMIT_S, ForecastProcess, answer
from trimtab_models.forecast import Fitted, NotFitted
from trimtab_protocol.messages.names import AppId

PATIENCE_S = 240.0
"""To load statsmodels takes a while on a busy machine."""


def question(values: np.ndarray | None = None) -> ForecastQuestion:
    """A week of hours that repeats by day."""
    hours = 5.0 + 2.0 * np.sin(np.arange(7 * 24) * 2 * np.pi / 24)
    return ForecastQuestion(
        app=AppId("app"),
        values=hours if values is None else values,
        first=0,
        periods=(24,),
        horizons=(2, 6),
        refit=24,
    )


def serve_for_ever(connection: Connection, asked: ForecastQuestion) -> None:
    while True:
        time.sleep(0.01)


def serve_and_die(connection: Connection, asked: ForecastQuestion) -> None:
    connection.close()


def wait_for(process: ForecastProcess) -> ForecastAnswer:
    deadline = time.monotonic() + PATIENCE_S
    while (found := process.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def running() -> list[str]:
    """The fits whose processes run."""
    return [each.name for each in multiprocessing.active_children() if each.name == "forecast"]


def test_a_question_is_answered_and_the_process_ends() -> None:
    process = ForecastProcess(clock=lambda: 0.0)
    assert process.poll() is None
    process.ask(question())
    assert process.is_busy
    with pytest.raises(ValueError, match="one fit at a time"):
        process.ask(question())
    found = wait_for(process)
    assert (found.app, process.is_busy) == ("app", False)
    assert isinstance(found.found, Fitted)
    assert found.found.tests[0].is_better
    assert running() == []


def test_a_process_that_takes_too_long_is_ended() -> None:
    now = [0.0]
    process = ForecastProcess(serve=serve_for_ever, clock=lambda: now[0])
    process.ask(question())
    assert process.poll() is None
    assert running() == ["forecast"]
    now[0] = LIMIT_S
    found = process.poll()
    assert found is not None
    assert found.found == NotFitted(reason="not done after 120 s")
    assert not process.is_busy
    assert running() == []


def test_a_process_that_dies_is_told() -> None:
    process = ForecastProcess(serve=serve_and_die, clock=lambda: 0.0)
    process.ask(question())
    assert wait_for(process).found == NotFitted(reason="its process died")


def test_closing_ends_a_fit_that_is_under_way() -> None:
    process = ForecastProcess(serve=serve_for_ever)
    process.ask(question())
    process.close()
    assert (process.is_busy, process.poll(), running()) == (False, None, [])
    process.close()


def test_what_cannot_be_fitted_is_told() -> None:
    assert answer(question(np.ones(10))).found == NotFitted(reason="10 values, 78 are needed")
    assert answer(question(np.full(100, np.nan))).found == NotFitted(reason="no value is known")


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.tsa.seasonal", None)
    found = answer(question()).found
    assert isinstance(found, NotFitted)
    assert found.reason.startswith("statsmodels cannot be loaded: ")
