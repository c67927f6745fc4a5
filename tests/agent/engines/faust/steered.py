"""The parts of a steered app that tests need, without a broker."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from faust.streams import _current_event

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer, SteeredTransport


@contextmanager
def processing(event: Any) -> Iterator[None]:
    """What is done within is done while an agent processes this event."""
    token = _current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        _current_event.reset(token)


async def nothing(*_: object, **__: object) -> None:
    """A callback of an app that has nothing to do."""


def transport_of(app: Any, watcher: Any = None) -> SteeredTransport:
    return SteeredTransport(app, fence=Fence(10.0), settings=SteeringSettings(), watcher=watcher)


def consumer_of(transport: SteeredTransport) -> SteeredConsumer:
    made: SteeredConsumer = transport.create_consumer(
        callback=nothing, on_partitions_revoked=nothing, on_partitions_assigned=nothing
    )
    return made
