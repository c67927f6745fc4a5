"""The report of one host for one interval, and the samples in it.  Agent -> stream.

`cpu_s`, tuples and bytes are sums over the interval; `state_bytes`, `lag_records`, `backlog` and memory are values at
its end.  None means unknown.  A report holds thousands of key groups and pairs.  Those with the same names (worker,
app, operator) share a block, which has one array per quantity.  The stream reads the same keys with Spark SQL.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from trimtab_protocol.messages.columns import (
    check_once,
    columns_of,
    known_columns,
    read_integers,
    read_known_integers,
    read_known_numbers,
    read_names,
    read_size,
)
from trimtab_protocol.messages.copies import Copy, copy_columns, read_copies
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, encode, parse
from trimtab_protocol.messages.host_sample import Basis as Basis
from trimtab_protocol.messages.host_sample import HostSample as HostSample
from trimtab_protocol.messages.host_sample import read_host_sample
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

VERSION = 2
MAX_WORKERS = 1_000
"""Workers of one host."""
MAX_OPERATORS = 1_000
"""Operators that a worker may declare."""
MAX_STANDBYS = 1_000
"""Standbys per key group that a worker may ask for; the placement has fewer."""
MAX_KEY_GROUPS = 200_000
"""Key groups of one report."""
MAX_PAIRS = 1_000_000
"""Pairs of key groups that exchange tuples, of one report."""
COPY_KEYS = ("cpo", "cpp", "cpr")
"""Wire keys of the operators, partitions and records of copies."""
MAX_REPORT_BYTES = 8 * 1024 * 1024
"""Size of a report."""
MAX_CORES = 10_000
"""Cores of a host; CPU seconds above this times the interval are no measurement."""
MAX_COUNT = 2**53
"""Tuples, bytes or records in one sample; a float tells every such number from the next."""


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
    STALE = "stale"  # measured in an earlier interval
    CLAMPED = "clamped"  # a reading above a physical limit was reduced to it


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSample:
    """One worker process in one interval.

    `state` = what it does; `capacity` = cores that it may use; `cpu_s` = CPU seconds of the whole process;
    `memory_bytes` = resident set; `steering` = whether it takes commands; `epoch` = newest placement that it knows;
    `generation` = generation of its consumer group.  `operators` = number of key groups per operator of its app;
    `standbys` = standby replicas per key group that the app asks for; `unknown` = why the loads of its key groups are
    unknown in this interval (None when they are known); `reason` = why it only reports, or, while it steers, what it
    lacks; of an absent worker, how it ended.  `absence` = why a worker that the agent can start is away (None for any
    other, and while it is unknown).  `declared` = the app that the agent can start it for, running or not, if
    agent.toml says so.  `in_parts` = whether it reads placements that are published in parts; `fresh` = it started a
    short while ago, and its app had no state then.
    `copies` = the state on its disk of key groups that it neither owns nor follows; none = unknown.  `following_s` =
    CPU seconds, of `cpu_s`, that it took to keep warm what it follows.  `paused_s` = key-group seconds for which its
    inputs stood still at rebalances of the group that ended in this interval; `paused` = of how many key groups.
    `waiting` = share of the last seconds in which its main thread was ready to run and got no core; None = unknown.
    """

    worker: WorkerId
    app: AppId | None
    state: WorkerState
    capacity: float
    cpu_s: float | None
    memory_bytes: int | None = None
    steering: bool = False
    epoch: Epoch | None = None
    generation: int | None = None
    marks: tuple[Mark, ...] = ()
    operators: Mapping[OperatorId, int] | None = None
    standbys: int | None = None
    unknown: str | None = None
    reason: str | None = None
    absence: Absence | None = None
    declared: AppId | None = None
    in_parts: bool = False
    fresh: bool = False
    copies: tuple[Copy, ...] = ()
    following_s: float | None = None
    paused_s: float | None = None
    paused: int | None = None
    waiting: float | None = None

    def __post_init__(self) -> None:
        if self.operators is not None:
            object.__setattr__(self, "operators", MappingProxyType(dict(self.operators)))

    def document(self) -> dict[str, Any]:
        """Wire keys: w, a, s, cap, cpu, mem, st, ep, g, m; maybe those of `later`, with os, oc for the operators."""
        operators = self.operators
        names, counts = (None, None) if operators is None else (list(operators), list(operators.values()))
        later: dict[str, Any] = {
            "os": names,
            "oc": counts,
            "sby": self.standbys,
            "unk": self.unknown,
            "why": self.reason,
        }
        later |= {"off": self.absence, "dap": self.declared, "pip": self.in_parts or None, "fsh": self.fresh or None}
        later |= {"fol": self.following_s, "psd": self.paused_s, "psk": self.paused, "wai": self.waiting}
        later |= copy_columns(self.copies, COPY_KEYS)
        return self._first_document() | {key: value for key, value in later.items() if value is not None}

    def _first_document(self) -> dict[str, Any]:
        return {
            "w": self.worker,
            "a": self.app,
            "s": self.state,
            "cap": self.capacity,
            "cpu": self.cpu_s,
            "mem": self.memory_bytes,
            "st": self.steering,
            "ep": list(self.epoch) if self.epoch else None,
            "g": self.generation,
            "m": list(self.marks),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroupSample:
    """One key group at its present owner, in one interval.

    `cpu_s` = CPU seconds spent on it: the steps of its agents, plus its share of the worker's transport; `tuples_in`,
    `bytes_in` = consumed input; `tuples_out`, `bytes_out` = sent output; `state_bytes` = size of its tables;
    `lag_records` = changelog records that a new owner would have to replay; `backlog` = input tuples in Kafka that no
    agent has begun.
    """

    key_group: KeyGroup
    worker: WorkerId
    cpu_s: float | None
    tuples_in: int | None
    tuples_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    state_bytes: int | None = None
    lag_records: int | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSample:
    """Tuples and bytes that one key group sent to another of the same app.

    `direct` = how many of the tuples skipped the broker (local topics of Faust apps); the others went through it.
    """

    source: KeyGroup
    target: KeyGroup
    tuples: int
    bytes: int
    direct: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One host in the interval of `interval_s` seconds that ended at `at_ms` (epoch milliseconds).

    `sequence` = number of the report since the agent's start; `sample` = the host itself.
    """

    cluster: str
    host: HostId
    at_ms: int
    interval_s: float
    sequence: int
    sample: HostSample
    workers: tuple[WorkerSample, ...]
    key_groups: tuple[KeyGroupSample, ...]
    pairs: tuple[PairSample, ...] = ()

    def document(self) -> dict[str, Any]:
        """Wire keys: v, c, h, t, i, q, n (host), w (workers), k (blocks of key groups), e (blocks of pairs)."""
        return {
            "v": VERSION,
            "c": self.cluster,
            "h": self.host,
            "t": self.at_ms,
            "i": self.interval_s,
            "q": self.sequence,
            "n": self.sample.document(),
            "w": [worker.document() for worker in self.workers],
            "k": _key_group_blocks(self.key_groups),
            "e": _pair_blocks(self.pairs),
        }


