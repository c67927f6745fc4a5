"""Fits forecasts in a process of its own, which ends with its answer, or after a hard time limit.

A fit is rare and takes seconds of CPU, most of them to load statsmodels; so no process is kept warm for it.
"""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from trimtab_controller.solver.forecast_answer import ForecastAnswer, ForecastQuestion
from trimtab_models.forecast import NotFitted, fit

log = logging.getLogger(__name__)

LIMIT_S = 120.0
"""How long a fit may take, the start of its process included."""
NICENESS = 10
"""A fit has time: whatever else runs on the host comes first."""
PACKAGE = "statsmodels"
"""What a fit needs, and a controller without forecasts does not: the extra `forecast`."""

Serve = Callable[[Connection, ForecastQuestion], None]


def answer(question: ForecastQuestion) -> ForecastAnswer:
    """Fit in this process."""
    try:
        found = fit(
            question.values,
            question.first,
            periods=question.periods,
            horizons=question.horizons,
            refit=question.refit,
        )
    except ImportError as error:
        found = NotFitted(reason=f"{PACKAGE} cannot be loaded: {error}")
    except (ValueError, ArithmeticError, LookupError) as error:
        log.exception("the forecast of %s failed", question.app)
        found = NotFitted(reason=f"the fit failed: {error}")
    return ForecastAnswer(app=question.app, found=found)


def serve(connection: Connection, question: ForecastQuestion) -> None:
    """The process: one answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller handles Ctrl-C and ends this process
    os.nice(NICENESS)
    connection.send(answer(question))


class ForecastProcess:
    """Fits one forecast at a time; `poll` never waits."""

    def __init__(self, *, serve: Serve = serve, clock: Callable[[], float] = time.monotonic) -> None:
        self._serve = serve
        self._clock = clock
        self._running: tuple[ForecastQuestion, BaseProcess, Connection] | None = None
        self._until = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a fit is under way."""
        return self._running is not None

    def ask(self, question: ForecastQuestion) -> None:
        """Begin a fit."""
        if self._running is not None:
            raise ValueError("one fit at a time")
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process: BaseProcess = context.Process(
            target=self._serve, args=(theirs, question), daemon=True, name="forecast"
        )
        process.start()
        theirs.close()
        self._running = question, process, ours
        self._until = self._clock() + LIMIT_S

    def poll(self) -> ForecastAnswer | None:
        """The answer, or None while there is none yet."""
        if self._running is None:
            return None
        question, _, connection = self._running
        try:
            if connection.poll():
                found: ForecastAnswer = connection.recv()
                self.close()
                return found
        except (EOFError, OSError):
            return self._given_up(question, "its process died")
        if self._clock() >= self._until:
            return self._given_up(question, f"not done after {LIMIT_S:g} s")
        return None

    def close(self) -> None:
        """End the fit that is under way."""
        if self._running is not None:
            _, process, connection = self._running
            process.kill()
            process.join()
            connection.close()
            self._running = None

    def _given_up(self, question: ForecastQuestion, why: str) -> ForecastAnswer:
        log.warning("the forecast of %s: %s", question.app, why)
        self.close()
        return ForecastAnswer(app=question.app, found=NotFitted(reason=why))
