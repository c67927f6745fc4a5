"""Decides which reports of a batch count, by the signatures of their hosts, before they are parsed.

Spark computes the digest of each report.  What is judged here is small: key, digest, signature and place of each
record.  No Spark, no I/O.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from trimtab_controller.stream.claims import Claims, claims_of
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.refused_hosts import host_named
from trimtab_protocol.messages.snapshot import MAX_DOUBTED
from trimtab_protocol.signing.hosts import HostChecking, Signed
from trimtab_protocol.signing.known_hosts import KnownHosts

Place = tuple[int, int]
"""Partition and offset of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """`reports` that are not parsed: those of one host (None: of several, or not known which) in one window."""

    host: str | None
    fault: Fault
    start_ms: int
    reports: int
    last_ms: int
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What of a batch is not parsed, and what is doubtful.

    `dropped` and `good` = the places of records that are dropped because of their signature, and of the others.
    `unsigned` = how many reports are used although their signature is missing or wrong, by fault; `doubted` = hosts
    with a missing or wrong signature, used or not.  `claims` = in whose name the refused ones came.
    """

    refused: tuple[Refused, ...] = ()
    dropped: frozenset[Place] = frozenset()
    good: frozenset[Place] = frozenset()
    unsigned: Mapping[str, int] = field(default_factory=dict)
    doubted: Mapping[HostId, str] = field(default_factory=dict)
    claims: Claims = field(default_factory=dict)

    @property
    def flooding(self) -> frozenset[str]:
        """The keys, in hex, of all whose records are not parsed because they are too many."""
        return frozenset(row.key for row in self.refused if row.fault is Fault.FLOODING and row.key is not None)


@dataclass(slots=True)
class _Count:
    reports: int = 0
    size: int = 0
    last_ms: int = 0


class SignatureCheck:
    """Judges the batches of one query.  Remembers the digests of the last records, to recognise those that come again.

    `most_reports`, `most_bytes`: of one host in a window; more is a flood.  Times in milliseconds.
    """

    def __init__(
        self,
        checking: HostChecking,
        known: KnownHosts,
        *,
        topic: str,
        window_ms: int,
        remembered_ms: int,
        most_reports: float,
        most_bytes: float,
        expected: Collection[str] | None,
    ) -> None:
        self._enforces = checking is HostChecking.ENFORCE
        self._known = known
        self._topic = topic
        self._window_ms = window_ms
        self._remembered_ms = remembered_ms
        self._most_reports = most_reports
        self._most_bytes = most_bytes
        self._expected = None if expected is None else frozenset(host.encode() for host in expected)
        self._seen: set[tuple[bytes, bytes]] = set()
        self._ages: deque[tuple[int, tuple[bytes, bytes]]] = deque()

    def judge(self, batch: pa.Table) -> Verdict:
        """The verdict about a batch with the columns of `pipeline.signatures`."""
        if not batch.num_rows:
            return Verdict()
        batch = batch.sort_by([("partition", "ascending"), ("offset", "ascending")])
        names = ("key", "digest", "signatures", "arrival_ms", "size", "partition", "offset")
        keys, digests, signatures, arrivals, sizes, partitions, offsets = (batch[name].to_pylist() for name in names)
        records = [
            Signed(key=key or b"", digest=bytes.fromhex(digest or ""), signatures=tuple(found))
            for key, digest, found in zip(keys, digests, signatures, strict=True)
        ]
        wanted = [index for index, key in enumerate(keys) if self._expected is None or (key or b"") in self._expected]
        faults = dict(zip(wanted, self._faults([records[index] for index in wanted], arrivals, wanted), strict=True))
        counts: dict[tuple[str | None, Fault | None, int], _Count] = {}
        claimed: list[tuple[bytes, Fault, int, int]] = []
        for index, (arrival_ms, size) in enumerate(zip(arrivals, sizes, strict=True)):
            fault = faults.get(index, Fault.UNKNOWN_HOST)
            refused = fault is Fault.UNKNOWN_HOST or (fault is not None and self._enforces)
            if fault is not None and refused:
                claimed.append((records[index].key, fault, 1, arrival_ms))
            # What was not proven to be of a host says nothing about that host, not even that it has sent something.
            key = None if refused else records[index].key.hex().upper()
            place = key, fault if refused else None, arrival_ms - arrival_ms % self._window_ms
            count = counts.setdefault(place, _Count())
            count.reports, count.size = count.reports + 1, count.size + (size or 0)
            count.last_ms = max(count.last_ms, arrival_ms)
        bad = {index: fault for index, fault in faults.items() if fault is not None}
        dropped = {(partitions[index], offsets[index]) for index in bad} if self._enforces else set()
        good = {(partitions[index], offsets[index]) for index in wanted if index not in bad} if dropped else set()
        rows = tuple(self._refused(counts))
        return Verdict(
            refused=rows,
            dropped=frozenset(dropped),
            good=frozenset(good),
            unsigned={} if self._enforces else Counter(map(str, bad.values())),
            doubted=_doubted({records[index].key: fault for index, fault in bad.items()}),
            claims=claims_of((*claimed, *flood_claims(rows))),
        )

    def _faults(self, records: list[Signed], arrivals: list[int], indices: list[int]) -> Iterator[Fault | None]:
        """The fault of each record, oldest first; of records that come again, the first counts."""
        found = self._known.faults(self._topic, records)
        for record, fault, index in zip(records, found, indices, strict=True):
            if fault is not None:
                yield fault
            elif (name := (record.key, record.digest)) in self._seen:
                yield Fault.REPEATED
            else:
                self._seen.add(name)
                self._ages.append((arrivals[index], name))
                yield None
        while self._ages and self._ages[0][0] < self._ages[-1][0] - self._remembered_ms:
            self._seen.discard(self._ages.popleft()[1])

    def _refused(self, counts: Mapping[tuple[str | None, Fault | None, int], _Count]) -> Iterator[Refused]:
        for (key, fault, start_ms), count in counts.items():
            if fault is None and (count.reports > self._most_reports or count.size > self._most_bytes):
                fault = Fault.FLOODING
            if fault is not None:
                host = None if key is None else bytes.fromhex(key).decode(errors="replace")
                yield Refused(
                    host=host,
                    fault=fault,
                    start_ms=start_ms,
                    reports=count.reports,
                    last_ms=count.last_ms,
                    key=key,
                )


def flood_claims(rows: Iterable[Refused]) -> Iterator[tuple[bytes, Fault, int, int]]:
    """Of refused rows those that say in whose name the reports came, for `claims_of`."""
    for row in rows:
        if row.key is not None:
            yield bytes.fromhex(row.key), row.fault, row.reports, row.last_ms


def _doubted(faults: Mapping[bytes, Fault]) -> dict[HostId, str]:
    """Some of the hosts, those with proper names."""
    named = ((host_named(key), str(fault)) for key, fault in faults.items() if fault is not Fault.REPEATED)
    proper = [(host, fault) for host, fault in named if host is not None]
    return dict(sorted(proper)[:MAX_DOUBTED])
