"""Who hears of the consumer group's events."""

from collections.abc import Collection
from typing import Protocol

from trimtab_agent.engines.faust.safety.troubles import Trouble


class Watcher(Protocol):
    """Receives the events of the consumer group, on the app's event loop."""

    async def before_join(self, topics: frozenset[str]) -> None:
        """The worker is about to subscribe to these topics."""

    def topics_known(self) -> None:
        """Partition counts are known, and the worker is about to join.  Raises TooFewFiles."""

    async def before_assignment(self, told: Collection[bytes]) -> None:
        """As leader, this worker is about to assign; `told` = the members' data.  Called in the consumer's thread."""

    def rebalancing(self) -> None:
        """The group leaves its generation.  From here on only Faust opens and restores state."""

    def stable(self) -> None:
        """Tables are restored and sources are open."""

    def tell(self, trouble: Trouble, text: str | None) -> None:
        """Something has gone wrong with inputs or state; None: no more.  Called from any thread."""

    def breached(self) -> None:
        """The worker ends because a changelog was about to overwrite its state.  Called from any thread."""
