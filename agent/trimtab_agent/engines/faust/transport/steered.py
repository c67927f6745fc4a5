"""Transport that gives an app the patched consumer and producer."""

from typing import Any

from faust.transport.drivers.aiokafka import Transport

from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.safety.store_guard import StoreGuard
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer
from trimtab_agent.engines.faust.transport.producer import SteeredProducer
from trimtab_agent.engines.faust.transport.watcher import Watcher


class SteeredTransport(Transport):  # type: ignore[misc]
    """Faust's aiokafka driver with the patched consumer and producer.  They share one fence and one watcher."""

    Consumer = SteeredConsumer
    Producer = SteeredProducer

    def __init__(self, app: Any, *, fence: Fence, settings: SteeringSettings, watcher: Watcher) -> None:
        super().__init__(app.conf.broker_consumer, app)
        self.fence = fence
        self.settings = settings
        self.watcher = watcher
        self.guard = StoreGuard(
            app, fence, on_breach=lambda: self.watcher.breached(), tell=lambda *told: self.watcher.tell(*told)
        )

    def create_consumer(self, callback: Any, **options: Any) -> SteeredConsumer:
        """Create the app's consumer.  All tables of the app exist by now, so the store guard starts here."""
        self._restore_keys_of_any_type()
        self.guard.watch()
        consumer: SteeredConsumer = super().create_consumer(callback, **options)
        return consumer

    def _restore_keys_of_any_type(self) -> None:
        """Let Faust's recovery read windowed tables that have a `key_type` (patch windows-closed-once).

        It is the type of the key without its window.  Faust takes it for the type of both, cannot decode a record,
        leaves it out, and waits for it for ever.  (A string with its window passes for a string.)
        """
        for table in self.app.tables.values():
            if table.window is not None:
                topic = table.changelog_topic
                topic.key_type = topic.schema.key_type = None
