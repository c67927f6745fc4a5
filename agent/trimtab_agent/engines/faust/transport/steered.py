"""The transport that puts the patched consumer and producer into an app."""

from typing import Any

from faust.transport.drivers.aiokafka import Transport

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.safety.store_guard import StoreGuard
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer
from trimtab_agent.engines.faust.transport.producer import SteeredProducer
from trimtab_agent.engines.faust.transport.watcher import Watcher


class SteeredTransport(Transport):  # type: ignore[misc]
    """Faust's aiokafka driver with our consumer and producer, which share one fence and tell one watcher."""

    Consumer = SteeredConsumer
    Producer = SteeredProducer

    def __init__(self, app: Any, *, fence: Fence, settings: SteeringSettings, watcher: Watcher) -> None:
        super().__init__(app.conf.broker_consumer, app)
        self.fence = fence
        self.settings = settings
        self.watcher = watcher

    def create_consumer(self, callback: Any, **options: Any) -> SteeredConsumer:
        """The app's consumer; its tables are all there by now."""
        StoreGuard(self.app, self.fence, lambda: self.watcher.breached()).watch()
        consumer: SteeredConsumer = super().create_consumer(callback, **options)
        return consumer
