"""The parts of the status about hosts, and about how much more an app could take."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Name, Range, Text
from trimtab_protocol.messages.names import HostId


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """A host in the last snapshot; None = unknown.

    `used_pct` = CPU in percent of its cores; memory in bytes, used and at most; `received_bytes_s` and `sent_bytes_s` =
    use of its link, of `link_bytes_s` each way, in bytes per second.  `demand_pct` = CPU asked of it, with what other
    processes use, in percent of its cores; `bottleneck` = the resource of which most is used; `type` as its agent names
    it, `speed` of a core relative to that of other types; `level` = light, moderate or heavy, by its CPU, memory and
    link.  `disk_free_bytes` of `disk_total_bytes` are free on the disk of its workers' state.
    `zone` = the hosts that may fail together with it, as agents name them.
    """

    host: HostId
    used_pct: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    received_bytes_s: float | None = None
    sent_bytes_s: float | None = None
    link_bytes_s: float | None = None
    demand_pct: float | None = None
    bottleneck: Annotated[str | None, Text(200)] = None
    type: Name | None = None
    speed: float | None = None
    level: Name | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    zone: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityStatus:
    """How many times its present input fits into an app's workers; None = unknown.

    `headroom` as placed, until `first` (a worker, or a host) is full; `potential` with free moves; no placement can
    exceed `bound`, which the key group `heaviest` limits if it is named.  `accuracy` = share of the workers' CPU that
    the fitted costs predict.
    """

    headroom: float | None = None
    potential: float | None = None
    bound: float | None = None
    first: Annotated[str | None, Text(300)] = None
    heaviest: str | None = None
    accuracy: Annotated[float | None, Range(0.0, 1.0)] = None