def encode_report(report: Report) -> bytes:
    """The report as bytes."""
    return encode(report.document())


def decode_report(payload: bytes | None) -> Report:
    """The report in these bytes; raises BadMessage."""
    fields = parse(payload, version=VERSION, limit=MAX_REPORT_BYTES)
    return Report(
        cluster=fields.name("c"),
        host=HostId(fields.name("h")),
        at_ms=fields.integer("t"),
        interval_s=fields.number("i", low=0.001, high=3600.0),
        sequence=fields.integer("q"),
        sample=read_host_sample(fields.fields("n")),
        workers=tuple(_read_worker(row) for row in fields.objects("w", limit=MAX_WORKERS)),
        key_groups=_read_key_groups(fields),
        pairs=_read_pairs(fields),
    )


# The stream parses blocks and workers as one type: a key may occur in both only with the same type.
_KEY_GROUP_COLUMNS = {
    "p": "key_group.partition",
    "c": "cpu_s",
    "ni": "tuples_in",
    "no": "tuples_out",
    "bi": "bytes_in",
    "bo": "bytes_out",
    "sb": "state_bytes",
    "lg": "lag_records",
    "bl": "backlog",
}
_PAIR_COLUMNS = {"fp": "source.partition", "tp": "target.partition", "n": "tuples", "b": "bytes"}
_LATER_PAIR_COLUMNS = {"dir": "direct"}


def _key_group_blocks(samples: Iterable[KeyGroupSample]) -> list[dict[str, Any]]:
    blocks = defaultdict(list)
    for sample in samples:
        blocks[sample.worker, sample.key_group.app, sample.key_group.operator].append(sample)
    return [{"w": w, "a": a, "o": o, **columns_of(rows, _KEY_GROUP_COLUMNS)} for (w, a, o), rows in blocks.items()]


def _pair_blocks(samples: Iterable[PairSample]) -> list[dict[str, Any]]:
    blocks = defaultdict(list)
    for sample in samples:
        blocks[sample.source.app, sample.source.operator, sample.target.operator].append(sample)
    return [
        {"a": a, "fo": fo, "to": to, **columns_of(rows, _PAIR_COLUMNS), **known_columns(rows, _LATER_PAIR_COLUMNS)}
        for (a, fo, to), rows in blocks.items()
    ]


