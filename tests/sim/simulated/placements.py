"""A worker's reader of the placements' topic: the plug-in's own follower over the model of the broker."""

from contextlib import suppress

from tests.sim.simulated.broker import Broker
from trimtab_agent.engines.faust.group.placement_follower import PlacementFollower
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.signing.envelope import signatures_in


class PlacementReader:
    """Reads from its last place on, or again from the beginning."""

    def __init__(self, board: PluginState, broker: Broker) -> None:
        self._board, self._broker = board, broker
        self._follower = PlacementFollower(board)
        self.begin()

    def begin(self) -> None:
        """From the beginning of the topic."""
        self._follower.begin()
        self._next = 0

    def read(self) -> bool:
        """What is there now; whether there is a new placement."""
        new = False
        for record in self._broker.read(self._board.topics.placement, self._next):
            self._next = record.offset + 1
            with suppress(BadMessage):  # the board counts it
                signatures = signatures_in(record.headers)
                new |= self._follower.take(record.offset, record.key, record.value, signatures)
        if self._follower.loading:
            new |= self._follower.at_end()[1]
        return new

    def must_read_again(self, now: float) -> bool:
        """Whether it has begun again because a placement was not whole."""
        if not self._follower.must_read_again(now):
            return False
        self.begin()
        return True
