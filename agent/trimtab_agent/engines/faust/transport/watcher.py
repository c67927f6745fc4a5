"""Who hears of the consumer group's events."""

from typing import Protocol


class Watcher(Protocol):
    """Told of the group's events, on the app's event loop."""

    async def before_join(self, topics: frozenset[str]) -> None:
        """The worker is about to subscribe to these topics."""

    def rebalancing(self) -> None:
        """The group leaves its generation: from here Faust alone opens and restores state."""

    def stable(self) -> None:
        """Tables are restored, sources are open."""

    def breached(self) -> None:
        """A changelog was about to overwrite state that this worker writes; it ends.  Called from any thread."""
