"""The parts of a steered app that tests of its consumer need, without a broker."""

from typing import Any

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer, SteeredTransport


async def nothing(*_: object, **__: object) -> None:
    """A callback of an app that has nothing to do."""


def transport_of(app: Any, watcher: Any = None) -> SteeredTransport:
    return SteeredTransport(app, fence=Fence(10.0), settings=SteeringSettings(), watcher=watcher)


def consumer_of(transport: SteeredTransport) -> SteeredConsumer:
    made: SteeredConsumer = transport.create_consumer(
        callback=nothing, on_partitions_revoked=nothing, on_partitions_assigned=nothing
    )
    return made
