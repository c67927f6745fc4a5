"""The snapshot: all measurements of one cluster in one window.  Stream -> decider.

Rates are per second, over the seconds that samples cover.  A key group without samples is absent.  A fleet has a
million key groups, so key groups and pairs are in blocks per operator, with one array per quantity.  This module
encodes the document; the adapters of the stream and the decider compress it (zstd) and split it into chunks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import (
    Columns,
    Distinct,
    Key,
    Most,
    Name,
    Range,
    Total,
    Wire,
    WrittenAs,
    encoded,
)
from trimtab_protocol.messages.copies import Copies
from trimtab_protocol.messages.decode import MAX_NUMBER
from trimtab_protocol.messages.key_group_table import MAX_KEY_GROUPS, KeyGroupBlock, KeyGroupTable
from trimtab_protocol.messages.key_group_table import KeyGroupWindow as KeyGroupWindow
from trimtab_protocol.messages.names import (
    MAX_PARTITIONS,
    AppId,
    Epoch,
    HostId,
    KeyGroup,
    OperatorId,
    Topic,
    WorkerId,
)
from trimtab_protocol.messages.reason_text import Reason
from trimtab_protocol.messages.refused_hosts import RefusedHosts
from trimtab_protocol.messages.report import MAX_OPERATORS, MAX_SPEED, MAX_STANDBYS, Absence, Basis, WorkerState

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
    type: Name | None = None
    speed: Annotated[float | None, Range(0.001, MAX_SPEED)] = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    zone: Name | None = None

    @property
    def used_pct(self) -> float | None:
        """CPU in percent of the cores; None = unknown."""
        return None if self.cpu is None or not self.cores else 100.0 * self.cpu / self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWindow:
    """A worker process in the window: `capacity` and `cpu` in cores, `covered_s` = seconds that samples cover.

    `state`, `epoch`, `generation`, `steering`, `operators`, `standbys`, `cold`, `reason`, `absence`, `declared`,
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
    capacity: Annotated[float, Range(0.001, MAX_NUMBER)]
    covered_s: float
    cpu: float | None
    complete: bool
    steering: bool
    memory_bytes: int | None = None
    epoch: Epoch | None = None
    generation: int | None = None
    operators: Annotated[Mapping[OperatorId, Annotated[int, Range(1, MAX_PARTITIONS)]] | None, Most(MAX_OPERATORS)] = (
        None
    )
    standbys: Annotated[int | None, Range(0, MAX_STANDBYS)] = None
    cold: int | None = None
    unknown: Reason | None = None
    reason: Reason | None = None
    also_on: Annotated[tuple[HostId, ...], Most(MAX_NODES)] = ()
    absence: Absence | None = None
    declared: AppId | None = None
    fresh: bool = False
    copies: Copies = ()
    following: float | None = None
    paused_s: float | None = None
    paused: int | None = None
    waiting: Annotated[float | None, Range(0.0, 1.0)] = None
    claimed_by: Annotated[tuple[HostId, ...], Most(MAX_NODES)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWindow:
    """Tuples and bytes per second from one key group to another by a topic; `direct_s` skipped the broker.

    `topic` None: an older plug-in does not tell; then the tuples of all topics are together.
    """

    source: KeyGroup
    target: KeyGroup
    tuples_s: float
    bytes_s: float
    direct_s: float | None = None
    topic: Topic | None = None


PairRow = tuple[
    Annotated[int, Range(0, MAX_PARTITIONS)], Annotated[int, Range(0, MAX_PARTITIONS)], float, float, float | None
]
"""The partitions of source and target, and the rates of a `PairWindow`."""


@dataclass(frozen=True, slots=True)
class PairBlock:
    """The pairs between two operators by one topic, each operator with its app."""

    source: Annotated[tuple[AppId, OperatorId], Key("from")]
    target: Annotated[tuple[AppId, OperatorId], Key("to")]
    rows: Annotated[tuple[PairRow, ...], Columns(("source", "target", "tuples_s", "bytes_s", "direct_s"), MAX_PAIRS)]
    topic: Topic | None = None


_PAIR_ROW = attrgetter("source.partition", "target.partition", "tuples_s", "bytes_s", "direct_s")


def _pair_blocks(windows: Iterable[PairWindow]) -> list[PairBlock]:
    blocks = defaultdict(list)
    for each in windows:
        blocks[each.source[:2], each.target[:2], each.topic].append(_PAIR_ROW(each))
    return [PairBlock(source, target, tuple(rows), topic) for (source, target, topic), rows in blocks.items()]


def _pair_windows(blocks: Iterable[PairBlock]) -> tuple[PairWindow, ...]:
    return tuple(
        [
            PairWindow(
                source=KeyGroup(*block.source, source),
                target=KeyGroup(*block.target, target),
                tuples_s=tuples_s,
                bytes_s=bytes_s,
                direct_s=direct_s,
                topic=block.topic,
            )
            for block in blocks
            for source, target, tuples_s, bytes_s, direct_s in block.rows
        ]
    )


Counts = Annotated[Mapping[str, int], Most(1000)]
"""How many, by reason."""
PairBlocks = Annotated[tuple[PairBlock, ...], Most(MAX_PAIRS), Total("rows", MAX_PAIRS)]
KeyGroupBlocks = Annotated[
    tuple[KeyGroupBlock, ...],
    Most(MAX_KEY_GROUPS),
    Total("partition", MAX_KEY_GROUPS),
    Distinct(("app", "operator")),
]


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

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_SNAPSHOT_BYTES)

    cluster: Name
    start_ms: int
    end_ms: int
    published_ms: int
    hosts_seen: int
    hosts_expected: int
    watermark_ms: int | None
    late_rows: int
    rejected: Counts = field(default_factory=dict)
    hosts: Annotated[tuple[HostWindow, ...], Most(MAX_NODES), Distinct(("host",))] = ()
    nodes: Annotated[tuple[NodeWindow, ...], Most(MAX_NODES), Distinct(("worker",))] = ()
    key_groups: Annotated[
        Sequence[KeyGroupWindow],
        WrittenAs(KeyGroupBlocks, lambda rows: KeyGroupTable.of(rows).blocks, KeyGroupTable),
    ] = ()
    pairs: Annotated[tuple[PairWindow, ...], WrittenAs(PairBlocks, _pair_blocks, _pair_windows)] = ()
    unsigned: Counts = field(default_factory=dict)
    doubted: Annotated[Mapping[HostId, Name], Most(MAX_DOUBTED)] = field(default_factory=dict)
    refused: RefusedHosts = field(default_factory=RefusedHosts)
    ended: Annotated[tuple[HostId, ...], Most(MAX_NODES)] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_groups", KeyGroupTable.of(self.key_groups))

    @property
    def blocks(self) -> tuple[KeyGroupBlock, ...]:
        """The key groups as blocks of columns."""
        return KeyGroupTable.of(self.key_groups).blocks

    @property
    def coverage(self) -> float:
        """Hosts seen / hosts expected; 0 when none is expected."""
        return self.hosts_seen / self.hosts_expected if self.hosts_expected else 0.0


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as JSON, neither compressed nor chunked."""
    # Encode block by block: a fleet's numbers as one document take half a gigabyte of Python objects.
    blocks = b",".join(map(encoded, snapshot.blocks))
    return b"".join((encoded(replace(snapshot, key_groups=()))[:-1], b',"key_groups":[', blocks, b"]}"))
