"""Readings of a host of which a test says what is known."""

from typing import Any

from trimtab_agent.sampler.derive import HostReading

UNKNOWN = ("cpu_s", "received_bytes", "sent_bytes", "memory_bytes", "memory_limit_bytes", "own")


def reading(at: float, **known: Any) -> HostReading:
    """At this time of the monotonic clock; nothing else is known."""
    return HostReading(monotonic_s=at, **{**dict.fromkeys(UNKNOWN), **known})
