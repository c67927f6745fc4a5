"""The snapshot: what the stream saw of the whole cluster in one window.  Stream -> decider.

Rates are per second over the seconds that were really covered by samples; a key group without samples is absent.
A snapshot travels zstd-compressed in chunks (the stream's and the decider's adapters do that); here is its document.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trimtab_models.messages.decode import Fields, check_integer, encode, parse
from trimtab_models.messages.names import AppId, Epoch, HostId, KeyGroup, WorkerId, decode_epoch, parse_key_group
from trimtab_models.messages.report import Basis, WorkerState

VERSION = 1
MAX_SNAPSHOT_BYTES = 1024 * 1024 * 1024
MAX_NODES = 100_000
MAX_KEY_GROUPS = 10_000_000
MAX_PAIRS = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWindow:
    """`cpu` = cores used, `cores` = what it may use, bytes per second, `covered_s` = seconds with reports."""

    host: HostId
    covered_s: float
    cpu: float | None
    cores: float | None
    basis: Basis
    received_bytes_s: float | None = None
    sent_bytes_s: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWindow:
    """A worker process: `capacity` and `cpu` in cores; `state`, `epoch`, `generation`, `steering` as last reported.

    `complete` is False when any of its samples in the window was marked partial, stale or clamped.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupWindow:
    """A key group: `worker` = owner that reported it last, `cpu` in cores, rates per second, levels as last seen."""

    key_group: KeyGroup
    worker: WorkerId
    covered_s: float
    cpu: float | None
    tuples_in_s: float | None
    tuples_out_s: float | None = None
    bytes_in_s: float | None = None
    bytes_out_s: float | None = None
    state_bytes: int | None = None
    lag_records: int | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWindow:
    """Tuples and bytes per second from one key group to another."""

    source: KeyGroup
    target: KeyGroup
    tuples_s: float
    bytes_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One window [start_ms, end_ms) of a cluster.

    `hosts_seen` of `hosts_expected` reported in the whole window; `late_rows` came after the watermark;
    `rejected` counts refused reports and samples by reason, since the stream started.
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
    key_groups: tuple[KeyGroupWindow, ...] = ()
    pairs: tuple[PairWindow, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rejected", MappingProxyType(dict(self.rejected)))

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
_NODE = ("worker", "host", "app", "state", "capacity", "covered_s", "cpu", "complete", "steering", "memory_bytes")
_KEY_GROUP = (
    "worker",
    "covered_s",
    "cpu",
    "tuples_in_s",
    "tuples_out_s",
    "bytes_in_s",
    "bytes_out_s",
    "state_bytes",
    "lag_records",
    "backlog",
)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The document, not yet compressed or chunked."""
    return encode(
        {
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
            "hosts": [{name: getattr(row, name) for name in _HOST} for row in snapshot.hosts],
            "nodes": [_node_document(row) for row in snapshot.nodes],
            "key_groups": [_key_group_document(row) for row in snapshot.key_groups],
            "pairs": [
                {"source": str(row.source), "target": str(row.target), "tuples_s": row.tuples_s, "bytes_s": row.bytes_s}
                for row in snapshot.pairs
            ],
        }
    )


def _node_document(row: NodeWindow) -> dict[str, Any]:
    epoch = list(row.epoch) if row.epoch else None
    return {**{name: getattr(row, name) for name in _NODE}, "epoch": epoch, "generation": row.generation}


def _key_group_document(row: KeyGroupWindow) -> dict[str, Any]:
    return {"key_group": str(row.key_group), **{name: getattr(row, name) for name in _KEY_GROUP}}


def decode_snapshot(payload: bytes | None) -> Snapshot:
    """A snapshot from its document; raises BadMessage."""
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
        rejected={
            name: check_integer(count, path, 0, 2**63 - 1)
            for name, path, count in fields.members("rejected", limit=1000)
        },
        hosts=tuple(_read_host(row) for row in fields.objects("hosts", limit=MAX_NODES)),
        nodes=tuple(_read_node(row) for row in fields.objects("nodes", limit=MAX_NODES)),
        key_groups=tuple(_read_key_group(row) for row in fields.objects("key_groups", limit=MAX_KEY_GROUPS)),
        pairs=tuple(_read_pair(row) for row in fields.objects("pairs", limit=MAX_PAIRS)),
    )
    fields.done()
    return snapshot


def _read_host(fields: Fields) -> HostWindow:
    row = HostWindow(
        host=HostId(fields.name("host")),
        covered_s=fields.number("covered_s"),
        cpu=fields.optional("cpu", fields.number),
        cores=fields.optional("cores", fields.number),
        basis=fields.choice("basis", Basis),
        received_bytes_s=fields.optional("received_bytes_s", fields.number),
        sent_bytes_s=fields.optional("sent_bytes_s", fields.number),
        memory_bytes=fields.optional("memory_bytes", fields.integer),
        memory_limit_bytes=fields.optional("memory_limit_bytes", fields.integer),
    )
    fields.done()
    return row


def _read_node(fields: Fields) -> NodeWindow:
    app = fields.optional("app", fields.name)
    row = NodeWindow(
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
    )
    fields.done()
    return row


def _read_key_group(fields: Fields) -> KeyGroupWindow:
    row = KeyGroupWindow(
        key_group=parse_key_group(fields.text("key_group"), fields.at("key_group")),
        worker=WorkerId(fields.name("worker")),
        covered_s=fields.number("covered_s"),
        cpu=fields.optional("cpu", fields.number),
        tuples_in_s=fields.optional("tuples_in_s", fields.number),
        tuples_out_s=fields.optional("tuples_out_s", fields.number),
        bytes_in_s=fields.optional("bytes_in_s", fields.number),
        bytes_out_s=fields.optional("bytes_out_s", fields.number),
        state_bytes=fields.optional("state_bytes", fields.integer),
        lag_records=fields.optional("lag_records", fields.integer),
        backlog=fields.optional("backlog", fields.integer),
    )
    fields.done()
    return row


def _read_pair(fields: Fields) -> PairWindow:
    row = PairWindow(
        source=parse_key_group(fields.text("source"), fields.at("source")),
        target=parse_key_group(fields.text("target"), fields.at("target")),
        tuples_s=fields.number("tuples_s"),
        bytes_s=fields.number("bytes_s"),
    )
    fields.done()
    return row
