"""The snapshot: all measurements of one cluster in one window.  Stream -> decider.

Rates are per second, over the seconds that samples cover.  A key group without samples is absent.  A fleet has a
million key groups, so key groups and pairs are in blocks per operator, with one array per quantity.  This module
encodes the document; the adapters of the stream and the decider compress it (zstd) and split it into chunks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trimtab_protocol.messages.columns import (
    check_once,
    columns_of,
    known_columns,
    read_integers,
    read_known_numbers,
    read_names,
    read_numbers,
    read_size,
)
from trimtab_protocol.messages.copies import Copy, copy_columns, read_copies
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_integer, check_name, encode, parse
from trimtab_protocol.messages.host_sample import MAX_SPEED
from trimtab_protocol.messages.key_group_table import (
    KeyGroupBlock,
    KeyGroupTable,
    block_document,
    read_blocks,
)
from trimtab_protocol.messages.key_group_table import (
    KeyGroupWindow as KeyGroupWindow,
)
from trimtab_protocol.messages.names import (
    MAX_PARTITIONS,
    AppId,
    Epoch,
    HostId,
    KeyGroup,
    OperatorId,
    WorkerId,
    decode_epoch,
)
from trimtab_protocol.messages.reason_text import check_reason
from trimtab_protocol.messages.refused_hosts import RefusedHosts, read_refused_hosts
from trimtab_protocol.messages.report import MAX_OPERATORS, MAX_STANDBYS, Absence, Basis, WorkerState

VERSION = 2
MAX_SNAPSHOT_BYTES = 1024 * 1024 * 1024
"""Size of a snapshot, unpacked."""
MAX_NODES = 100_000
"""Workers of one snapshot."""
MAX_DOUBTED = 20
"""Hosts of one snapshot that are named because of their signatures; the counts have them all."""
MAX_PAIRS = 50_000_000
"""Pairs of key groups that exchange tuples, of one snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWindow:
    """A host in the window: `cpu` = cores used, `cores` = cores it may use, `covered_s` = seconds that reports cover.

    `received_bytes_s`, `sent_bytes_s` = bytes per second, `link_bytes_s` = what its network can carry each way;
    `memory_bytes`, `type`, `speed`, `zone` and what is free on its disk (see `HostSample`) = last reported.
    """

    host: HostId
    covered_s: float
    cpu: float | None
    cores: float | None
    basis: Basis
    received_bytes_s: float | None = None
    sent_bytes_s: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    link_bytes_s: float | None = None
    type: str | None = None
    speed: float | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    zone: str | None = None

    @property
    def used_pct(self) -> float | None:
        """CPU in percent of the cores; None = unknown."""
        return None if self.cpu is None or not self.cores else 100.0 * self.cpu / self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWindow:
    """A worker process in the window: `capacity` and `cpu` in cores, `covered_s` = seconds that samples cover.

    `state`, `epoch`, `generation`, `steering`, `operators`, `standbys`, `reason`, `absence`, `declared`, `in_parts`,
    `fresh`, `copies` and `waiting` are as last reported (see `WorkerSample`).  `complete` is False when a sample in the
    window was marked partial, stale or clamped.  `unknown` = the last reason in the window why loads were unknown.
    `also_on` = other hosts on which a process of this name ran meanwhile; `claimed_by` = those whose word does not
    count, because `host` had it before and still reports it.  `following` = cores, of `cpu`, that it took
    to keep warm what it follows.  `paused_s` = key-group seconds for which inputs stood still at rebalances that ended
    in the window, `paused` = of how many key groups; None = nobody measures it.
    """

    worker: WorkerId
    host: HostId
    app: AppId | None
    state: WorkerState
    capacity: float
    covered_s: float
    cpu: float | None
    complete: bool
    steering: bool
    memory_bytes: int | None = None
    epoch: Epoch | None = None
    generation: int | None = None
    operators: Mapping[OperatorId, int] | None = None
    standbys: int | None = None
    unknown: str | None = None
    reason: str | None = None
    also_on: tuple[HostId, ...] = ()
    absence: Absence | None = None
    declared: AppId | None = None
    in_parts: bool = False
    fresh: bool = False
    copies: tuple[Copy, ...] = ()
    following: float | None = None
    paused_s: float | None = None
    paused: int | None = None
    waiting: float | None = None
    claimed_by: tuple[HostId, ...] = ()

    def __post_init__(self) -> None:
        if self.operators is not None:
            object.__setattr__(self, "operators", MappingProxyType(dict(self.operators)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWindow:
    """Tuples and bytes per second from one key group to another; `direct_s` of the tuples skipped the broker."""

    source: KeyGroup
    target: KeyGroup
    tuples_s: float
    bytes_s: float
    direct_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One window [start_ms, end_ms) of a cluster, in epoch milliseconds.

    `hosts_seen` of `hosts_expected` hosts reported the whole window; `late_rows` arrived after the watermark and were
    dropped; `rejected` counts refused reports and samples by reason, since the stream started.  `key_groups` becomes a
    `KeyGroupTable`, from any sequence.  Where the stream checks the signatures of hosts, `unsigned` counts by reason
    the reports that are used without a good one, since it started; `doubted` names hosts of such reports, used or not.
    `refused` = in whose name the reports of `rejected` came, also since the stream started.  `ended` = hosts whose last
    report says that their agents were told to end.
    """

    cluster: str
    start_ms: int
    end_ms: int
    published_ms: int
    hosts_seen: int
    hosts_expected: int
    watermark_ms: int | None
    late_rows: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    hosts: tuple[HostWindow, ...] = ()
    nodes: tuple[NodeWindow, ...] = ()
    key_groups: Sequence[KeyGroupWindow] = ()
    pairs: tuple[PairWindow, ...] = ()
    unsigned: Mapping[str, int] = field(default_factory=dict)
    doubted: Mapping[HostId, str] = field(default_factory=dict)
    refused: RefusedHosts = field(default_factory=RefusedHosts)
    ended: tuple[HostId, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_groups", KeyGroupTable.of(self.key_groups))
        object.__setattr__(self, "rejected", MappingProxyType(dict(self.rejected)))
        object.__setattr__(self, "unsigned", MappingProxyType(dict(self.unsigned)))
        object.__setattr__(self, "doubted", MappingProxyType(dict(self.doubted)))

    @property
    def blocks(self) -> tuple[KeyGroupBlock, ...]:
        """The key groups as blocks of columns."""
        return KeyGroupTable.of(self.key_groups).blocks

    @property
    def coverage(self) -> float:
        """Hosts seen / hosts expected; 0 when none is expected."""
        return self.hosts_seen / self.hosts_expected if self.hosts_expected else 0.0


_HOST = (
    "host",
    "covered_s",
    "cpu",
    "cores",
    "basis",
    "received_bytes_s",
    "sent_bytes_s",
    "memory_bytes",
    "memory_limit_bytes",
)
_HOST_LATER = ("link_bytes_s", "type", "speed", "disk_total_bytes", "disk_free_bytes", "zone")
_NODE = ("worker", "host", "app", "state", "capacity", "covered_s", "cpu", "complete", "steering", "memory_bytes")
_PAIR = {
    "source": "source.partition",
    "target": "target.partition",
    "tuples_s": "tuples_s",
    "bytes_s": "bytes_s",
}
_PAIR_LATER = {"direct_s": "direct_s"}
_SIGNATURES = ("unsigned", "doubted")


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as JSON, neither compressed nor chunked."""
    document = {
        "v": VERSION,
        "cluster": snapshot.cluster,
        "start_ms": snapshot.start_ms,
        "end_ms": snapshot.end_ms,
        "published_ms": snapshot.published_ms,
        "hosts_seen": snapshot.hosts_seen,
        "hosts_expected": snapshot.hosts_expected,
        "watermark_ms": snapshot.watermark_ms,
        "late_rows": snapshot.late_rows,
        "rejected": dict(snapshot.rejected),
        "hosts": [_host_document(row) for row in snapshot.hosts],
        "nodes": [_node_document(row) for row in snapshot.nodes],
        "pairs": _pair_blocks(snapshot.pairs),
    }
    document |= {name: dict(found) for name in _SIGNATURES if (found := getattr(snapshot, name))}
    if snapshot.ended:
        document["ended"] = list(snapshot.ended)
    if snapshot.refused.worst:
        document["refused"] = snapshot.refused.document
    # Encode block by block: a fleet's numbers as one document take half a gigabyte of Python objects.
    blocks = b",".join(encode(block_document(block)) for block in snapshot.blocks)
    return b"".join((encode(document)[:-1], b',"key_groups":[', blocks, b"]}"))


def _host_document(row: HostWindow) -> dict[str, Any]:
    known = {name: value for name in _HOST_LATER if (value := getattr(row, name)) is not None}
    return {name: getattr(row, name) for name in _HOST} | known


def _node_document(row: NodeWindow) -> dict[str, Any]:
    document = {name: getattr(row, name) for name in _NODE}
    document |= {"epoch": list(row.epoch) if row.epoch else None, "generation": row.generation}
    operators = None if row.operators is None else dict(row.operators)
    also_on = list(row.also_on) or None
    later: dict[str, Any] = {"operators": operators, "standbys": row.standbys, "unknown": row.unknown}
    later |= {"reason": row.reason, "also_on": also_on, "absence": row.absence, "declared": row.declared}
    later |= {"in_parts": row.in_parts or None, "fresh": row.fresh or None, "following": row.following}
    later |= {"copies": copy_columns(row.copies) or None, "paused_s": row.paused_s, "paused": row.paused}
    later |= {"waiting": row.waiting, "claimed_by": list(row.claimed_by) or None}
    return document | {name: value for name, value in later.items() if value is not None}


def _pair_blocks(windows: Iterable[PairWindow]) -> list[dict[str, Any]]:
    blocks = defaultdict(list)
    for window in windows:
        blocks[window.source[:2], window.target[:2]].append(window)
    return [
        {"from": list(source), "to": list(target), **columns_of(rows, _PAIR), **known_columns(rows, _PAIR_LATER)}
        for (source, target), rows in blocks.items()
    ]


def decode_snapshot(payload: bytes | None) -> Snapshot:
    """The snapshot in this JSON; raises BadMessage."""
    fields = parse(payload, version=VERSION, limit=MAX_SNAPSHOT_BYTES)
    snapshot = Snapshot(
        cluster=fields.name("cluster"),
        start_ms=fields.integer("start_ms"),
        end_ms=fields.integer("end_ms"),
        published_ms=fields.integer("published_ms"),
        hosts_seen=fields.integer("hosts_seen"),
        hosts_expected=fields.integer("hosts_expected"),
        watermark_ms=fields.optional("watermark_ms", fields.integer),
        late_rows=fields.integer("late_rows"),
        rejected=_read_faults(fields, "rejected"),
        unsigned=fields.optional("unsigned", lambda name: _read_faults(fields, name)) or {},
        doubted=fields.optional("doubted", lambda name: _read_doubted(fields, name)) or {},
        refused=fields.optional("refused", lambda name: read_refused_hosts(fields.fields(name))) or RefusedHosts(),
        ended=tuple(map(HostId, read_names(fields, "ended", limit=MAX_NODES))) if fields.has("ended") else (),
        hosts=tuple(_read_host(row) for row in fields.objects("hosts", limit=MAX_NODES)),
        nodes=tuple(_read_node(row) for row in fields.objects("nodes", limit=MAX_NODES)),
        key_groups=read_blocks(fields, "key_groups"),
        pairs=_read_pairs(fields),
    )
    check_once("hosts", [row.host for row in snapshot.hosts])
    check_once("nodes", [row.worker for row in snapshot.nodes])
    return snapshot


def _read_faults(fields: Fields, name: str) -> dict[str, int]:
    return {fault: check_integer(count, path, 0, 2**63 - 1) for fault, path, count in fields.members(name, limit=1000)}


def _read_doubted(fields: Fields, name: str) -> dict[HostId, str]:
    return {HostId(host): check_name(fault, path) for host, path, fault in fields.members(name, limit=MAX_DOUBTED)}


def _read_host(fields: Fields) -> HostWindow:
    return HostWindow(
        host=HostId(fields.name("host")),
        covered_s=fields.number("covered_s"),
        cpu=fields.optional("cpu", fields.number),
        cores=fields.optional("cores", fields.number),
        basis=fields.choice("basis", Basis),
        received_bytes_s=fields.optional("received_bytes_s", fields.number),
        sent_bytes_s=fields.optional("sent_bytes_s", fields.number),
        memory_bytes=fields.optional("memory_bytes", fields.integer),
        memory_limit_bytes=fields.optional("memory_limit_bytes", fields.integer),
        link_bytes_s=fields.optional("link_bytes_s", fields.number),
        type=fields.optional("type", fields.name),
        speed=fields.optional("speed", lambda name: fields.number(name, low=0.001, high=MAX_SPEED)),
        disk_total_bytes=fields.optional("disk_total_bytes", fields.integer),
        disk_free_bytes=fields.optional("disk_free_bytes", fields.integer),
        zone=fields.optional("zone", fields.name),
    )


def _read_node(fields: Fields) -> NodeWindow:
    app = fields.optional("app", fields.name)
    return NodeWindow(
        worker=WorkerId(fields.name("worker")),
        host=HostId(fields.name("host")),
        app=AppId(app) if app else None,
        state=fields.choice("state", WorkerState),
        capacity=fields.number("capacity", low=0.001),
        covered_s=fields.number("covered_s"),
        cpu=fields.optional("cpu", fields.number),
        complete=fields.flag("complete"),
        steering=fields.flag("steering"),
        memory_bytes=fields.optional("memory_bytes", fields.integer),
        epoch=fields.optional("epoch", lambda name: decode_epoch(fields.take(name), fields.at(name))),
        generation=fields.optional("generation", fields.integer),
        operators=fields.optional("operators", lambda name: _read_counts(fields, name)),
        standbys=fields.optional("standbys", lambda name: fields.integer(name, high=MAX_STANDBYS)),
        unknown=fields.optional("unknown", lambda name: check_reason(fields.take(name), fields.at(name))),
        reason=fields.optional("reason", lambda name: check_reason(fields.take(name), fields.at(name))),
        also_on=tuple(map(HostId, read_names(fields, "also_on", limit=MAX_NODES))) if fields.has("also_on") else (),
        claimed_by=tuple(map(HostId, read_names(fields, "claimed_by", limit=MAX_NODES)))
        if fields.has("claimed_by")
        else (),
        absence=fields.optional("absence", lambda name: fields.choice(name, Absence)),
        declared=fields.optional("declared", lambda name: AppId(fields.name(name))),
        in_parts=fields.optional("in_parts", fields.flag) or False,
        fresh=fields.optional("fresh", fields.flag) or False,
        copies=fields.optional("copies", lambda name: read_copies(fields.fields(name))) or (),
        following=fields.optional("following", fields.number),
        paused_s=fields.optional("paused_s", fields.number),
        paused=fields.optional("paused", fields.integer),
        waiting=fields.optional("waiting", lambda name: fields.number(name, high=1.0)),
    )


def _read_counts(fields: Fields, name: str) -> dict[OperatorId, int]:
    return {
        OperatorId(operator): check_integer(count, path, 1, MAX_PARTITIONS)
        for operator, path, count in fields.members(name, limit=MAX_OPERATORS)
    }


def _read_pairs(fields: Fields) -> tuple[PairWindow, ...]:
    windows: list[PairWindow] = []
    for block in fields.objects("pairs", limit=MAX_PAIRS):
        size = read_size(block, "source", limit=MAX_PAIRS - len(windows))
        source, target = _read_operator(block, "from"), _read_operator(block, "to")
        ends = [read_integers(block, name, size, high=MAX_PARTITIONS) for name in ("source", "target")]
        rates = [read_numbers(block, name, size) for name in ("tuples_s", "bytes_s")]
        known = read_known_numbers(block, "direct_s", size)
        windows += [
            PairWindow(
                source=KeyGroup(*source, from_partition),
                target=KeyGroup(*target, to_partition),
                tuples_s=tuples_s,
                bytes_s=bytes_s,
                direct_s=direct_s,
            )
            for from_partition, to_partition, tuples_s, bytes_s, direct_s in zip(*ends, *rates, known, strict=True)
        ]
    return tuple(windows)


def _read_operator(fields: Fields, name: str) -> tuple[AppId, OperatorId]:
    names = read_names(fields, name, limit=2)
    if len(names) != 2:
        raise BadMessage(Fault.RANGE, fields.at(name), names, "[app, operator]")
    return AppId(names[0]), OperatorId(names[1])
