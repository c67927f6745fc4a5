"""In whose name messages came that were refused: what they say themselves, which nothing proves."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Name, Text
from trimtab_protocol.messages.decode import NAME_PATTERN
from trimtab_protocol.messages.names import HostId

MAX_REFUSED_HOSTS = 20
"""Hosts and faults of one status or snapshot; `more` counts the others."""
MAX_TALLIED = 1_000
"""Hosts and faults that are counted; of more, those whose last message is oldest are forgotten."""


def host_named(key: bytes) -> HostId | None:
    """The host in whose name a record with this key came; None if the key is no name."""
    name = key.decode("latin-1")
    return HostId(name) if NAME_PATTERN.fullmatch(name) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedHost:
    """`messages` on `topic` were refused for the reason `fault`, the last one at `at` (epoch s).

    They came in the name of `host`.  Anyone who may write the topic can have sent them.
    """

    topic: Annotated[str, Text(500)]
    host: HostId
    fault: Name
    messages: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedHosts:
    """Those with most messages first, and how many `more` there are at least."""

    worst: Annotated[tuple[RefusedHost, ...], Most(MAX_REFUSED_HOSTS)] = ()
    more: int = 0

    def joined(self, other: "RefusedHosts") -> "RefusedHosts":
        """Both, of different topics."""
        return worst_of((*self.worst, *other.worst), self.more + other.more)


def worst_of(rows: Iterable[RefusedHost], more: int = 0) -> RefusedHosts:
    """As many of the rows as are told."""
    ordered = sorted(rows, key=lambda row: (-row.messages, row.host, row.fault, row.topic))
    rest = len(ordered[MAX_REFUSED_HOSTS:])
    return RefusedHosts(worst=tuple(ordered[:MAX_REFUSED_HOSTS]), more=more + rest)


class RefusedTally:
    """Counts refused messages by the host in whose name they came."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, HostId, str], RefusedHost] = {}

    def add(self, row: RefusedHost) -> None:
        """Further messages of a host."""
        name = row.topic, row.host, row.fault
        if (before := self._rows.pop(name, None)) is not None:
            row = replace(row, messages=before.messages + row.messages, at=max(before.at, row.at))
        self._rows[name] = row
        if len(self._rows) > MAX_TALLIED:
            del self._rows[next(iter(self._rows))]

    @property
    def found(self) -> RefusedHosts:
        """The worst of them."""
        return worst_of(self._rows.values())
