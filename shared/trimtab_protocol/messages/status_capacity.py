"""The parts of the status about hosts, and about how much more an app could take."""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import Fields
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
    bottleneck: str | None = None
    type: str | None = None
    speed: float | None = None
    level: str | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    zone: str | None = None


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
    first: str | None = None
    heaviest: str | None = None
    accuracy: float | None = None


def read_host(row: Fields) -> HostStatus:
    """A row of `hosts`; raises BadMessage."""
    return HostStatus(
        host=HostId(row.name("host")),
        used_pct=row.optional("used_pct", row.number),
        memory_bytes=row.optional("memory_bytes", row.integer),
        memory_limit_bytes=row.optional("memory_limit_bytes", row.integer),
        received_bytes_s=row.optional("received_bytes_s", row.number),
        sent_bytes_s=row.optional("sent_bytes_s", row.number),
        link_bytes_s=row.optional("link_bytes_s", row.number),
        demand_pct=row.optional("demand_pct", row.number),
        bottleneck=row.optional("bottleneck", lambda name: row.text(name, limit=200)),
        type=row.optional("type", row.name),
        speed=row.optional("speed", row.number),
        level=row.optional("level", row.name),
        disk_total_bytes=row.optional("disk_total_bytes", row.integer),
        disk_free_bytes=row.optional("disk_free_bytes", row.integer),
        zone=row.optional("zone", row.name),
    )


def read_capacity(row: Fields) -> CapacityStatus:
    """The `capacity` of an app; raises BadMessage."""
    return CapacityStatus(
        headroom=row.optional("headroom", row.number),
        potential=row.optional("potential", row.number),
        bound=row.optional("bound", row.number),
        first=row.optional("first", lambda name: row.text(name, limit=300)),
        heaviest=row.optional("heaviest", lambda name: row.text(name, limit=1000)),
        accuracy=row.optional("accuracy", lambda name: row.number(name, high=1.0)),
    )
