"""To which partition the producer would send an event.

The producer computes it.  Its hash is pure Python, so the answers for text keys are kept, up to a limit.
"""

from typing import Any

from trimtab_agent.engines.faust.local.values import codecs, is_plain

MAX_KEPT = 10_000
"""Keys kept per topic object; then all are forgotten."""

Place = tuple[bytes | None, int]
"""Serialised key and partition."""


class Partitions:
    """Key -> serialised key and partition, for one topic object.  Keys are serialised as it does."""

    __slots__ = ("_count", "_kept", "_topic", "codecs", "plain")

    def __init__(self, topic: Any) -> None:
        self._topic = topic
        self._count = 0
        self._kept: dict[str, Place] = {}
        self.plain = is_plain(topic)
        self.codecs = codecs(topic) if self.plain else None

    def place(self, producer: Any, name: str, key: str) -> Place | None:
        """The place of a text key; None if it cannot be kept, or the partitions are not known yet."""
        if producer is None or not self.plain:
            return None
        known = producer._metadata._partitions.get(name)
        if not known:
            return None
        if len(known) != self._count:
            self._count = len(known)
            self._kept.clear()
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            raw, _ = self._topic.prepare_key(key, None, None, {})
            found = self._kept[key] = raw, producer._partition(name, None, None, None, raw, None)
        return found


def place_of(producer: Any, name: str, raw: bytes | None, partition: int | None) -> Place | None:
    """The place of a serialised key, or the partition that the sender chose; None if partitions are not known yet."""
    if producer is None or not producer._metadata._partitions.get(name):
        return None
    return raw, producer._partition(name, partition, None, None, raw, None)
