"""Gives a value to the readers of a direct event as they would have got it from the broker.

Immutable scalars that come back from the topic's codec as they are go by reference.  Everything else is encoded once
and decoded for each type that readers expect, so that writer and readers never share an object.
"""

from collections.abc import Collection, Iterable
from typing import Any

import faust
from faust.types import Message

CODECS = ("json", "raw")
JSON_SCALARS = (str, int, float, bool)
SCALAR_BYTES = 8
"""What a number counts for in the traffic between key groups; it is not encoded."""


class PartitionReaders:
    """The agents' channels of one partition that expect the same types, and so share an event."""

    __slots__ = ("_app", "_channel", "_event", "_keys", "_values", "codecs", "queues")

    def __init__(self, app: Any, channels: Collection[Any]) -> None:
        self._app = app
        self._event = app.conf.Event  # Faust's settings are slow to read
        self._channel = channel = next(iter(channels))
        self.queues = [each.queue for each in channels]
        self.codecs = codecs(channel)
        self._keys = _unchanged(app, channel.key_type, channel.schema, channel.schema.key_serializer,
                                app.conf.key_serializer)  # fmt: skip
        self._values = _unchanged(app, channel.value_type, channel.schema, channel.schema.value_serializer,
                                  app.conf.value_serializer)  # fmt: skip

    def event(self, message: Message, key: Any, value: Any, *, plain: bool) -> Any:
        """The event for these readers.  `plain`: the writer uses the topic's own codecs, which are the readers'.

        Raises what the codecs raise.
        """
        app, schema = self._app, self._channel.schema
        same_key, same_value = plain and type(key) in self._keys, plain and type(value) in self._values
        key = key if same_key else schema.loads_key(app, message)
        if not same_value:
            empty = message.value is None and schema.allow_empty
            value = None if empty else schema.loads_value(app, message)
        return self._event(app, key, value, message.headers, message)


def readers_of(app: Any, channels: Iterable[Any]) -> list[PartitionReaders]:
    """The channels of a partition, grouped by what they expect."""
    kinds: dict[Any, list[Any]] = {}
    for channel in channels:
        kinds.setdefault((channel.key_type, channel.value_type), []).append(channel)
    return [PartitionReaders(app, group) for group in kinds.values()]


def is_plain(topic: Any) -> bool:
    """Whether a topic has no schema class of its own, which might do more than encode."""
    return type(topic.schema) is faust.Schema


def codecs(topic: Any) -> tuple[Any, ...]:
    """What a topic object encodes with; equal for objects whose bytes are the same."""
    schema = topic.schema
    return schema.key_type, schema.value_type, schema.key_serializer, schema.value_serializer


def traffic_bytes(message: Any, value: Any) -> int:
    """Size of a direct event for the traffic between key groups; an estimate if its value went by reference."""
    if message._raw is not None:
        return len(message.key or b"") + len(message._raw)
    return len(message.key or b"") + (len(value) if isinstance(value, str) else SCALAR_BYTES)


def _unchanged(app: Any, kind: Any, schema: Any, serializer: Any, default: Any) -> frozenset[type]:
    """The types of immutable values that come back from the codec as the same value of the same type."""
    codec = app.serializers._serializer(kind, serializer, default)
    if type(schema) is not faust.Schema or codec not in CODECS:
        return frozenset()
    if kind in (str, int, float):
        return frozenset({kind}) if codec == "json" or kind is str else frozenset()
    return frozenset(JSON_SCALARS) if kind is None and codec == "json" else frozenset()
