"""What the plug-in's threads share: the newest placement and the layout of the app.

Written by the channel's thread (placements) and the event loop (layout), read by the consumer's thread (assignor) and
the event loop.  Every field is a reference to a frozen value, so that reading needs no lock.
"""

import threading

from trimtab_agent.engines.faust.operators import Layout
from trimtab_models.messages.names import NO_EPOCH, AppId, Epoch, WorkerId
from trimtab_models.messages.placement import Placement


class Board:
    """Newest placement of one app, as seen by one worker."""

    def __init__(self, *, cluster: str, app: AppId, worker: WorkerId) -> None:
        self.cluster = cluster
        self.app = app
        self.worker = worker
        self.placement: Placement | None = None
        self.layout: Layout | None = None
        """None until the topics are known, and for ever in an app that is not steered."""
        self.faust_standbys = 0
        """Standby replicas that the app had asked Faust for: given back when it turns out that it is not steered."""
        self.applied: Epoch = NO_EPOCH
        """Epoch of the placement that the last rebalance applied; NO_EPOCH = Faust's own assignment."""
        self._writing = threading.Lock()

    def offer(self, placement: Placement) -> bool:
        """Keep a placement if it is ours and the newest; returns whether it was."""
        with self._writing:
            newest = self.placement.epoch if self.placement else NO_EPOCH
            fits = (placement.cluster, placement.app) == (self.cluster, self.app)
            if not fits or placement.epoch <= newest:
                return False
            self.placement = placement
            return True
