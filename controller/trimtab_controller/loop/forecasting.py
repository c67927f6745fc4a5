"""Reads the demand that a predecessor has recorded, which forecasts are fitted to."""

import logging
from collections.abc import Iterable

from confluent_kafka import Message

from trimtab_controller.decider.forecast.history import KEY_PREFIX, DemandRecord, decode_demand, series_of
from trimtab_controller.decider.forecast.rounds import Forecasts
from trimtab_controller.decider.forecast.settings import ForecastSettings
from trimtab_protocol.messages.decode import BadMessage

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
