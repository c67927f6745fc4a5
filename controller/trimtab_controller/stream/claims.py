"""In whose name the reports came that are refused: by the keys of their records.  No Spark, no I/O.

A key is a claim.  Whoever invents keys makes many of them, so only some are told.
"""

from collections.abc import Iterable, Mapping

from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.refused_hosts import RefusedHost, host_named

MAX_CLAIMS = 100
"""Hosts and faults of one batch that are told, those with most reports."""

Claims = Mapping[tuple[HostId, str], tuple[int, int]]
"""Host and fault -> number of reports, arrival of the last one (epoch milliseconds)."""


def claims_of(refused: Iterable[tuple[bytes, Fault, int, int]]) -> Claims:
    """The claims in (key, fault, reports, last arrival).  Keys that are no names of hosts are left out."""
    found: dict[tuple[HostId, str], tuple[int, int]] = {}
    for key, fault, reports, last_ms in refused:
        if (host := host_named(key)) is not None:
            before = found.get((host, str(fault)), (0, 0))
            found[host, str(fault)] = before[0] + reports, max(before[1], last_ms)
    most = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return dict(most[:MAX_CLAIMS])


def rows_of(claims: Claims, topic: str) -> Iterable[RefusedHost]:
    """The claims as the snapshot tells them."""
    for (host, fault), (reports, last_ms) in claims.items():
        yield RefusedHost(topic=topic, host=host, fault=fault, messages=reports, at=last_ms / 1000.0)
