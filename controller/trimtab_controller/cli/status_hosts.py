"""The hosts in `trimtab status`, and how its tables write numbers."""

from rich import box
from rich.table import Table
from rich.text import Text

from trimtab_protocol.messages.status import AppStatus, HostStatus, Status

SHOWN_NODES = 20
"""Number of workers, and of hosts, that are shown unless all are asked for."""


def hosts_title(status: Status, *, all_nodes: bool) -> str:
    """The heading of the hosts."""
    count = len(status.hosts)
    return "hosts" if all_nodes or count <= SHOWN_NODES else f"hosts, {SHOWN_NODES} of {count}: the most used"


def hosts_table(status: Status, *, all_nodes: bool) -> Table | None:
    """CPU, memory, link and, where agents report it, disk of the hosts; the most used ones, if there are many."""
    rows = list(status.hosts)
    if not rows:
        return None
    if not all_nodes and len(rows) > SHOWN_NODES:
        rows = sorted(rows, key=lambda row: -most(row.used_pct))[:SHOWN_NODES]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    several = len({row.type for row in status.hosts}) > 1
    disks = any(disk_pct(row) is not None for row in status.hosts)
    zones = any(row.zone is not None for row in status.hosts)
    optional = (*(["disk %"] if disks else []), *(["speed"] if several else []))
    for name in ("host", "CPU %", "asked %", "memory", "of", "received/s", "sent/s", *optional):
        table.add_column(name, justify="left" if name == "host" else "right", overflow="fold")
    for name in ("bottleneck", *(["zone"] if zones else [])):
        table.add_column(name, overflow="fold")
    for row in rows:
        sizes = (row.memory_bytes, row.memory_limit_bytes, row.received_bytes_s, row.sent_bytes_s)
        percents = (or_unknown(pct, "{:.0f}") for pct in (row.used_pct, row.demand_pct))
        disk = [or_unknown(disk_pct(row), "{:.0f}")] if disks else []
        speed = [or_unknown(row.speed, "{:.2f}")] if several else []
        zone = [row.zone or "?"] if zones else []
        busiest = ", ".join(part for part in (row.bottleneck, row.level) if part) or "?"
        table.add_row(*map(Text, (row.host, *percents, *map(size_of, sizes), *disk, *speed, busiest, *zone)))
    return table


def disk_pct(row: HostStatus) -> float | None:
    """How full the disk of the workers' state is."""
    if row.disk_free_bytes is None or not row.disk_total_bytes:
        return None
    return 100.0 * (1.0 - row.disk_free_bytes / row.disk_total_bytes)


def headroom_text(app: AppStatus) -> Text:
    """How many times the present input of an app fits, and how well that is known."""
    found = app.capacity
    if found is None or found.headroom is None:
        return Text()
    free = "" if found.potential is None else f", {found.potential:.1f} with free moves"
    by = f", by {found.heaviest} alone" if found.heaviest else ""
    bound = "" if found.bound is None else f" (bound {found.bound:.1f}{by})"
    known = "" if found.accuracy is None else f"; costs predict {found.accuracy:.0%} of the CPU"
    said = f"\nheadroom: {found.headroom:.1f} times the input until {found.first} is full{free}{bound}{known}"
    return Text(said, "yellow" if found.headroom < 1.0 else "")


def most(*percents: float | None) -> float:
    """The largest; an unknown one counts as 0."""
    return max(pct or 0.0 for pct in percents)


def or_unknown(value: float | None, form: str) -> str:
    """The value in this format; `?` if it is unknown."""
    return "?" if value is None else form.format(value)


def size_of(count: float | None) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000.0
    return f"{count:.1f} TB"
