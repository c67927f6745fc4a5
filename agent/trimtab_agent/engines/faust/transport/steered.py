"""Transport that gives an app the patched consumer and producer."""

import copy
from typing import Any

from faust.stores.rocksdb import Store
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
        for table in self.app.tables.values():
            if isinstance(table.data, Store):
                _restore_as_stored(table)
        self.guard.watch()
        consumer: SteeredConsumer = super().create_consumer(callback, **options)
        return consumer


def _restore_as_stored(table: Any) -> None:
    """Let Faust's recovery apply a table's records as they are, once (patch restored-as-stored).

    A database has the bytes of its changelog, so nothing need be decoded.  Faust decodes each record all the same, by
    the types that the app has now (of a window: by the type of its key), and leaves out what it cannot decode.
    """
    if table._on_changelog_event is None:  # it gets the events, and only an app that is not steered has it
        schema = table.changelog_topic.schema = copy.copy(table.changelog_topic.schema)  # the app may use it elsewhere
        schema.loads_key, schema.loads_value = _key_as_stored, _value_as_stored
    if not table.is_global:  # with a buffer of one record, Faust goes on to apply the worker's own ones
        table.recovery_buffer_size = max(2, table.recovery_buffer_size)


def _key_as_stored(_: Any, message: Any, **__: Any) -> bytes | None:
    key: bytes | None = message.key
    return key


def _value_as_stored(_: Any, message: Any, **__: Any) -> bytes | None:
    value: bytes | None = message.value
    return value
