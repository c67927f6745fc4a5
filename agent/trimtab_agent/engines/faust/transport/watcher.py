"""Who hears of the consumer group's events."""

from typing import Protocol


class Watcher(Protocol):
    """Receives the events of the consumer group, on the app's event loop."""

    async def before_join(self, topics: frozenset[str]) -> None:
        """The worker is about to subscribe to these topics."""

    def rebalancing(self) -> None:
        """The group leaves its generation.  From here on only Faust opens and restores state."""

    def stable(self) -> None:
        """Tables are restored and sources are open."""

    def breached(self) -> None:
        """The worker ends because a changelog was about to overwrite its state.  Called from any thread."""
