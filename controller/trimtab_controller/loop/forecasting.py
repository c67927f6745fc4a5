"""Has forecasts fitted while the loop goes on, and records the demand that they are fitted to for a successor."""

import logging
from collections.abc import Iterable

from confluent_kafka import Message

from trimtab_controller.decider.forecast.history import KEY_PREFIX, DemandRecord, decode_demand, series_of
from trimtab_controller.decider.forecast.rounds import Forecasts
from trimtab_controller.decider.forecast.settings import ForecastSettings
from trimtab_controller.kafka.publisher import Record
from trimtab_controller.solver.forecasting import ForecastProcess
from trimtab_models.forecast import NotFitted
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import Topics

log = logging.getLogger(__name__)


def recalled_demand(messages: Iterable[Message], settings: ForecastSettings) -> Forecasts:
    """What a predecessor has recorded, from the records of the journal; what cannot be read is unknown."""
    forecasts = Forecasts(settings=settings)
    if not forecasts.is_on:
        return forecasts
    newest: dict[bytes, bytes | None] = {}
    for message in messages:
        if (key := message.key() or b"").startswith(KEY_PREFIX):
            newest[key] = message.value()
    demand: list[DemandRecord] = []
    for key, value in newest.items():
        if value is None:
            continue
        try:
            demand.append(decode_demand(value))
        except BadMessage as error:
            log.warning("cannot read the record %r of demand, so it counts as unknown: %s", key, error)
    return Forecasts(settings=settings, series=series_of(demand))


class Forecasting:
    """Asks `process` for the fits that are due; without a process there are none."""

    def __init__(self, forecasts: Forecasts, process: ForecastProcess | None, topics: Topics) -> None:
        self.forecasts = forecasts
        self._process = process
        self._topics = topics

    def turn(self) -> None:
        """Take an answer, and ask the next question."""
        if self._process is None:
            return
        if (answer := self._process.poll()) is not None:
            if isinstance(answer.found, NotFitted):
                log.info("no forecast of %s: %s", answer.app, answer.found.reason)
            self.forecasts.learn(answer)
        if not self._process.is_busy and (question := self.forecasts.wanted()) is not None:
            self._process.ask(question)

    def records(self) -> list[Record]:
        """The records of the demand that are due."""
        return [Record(topic=self._topics.journal, key=key, value=value) for key, value in self.forecasts.records()]
