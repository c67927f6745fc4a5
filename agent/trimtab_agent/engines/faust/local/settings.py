"""Limits of the local hop, with units."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """How much may be under way, and how long an event waits before it goes by the broker."""

    depth: int = 256
    """Unfinished direct events per topic.  A hand-over or rebalance has to finish them first."""
    room_wait_s: float = 1.0
    """How long an event waits for room in its readers' queues."""
    open_wait_s: float = 0.25
    """How long an event waits for its gate to open."""
    open_lag: int = 500
    """An event waits only if at most so many records must reach the queues before the gate opens."""
    retry_s: float = 5.0
    """After a wait in vain, events go by the broker for so long without waiting."""
    settle_wait_s: float = 30.0
    """How long an event for the broker waits for direct events with its key.  It then goes, and is counted."""
    readers_check_s: float = 60.0
    """How often the broker is asked whether another group reads a local topic."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)!r}, expected a number above 0")