def _read_key_groups(fields: Fields) -> tuple[KeyGroupSample, ...]:
    samples: list[KeyGroupSample] = []
    for block in fields.objects("k", limit=MAX_KEY_GROUPS):
        size = read_size(block, "p", limit=MAX_KEY_GROUPS - len(samples))
        worker, app, operator = WorkerId(block.name("w")), AppId(block.name("a")), OperatorId(block.name("o"))
        partitions = read_integers(block, "p", size, high=MAX_PARTITIONS)
        cpu = read_known_numbers(block, "c", size)
        counts = [read_known_integers(block, key, size) for key in ("ni", "no", "bi", "bo", "sb", "lg", "bl")]
        samples += [
            KeyGroupSample(
                key_group=KeyGroup(app, operator, partition),
                worker=worker,
                cpu_s=cpu_s,
                tuples_in=tuples_in,
                tuples_out=tuples_out,
                bytes_in=bytes_in,
                bytes_out=bytes_out,
                state_bytes=state_bytes,
                lag_records=lag_records,
                backlog=backlog,
            )
            for partition, cpu_s, (
                tuples_in,
                tuples_out,
                bytes_in,
                bytes_out,
                state_bytes,
                lag_records,
                backlog,
            ) in zip(partitions, cpu, zip(*counts, strict=True), strict=True)
        ]
    return tuple(samples)


def _read_pairs(fields: Fields) -> tuple[PairSample, ...]:
    samples: list[PairSample] = []
    for block in fields.objects("e", limit=MAX_PAIRS):
        size = read_size(block, "fp", limit=MAX_PAIRS - len(samples))
        app = AppId(block.name("a"))
        source, target = OperatorId(block.name("fo")), OperatorId(block.name("to"))
        ends = [read_integers(block, key, size, high=MAX_PARTITIONS) for key in ("fp", "tp")]
        counts = [read_integers(block, key, size) for key in ("n", "b")]
        known = read_known_integers(block, "dir", size)
        samples += [
            PairSample(
                source=KeyGroup(app, source, from_partition),
                target=KeyGroup(app, target, to_partition),
                tuples=tuples,
                bytes=transferred,
                direct=direct,
            )
            for from_partition, to_partition, tuples, transferred, direct in zip(*ends, *counts, known, strict=True)
        ]
    return tuple(samples)


def _read_worker(fields: Fields) -> WorkerSample:
    app = fields.optional("a", fields.name)
    return WorkerSample(
        worker=WorkerId(fields.name("w")),
        app=AppId(app) if app else None,
        state=fields.choice("s", WorkerState),
        capacity=fields.number("cap", low=0.001, high=10_000.0),
        cpu_s=fields.optional("cpu", fields.number),
        memory_bytes=fields.optional("mem", fields.integer),
        steering=fields.flag("st"),
        epoch=fields.optional("ep", lambda name: decode_epoch(fields.take(name), fields.at(name))),
        generation=fields.optional("g", fields.integer),
        marks=tuple(_read_mark(path, value) for path, value in fields.items("m", limit=len(Mark))),
        operators=_read_operators(fields),
        standbys=fields.optional("sby", lambda name: fields.integer(name, high=MAX_STANDBYS)),
        unknown=fields.optional("unk", lambda name: check_reason(fields.take(name), fields.at(name))),
        reason=fields.optional("why", lambda name: check_reason(fields.take(name), fields.at(name))),
        absence=fields.optional("off", lambda name: fields.choice(name, Absence)),
        declared=fields.optional("dap", lambda name: AppId(fields.name(name))),
        in_parts=fields.optional("pip", fields.flag) or False,
        fresh=fields.optional("fsh", fields.flag) or False,
        copies=read_copies(fields, COPY_KEYS),
        following_s=fields.optional("fol", fields.number),
        paused_s=fields.optional("psd", fields.number),
        paused=fields.optional("psk", fields.integer),
        waiting=fields.optional("wai", lambda name: fields.number(name, high=1.0)),
    )


def _read_operators(fields: Fields) -> dict[OperatorId, int] | None:
    if not (fields.has("os") or fields.has("oc")):
        return None
    size = read_size(fields, "os", limit=MAX_OPERATORS)
    names = read_names(fields, "os", limit=MAX_OPERATORS)
    check_once(fields.at("os"), names)
    counts = read_integers(fields, "oc", size, high=MAX_PARTITIONS)
    if 0 in counts:
        raise BadMessage(Fault.RANGE, fields.at("oc"), 0, f"1 to {MAX_PARTITIONS} key groups")
    return dict(zip(map(OperatorId, names), counts, strict=True))


def _read_mark(path: str, value: object) -> Mark:
    if not isinstance(value, str) or value not in set(Mark):
        raise BadMessage(Fault.RANGE, path, value, "one of " + ", ".join(Mark))
    return Mark(value)
