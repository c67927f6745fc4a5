"""Where workers were seen, so that a move leaves its key groups with copies that no loss takes all of."""

from trimtab_controller.rows import Site, Sites
from trimtab_protocol.messages.names import WorkerId

KEPT_S = 60.0
"""So long after a worker was seen last, its place is forgotten: it may be lost, and what it follows with it."""


class SeenSites:
    """Follows the workers from window to window.  `known` = where those are that were seen lately."""

    def __init__(self) -> None:
        self._seen: dict[WorkerId, tuple[float, Site]] = {}
        self.known: Sites = {}

    def see(self, start_s: float, sites: Sites) -> None:
        """A window that began at `start_s` (epoch seconds) shows these workers."""
        self._seen.update((worker, (start_s, site)) for worker, site in sites.items())
        self._seen = {worker: row for worker, row in self._seen.items() if row[0] >= start_s - KEPT_S}
        self.known = {worker: site for worker, (_, site) in self._seen.items()}
