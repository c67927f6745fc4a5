"""What windows show of the hosts that restore: their cores, and what their links have left for restores.

What a link has left = what may be filled of it, less the p95 of what the foreground received.  The foreground is what a
host receives in windows in which it restores nothing that the controller knows of.  A host whose link speed is unknown,
or that was not seen without a restore for FEW windows, has no such number: nothing is assumed of it.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_controller.execution.events import HostReport
from trimtab_protocol.messages.names import HostId

KEPT = 360
"""Windows per host of which the foreground is known; an hour with windows of 10 s."""
FEW = 3
"""So many windows must have shown the foreground of a host."""
LEAST_SHARE = 0.05
"""Restores get this share of a full link all the same, since the network divides it."""
FOREGROUND = 95.0
"""The percentile of the foreground's use that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """A link of a known speed: what may be filled of it, and the p95 of what the foreground takes (bytes/s)."""

    limit_bytes_s: float
    foreground_bytes_s: float

    @property
    def full(self) -> bool:
        """Whether the foreground alone fills it."""
        return self.foreground_bytes_s >= self.limit_bytes_s

    @property
    def free_bytes_s(self) -> float:
        """What is left for restores."""
        return max(LEAST_SHARE * self.limit_bytes_s, self.limit_bytes_s - self.foreground_bytes_s)


class Links:
    """Follows the hosts from window to window.  `cores` = of the hosts in the last one, as far as they are known."""

    def __init__(self) -> None:
        self.cores: dict[HostId, float] = {}
        self._limits: dict[HostId, float] = {}
        self._received: dict[HostId, deque[float]] = {}
        self._links: dict[HostId, HostLink] = {}
        self._restored_until: dict[HostId, float] = {}

    def restored(self, host: HostId, until: float) -> None:
        """A restore ran on the host until then (epoch seconds)."""
        self._restored_until[host] = max(until, self._restored_until.get(host, until))

    def observe(self, start_s: float, hosts: Mapping[HostId, HostReport], restoring: Collection[HostId]) -> None:
        """Take a window that began at `start_s`; `restoring` = the hosts that restore now."""
        self.cores = {host: row.cores for host, row in hosts.items() if row.cores}
        self._limits = {host: row.link_bytes_s for host, row in hosts.items() if row.link_bytes_s}
        for host in self._received.keys() - hosts.keys():
            del self._received[host]
        self._restored_until = {host: at for host, at in self._restored_until.items() if at > start_s}
        for host, row in hosts.items():
            if row.received_bytes_s is not None and host not in self._restored_until and host not in restoring:
                self._received.setdefault(host, deque(maxlen=KEPT)).append(row.received_bytes_s)
        self._links = {
            host: HostLink(limit_bytes_s=limit, foreground_bytes_s=float(np.percentile(received, FOREGROUND)))
            for host, limit in self._limits.items()
            if len(received := self._received.get(host, ())) >= FEW
        }

    def of(self, host: HostId | None) -> HostLink | None:
        """The link of a host; None if its speed or its use is unknown."""
        return None if host is None else self._links.get(host)

    @property
    def known(self) -> Mapping[HostId, HostLink]:
        """The links of known speed and use."""
        return self._links
