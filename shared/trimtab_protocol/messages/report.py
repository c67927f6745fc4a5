"""The report of one host for one interval, and the samples in it.  Agent -> stream.

`cpu_s`, tuples and bytes are sums over the interval; `state_bytes`, `lag_records`, `backlog` and memory are values at
its end.  None means unknown.  A report holds thousands of key groups and pairs.  Those with the same names (worker,
app, operator) share a block, which has one array per quantity.  The stream reads the same keys with Spark SQL.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import (
    Columns,
    Inline,
    Key,
    Most,
    Name,
    Range,
    Total,
    Wire,
    WrittenAs,
)
from trimtab_protocol.messages.copies import MAX_COPIES, Copy
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

MAX_SPEED = 1_000.0
"""Speed of a core, relative to one of speed 1."""
VERSION = 2
MAX_WORKERS = 1_000
"""Workers of one host."""
MAX_APPS = 200
"""Apps that one host may name in a window.  Each costs the decider 0.2 ms, and a sender can invent apps."""
MAX_OPERATORS = 1_000
"""Operators that a worker may declare."""
MAX_STANDBYS = 1_000
"""Standbys per key group that a worker may ask for; the placement has fewer."""
MAX_KEY_GROUPS = 200_000
"""Key groups of one report."""
MAX_PAIRS = 1_000_000
"""Pairs of key groups that exchange tuples, of one report."""
MAX_REPORT_BYTES = 8 * 1024 * 1024
"""Size of a report."""
MAX_CORES = 10_000
"""Cores of a host; CPU seconds above this times the interval are no measurement."""
MAX_COUNT = 2**53
"""Tuples, bytes or records in one sample; a float tells every such number from the next."""


class Basis(StrEnum):
    """Where the limits of a host's CPU figures come from."""

    CONFIG = "config"  # `cores` in agent.toml
    CGROUP = "cgroup"  # the limit of the agent's container
    HOST = "host"  # the whole machine


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The host (or container) in one interval.

    `cpu_s` = CPU seconds used; `cores` = cores it may use; `basis` = where that limit comes from; `received_bytes`,
    `sent_bytes` = network bytes in the interval; `memory_bytes` of `memory_limit_bytes` in use at its end;
    `link_bytes_s` = bytes per second that its network can carry each way.  Hosts of one `type` are taken to need the
    same CPU for the same work; `speed` = measured speed of one core, relative to one of speed 1.  `disk_free_bytes` of
    `disk_total_bytes` (used and free) are free on the disk of the workers' state: of several disks, on the one with the
    least free.  Hosts of one `zone` may fail together.  `ended`: the agent was told to end, and this is its last word.
    """

    cpu_s: Annotated[float | None, Key("cpu")]
    cores: Annotated[float | None, Key("cor")]
    basis: Annotated[Basis, Key("b")]
    received_bytes: Annotated[int | None, Key("rx")] = None
    sent_bytes: Annotated[int | None, Key("tx")] = None
    memory_bytes: Annotated[int | None, Key("mem")] = None
    memory_limit_bytes: Annotated[int | None, Key("lim")] = None
    link_bytes_s: Annotated[float | None, Key("lnk")] = None
    type: Annotated[Name | None, Key("typ")] = None
    speed: Annotated[float | None, Key("spd"), Range(0.001, MAX_SPEED)] = None
    disk_total_bytes: Annotated[int | None, Key("dkt")] = None
    disk_free_bytes: Annotated[int | None, Key("dkf")] = None
    zone: Annotated[Name | None, Key("zon")] = None
    ended: Annotated[bool, Key("bye")] = False


class WorkerState(StrEnum):
    """The state of a worker process."""

    RUNNING = "running"  # recovery is done, events are processed
    REBALANCING = "rebalancing"  # the consumer group changes its members
    RECOVERING = "recovering"  # restores state from changelogs
    AWAY = "away"  # configured on this host, but not connected to the agent


class Absence(StrEnum):
    """Why a worker that its agent can start is away."""

    STOPPED = "stopped"  # never started, stopped by a command, or ended on purpose
    STARTING = "starting"  # its process was started, or is about to be started again after a crash
    CRASHED = "crashed"  # it crashed too often or could not be started; the agent does not start it again by itself


class Mark(StrEnum):
    """Why the samples of a worker are incomplete or altered.  No mark = complete."""

    PARTIAL = "partial"  # some key groups or pairs are missing
    STALE = "stale"  # nothing was measured in this interval, nor in those before it
    CLAMPED = "clamped"  # a reading above a physical limit was reduced to it


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSample:
    """One worker process in one interval.

    `state` = what it does; `capacity` = cores that it may use; `cpu_s` = CPU seconds of the whole process;
    `memory_bytes` = resident set; `steering` = whether it takes commands; `epoch` = newest placement that it knows;
    `generation` = generation of its consumer group.  `operators` = number of key groups per operator of its app;
    `standbys` = standby replicas per key group that the app asks for; `cold` = key groups that the placement has it
    stand by for and whose state is not here yet (None = unknown; only with `standbys`); `unknown` = why the loads of
    its key groups are unknown in this interval (None when they are known); `reason` = why it only reports, or, while it
    steers, what it lacks; of an absent worker, how it ended.  `absence` = why a worker that the agent can start is away
    (None for any other, and while it is unknown).  `declared` = the app that the agent can start it for, running or
    not, if agent.toml says so.  `fresh` = it started a short while ago, and its app had no state then.  `copies` = the
    state on its disk of key groups that it neither owns nor follows; none = unknown.  `following_s` = CPU seconds, of
    `cpu_s`, that it took to keep warm what it follows.  `paused_s` = key-group seconds for which its inputs stood still
    at rebalances of the group that ended in this interval; `paused` = of how many key groups.  `waiting` = share of the
    last seconds in which its main thread was ready to run and got no core; None = unknown.
    """

    worker: Annotated[WorkerId, Key("w")]
    app: Annotated[AppId | None, Key("a")]
    state: Annotated[WorkerState, Key("s")]
    capacity: Annotated[float, Key("cap"), Range(0.001, 10_000.0)]
    cpu_s: Annotated[float | None, Key("cpu")]
    memory_bytes: Annotated[int | None, Key("mem")] = None
    steering: Annotated[bool, Key("st")]
    epoch: Annotated[Epoch | None, Key("ep")] = None
    """With number 0: the agent has obeyed a leader of a newer generation than that of any placement here."""
    generation: Annotated[int | None, Key("g")] = None
    marks: Annotated[tuple[Mark, ...], Key("m"), Most(len(Mark))]
    operators: Annotated[
        Mapping[OperatorId, Annotated[int, Range(1, MAX_PARTITIONS)]] | None, Columns(("os", "oc"), MAX_OPERATORS)
    ] = None
    standbys: Annotated[int | None, Key("sby"), Range(0, MAX_STANDBYS)] = None
    cold: Annotated[int | None, Key("cld")] = None
    unknown: Annotated[Reason | None, Key("unk")] = None
    reason: Annotated[Reason | None, Key("why")] = None
    absence: Annotated[Absence | None, Key("off")] = None
    declared: Annotated[AppId | None, Key("dap")] = None
    fresh: Annotated[bool, Key("fsh")] = False
    copies: Annotated[tuple[Copy, ...], Columns(("cpo", "cpp", "cpr"), MAX_COPIES, naming=2)] = ()
    following_s: Annotated[float | None, Key("fol")] = None
    paused_s: Annotated[float | None, Key("psd")] = None
    paused: Annotated[int | None, Key("psk")] = None
    waiting: Annotated[float | None, Key("wai"), Range(0.0, 1.0)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupSample:
    """One key group at its present owner, in one interval.

    `cpu_s` = CPU seconds spent on it: the steps of its agents, plus its share of the worker's transport; `tuples_in`,
    `bytes_in` = consumed input; `tuples_out`, `bytes_out` = sent output; `state_bytes` = size of its tables;
    `lag_records` = changelog records that a new owner would have to replay; `backlog` = input tuples in Kafka that no
    agent has begun.
    """

    key_group: Annotated[KeyGroup, Inline(("a", "o", "p"))]
    worker: Annotated[WorkerId, Key("w")]
    cpu_s: Annotated[float | None, Key("cpu")]
    tuples_in: Annotated[int | None, Key("ni")]
    tuples_out: Annotated[int | None, Key("no")] = None
    bytes_in: Annotated[int | None, Key("bi")] = None
    bytes_out: Annotated[int | None, Key("bo")] = None
    state_bytes: Annotated[int | None, Key("sb")] = None
    lag_records: Annotated[int | None, Key("lg")] = None
    backlog: Annotated[int | None, Key("bl")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSample:
    """Tuples and bytes that one key group sent to another of the same app.

    `direct` = how many of the tuples skipped the broker (local topics of Faust apps); the others went through it.
    `topic` = what they were sent to: there is one sample per pair and topic; None = an older plug-in, all together.
    """

    source: Annotated[KeyGroup, Inline(("a", "fo", "fp"))]
    target: Annotated[KeyGroup, Inline(("a", "to", "tp"))]
    tuples: Annotated[int, Key("n")]
    bytes: Annotated[int, Key("b")]
    direct: Annotated[int | None, Key("d")] = None
    topic: Annotated[Topic | None, Key("tpc")] = None


Partition = Annotated[int, Range(0, MAX_PARTITIONS)]
Count = int | None
KeyGroupRow = tuple[Partition, float | None, Count, Count, Count, Count, Count, Count, Count]
"""Partition, and the fields of a sample from `cpu_s` on."""
PairRow = tuple[Partition, Partition, int, int, Count]
"""The partitions of source and target, tuples, bytes, `direct`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKeyGroups:
    """The key groups of one operator at one worker."""

    worker: Annotated[WorkerId, Key("w")]
    app: Annotated[AppId, Key("a")]
    operator: Annotated[OperatorId, Key("o")]
    # The stream parses blocks and workers as one type: a key may occur in both only with the same type.
    rows: Annotated[
        tuple[KeyGroupRow, ...], Columns(("p", "c", "ni", "no", "bi", "bo", "sb", "lg", "bl"), MAX_KEY_GROUPS)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPairs:
    """The pairs between two operators, by one topic."""

    app: Annotated[AppId, Key("a")]
    source: Annotated[OperatorId, Key("fo")]
    target: Annotated[OperatorId, Key("to")]
    topic: Annotated[Topic | None, Key("tpc")] = None
    rows: Annotated[tuple[PairRow, ...], Columns(("fp", "tp", "n", "b", "dir"), MAX_PAIRS)]


_LOADS = ("cpu_s", "tuples_in", "tuples_out", "bytes_in", "bytes_out", "state_bytes", "lag_records", "backlog")
_KEY_GROUP_ROW = attrgetter("key_group.partition", *_LOADS)
_PAIR_ROW = attrgetter("source.partition", "target.partition", "tuples", "bytes", "direct")


def _key_group_blocks(samples: Iterable[KeyGroupSample]) -> list[ReportKeyGroups]:
    blocks = defaultdict(list)
    for each in samples:
        blocks[each.worker, each.key_group.app, each.key_group.operator].append(_KEY_GROUP_ROW(each))
    return [ReportKeyGroups(worker=w, app=a, operator=o, rows=tuple(rows)) for (w, a, o), rows in blocks.items()]


def _key_group_samples(blocks: Iterable[ReportKeyGroups]) -> tuple[KeyGroupSample, ...]:
    return tuple(
        [
            KeyGroupSample(
                key_group=KeyGroup(block.app, block.operator, partition),
                worker=block.worker,
                cpu_s=cpu_s,
                tuples_in=tuples_in,
                tuples_out=tuples_out,
                bytes_in=bytes_in,
                bytes_out=bytes_out,
                state_bytes=state_bytes,
                lag_records=lag_records,
                backlog=backlog,
            )
            for block in blocks
            for (
                partition, cpu_s, tuples_in, tuples_out, bytes_in, bytes_out, state_bytes, lag_records, backlog
            ) in block.rows
        ]
    )  # fmt: skip


def _pair_blocks(samples: Iterable[PairSample]) -> list[ReportPairs]:
    blocks = defaultdict(list)
    for each in samples:
        blocks[each.source.app, each.source.operator, each.target.operator, each.topic].append(_PAIR_ROW(each))
    return [
        ReportPairs(app=a, source=fo, target=to, topic=topic, rows=tuple(rows))
        for (a, fo, to, topic), rows in blocks.items()
    ]


def _pair_samples(blocks: Iterable[ReportPairs]) -> tuple[PairSample, ...]:
    return tuple(
        [
            PairSample(
                source=KeyGroup(block.app, block.source, source),
                target=KeyGroup(block.app, block.target, target),
                tuples=tuples,
                bytes=transferred,
                direct=direct,
                topic=block.topic,
            )
            for block in blocks
            for source, target, tuples, transferred, direct in block.rows
        ]
    )


KeyGroupBlocks = Annotated[tuple[ReportKeyGroups, ...], Most(MAX_KEY_GROUPS), Total("rows", MAX_KEY_GROUPS)]
PairBlocks = Annotated[tuple[ReportPairs, ...], Most(MAX_PAIRS), Total("rows", MAX_PAIRS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One host in the interval of `interval_s` seconds that ended at `at_ms` (epoch milliseconds).

    `sequence` = number of the report since the agent's start; `sample` = the host itself.
    """

    WIRE: ClassVar = Wire(version=VERSION, most_bytes=MAX_REPORT_BYTES)

    cluster: Annotated[Name, Key("c")]
    host: Annotated[HostId, Key("h")]
    at_ms: Annotated[int, Key("t")]
    interval_s: Annotated[float, Key("i"), Range(0.001, 3600.0)]
    sequence: Annotated[int, Key("q")]
    sample: Annotated[HostSample, Key("n")]
    workers: Annotated[tuple[WorkerSample, ...], Key("w"), Most(MAX_WORKERS)]
    key_groups: Annotated[
        tuple[KeyGroupSample, ...], Key("k"), WrittenAs(KeyGroupBlocks, _key_group_blocks, _key_group_samples)
    ]
    pairs: Annotated[tuple[PairSample, ...], Key("e"), WrittenAs(PairBlocks, _pair_blocks, _pair_samples)]
