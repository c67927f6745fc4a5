"""Frames between an engine plug-in and the agent of its host: one JSON object per line over a Unix socket.

The plug-in connects and sends `hello`; the agent answers `welcome`.  After that the plug-in sends statistics and acks,
and the agent sends commands.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from trimtab_protocol.messages.commands import Ack, Command, read_ack, read_command
from trimtab_protocol.messages.copies import Copy, copy_columns, read_copies
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_integer, check_text, encode, parse
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
from trimtab_protocol.messages.placement_parts import HEAD_VERSION
from trimtab_protocol.messages.reason_text import reason_text
from trimtab_protocol.messages.report import (
    MAX_KEY_GROUPS,
    MAX_PAIRS,
    MAX_STANDBYS,
    KeyGroupSample,
    PairSample,
    WorkerState,
)

VERSION = 1
PROTOCOL = 2
"""Protocol version of this code on the socket.  A plug-in names its own in `Hello.versions`, an agent in its welcome.
Fields that a version added are sent only to peers of that version: version 1 refuses unknown fields."""
PROTOCOL_KEY = "trimtab-protocol"
PLACEMENT_KEY = "trimtab-placement"
"""Under this key of `Hello.versions` a plug-in names the newest version of placements that it reads; 2: in parts."""
MAX_FRAME_BYTES = 8 * 1024 * 1024
"""Size of a frame between plug-in and agent."""
MAX_FAULTS = 100
"""Reasons for refused records in one frame of statistics."""
MAX_REASON = 4000
"""Characters of why a worker only reports; a report holds the first 200 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First frame of a worker process.

    `worker` = its unique name in the cluster; `steering` = whether it takes commands; `reason` = why not, or, while it
    does, what it lacks; `operators` = number of key groups per operator; `versions` = name -> version of what it runs
    (engine, plug-in), under `trimtab-protocol` the protocol version, and under `trimtab-placement` the newest version
    of placements that it reads.
    """

    app: AppId
    worker: WorkerId
    pid: int
    steering: bool
    reason: str | None
    operators: Mapping[OperatorId, int]
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", MappingProxyType(dict(self.operators)))
        object.__setattr__(self, "versions", MappingProxyType(dict(self.versions)))

    @property
    def protocol(self) -> int:
        """Newest protocol version that the plug-in reads; 1 when it names none."""
        return self._version(PROTOCOL_KEY)

    @property
    def in_parts(self) -> bool:
        """Whether the plug-in reads placements that are published in parts."""
        return self._version(PLACEMENT_KEY) >= HEAD_VERSION

    def _version(self, key: str) -> int:
        said = self.versions.get(key, "")
        return int(said) if re.fullmatch("[1-9][0-9]{0,8}", said) else 1

    def document(self) -> dict[str, Any]:
        """The message as JSON types."""
        return {
            "app": self.app,
            "worker": self.worker,
            "pid": self.pid,
            "steering": self.steering,
            "reason": self.reason,
            "operators": dict(self.operators),
            "versions": dict(self.versions),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The agent's answer to hello: its cluster and host, and the interval of statistics in seconds.

    `protocol` = newest protocol version that the agent reads; sent only to plug-ins that named theirs.  None = 1.
    """

    cluster: str
    host: HostId
    interval_s: float
    protocol: int | None = None

    def document(self) -> dict[str, Any]:
        """The message as JSON types."""
        document = {"cluster": self.cluster, "host": self.host, "interval_s": self.interval_s}
        return document if self.protocol is None else {**document, "protocol": self.protocol}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a worker measured in the interval of `interval_s` seconds that ended at `at_ms` (epoch milliseconds).

    `cpu_s` = CPU seconds of the process; `epoch` = newest placement that it knows; `generation` = generation of its
    consumer group; `complete` = whether `key_groups` lists all key groups that it owns; `pairs` = tuples between key
    groups; `refused` = refused placements and hand-over records since its start, by reason. Since protocol 2:
    `standbys` = standby replicas per key group that the app asks for; `unknown` = why the loads of the key groups are
    unknown in this interval, as `reason_text` returns it; `breaches` = times since its start that a changelog was about
    to overwrite state that the worker owns (it then ends itself); `fresh` = the worker started a short while ago, and
    its app had no state then (None = it had, or that is unknown); `copies` = state on its disk of key groups that it
    neither owns nor follows; `following_s` = CPU seconds, of `cpu_s`, for keeping the state of others warm (None =
    unknown); `paused_s` = key-group seconds for which inputs stood still at rebalances of the group that ended in this
    interval, or before the first one, `paused` = of how many key groups (None = unknown); `reset` = within the last
    hour the worker began at the first records of its topics although its tables have counted them (None = it did not,
    or that is unknown), `maybe_reset` = that may be so, but deleted records would look the same, `lost` = it found that
    inputs, or changes of its tables, were deleted before it read them (None likewise); `direct` of the pairs.
    """

    at_ms: int
    interval_s: float
    state: WorkerState
    cpu_s: float | None
    epoch: Epoch | None
    generation: int | None
    complete: bool
    key_groups: tuple[KeyGroupSample, ...]
    pairs: tuple[PairSample, ...]
    refused: Mapping[Fault, int] = field(default_factory=dict)
    standbys: int | None = None
    unknown: str | None = None
    breaches: int | None = None
    fresh: bool | None = None
    copies: tuple[Copy, ...] = ()
    following_s: float | None = None
    paused_s: float | None = None
    paused: int | None = None
    reset: bool | None = None
    maybe_reset: bool | None = None
    lost: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "refused", MappingProxyType(dict(self.refused)))
        if self.unknown is not None:
            object.__setattr__(self, "unknown", reason_text(self.unknown))

    def for_protocol(self, protocol: int) -> Self:
        """These statistics without the fields that an agent of this protocol version does not know."""
        if protocol >= PROTOCOL:
            return self
        pairs = tuple(replace(pair, direct=None) for pair in self.pairs)
        older = replace(self, standbys=None, unknown=None, breaches=None, fresh=None, copies=(), pairs=pairs)
        return replace(older, following_s=None, paused_s=None, paused=None, reset=None, maybe_reset=None, lost=None)

    def document(self) -> dict[str, Any]:
        """The message as JSON types."""
        later: dict[str, Any] = {"standbys": self.standbys, "unknown": self.unknown, "breaches": self.breaches}
        later |= {"fresh": self.fresh, "copies": copy_columns(self.copies) or None, "following_s": self.following_s}
        later |= {"paused_s": self.paused_s, "paused": self.paused, "reset": self.reset, "lost": self.lost}
        later["maybe_reset"] = self.maybe_reset
        return self._first_document() | {name: value for name, value in later.items() if value is not None}

    def _first_document(self) -> dict[str, Any]:
        return {
            "at_ms": self.at_ms,
            "interval_s": self.interval_s,
            "state": self.state,
            "cpu_s": self.cpu_s,
            "epoch": list(self.epoch) if self.epoch else None,
            "generation": self.generation,
            "complete": self.complete,
            "key_groups": [_key_group_document(sample) for sample in self.key_groups],
            "pairs": [_pair_document(sample) for sample in self.pairs],
            "refused": dict(self.refused),
        }


Frame = Hello | Welcome | Statistics | Command | Ack

_NAMES: dict[type, str] = {Hello: "hello", Welcome: "welcome", Statistics: "statistics", Command: "command", Ack: "ack"}


def encode_frame(frame: Frame) -> bytes:
    """The frame as one line, with its newline."""
    return encode({**frame.document(), "v": VERSION, "frame": _NAMES[type(frame)]}) + b"\n"


def decode_frame(line: bytes) -> Frame:
    """The frame in this line; raises BadMessage."""
    fields = parse(line, version=VERSION, limit=MAX_FRAME_BYTES)
    match fields.text("frame"):
        case "hello":
            return _read_hello(fields)
        case "welcome":
            return _read_welcome(fields)
        case "statistics":
            return _read_statistics(fields)
        case "command":
            return read_command(fields)
        case "ack":
            return read_ack(fields)
        case other:
            raise BadMessage(Fault.RANGE, "frame", other, "one of " + ", ".join(_NAMES.values()))


def _read_hello(fields: Fields) -> Hello:
    operators: dict[OperatorId, int] = {}
    for operator, path, count in fields.members("operators", limit=1000):
        if type(count) is not int or not 0 < count <= MAX_PARTITIONS:
            raise BadMessage(Fault.RANGE, path, count, f"1 to {MAX_PARTITIONS} key groups")
        operators[OperatorId(operator)] = count
    return Hello(
        app=AppId(fields.name("app")),
        worker=WorkerId(fields.name("worker")),
        pid=fields.integer("pid", low=1),
        steering=fields.flag("steering"),
        reason=fields.optional("reason", lambda name: fields.text(name, limit=MAX_REASON)),
        operators=operators,
        versions={name: check_text(value, path, 100) for name, path, value in fields.members("versions", limit=20)},
    )


def _read_welcome(fields: Fields) -> Welcome:
    return Welcome(
        cluster=fields.name("cluster"),
        host=HostId(fields.name("host")),
        interval_s=fields.number("interval_s", low=0.01, high=3600.0),
        protocol=fields.optional("protocol", lambda name: fields.integer(name, low=1, high=999_999_999)),
    )


def _read_statistics(fields: Fields) -> Statistics:
    return Statistics(
        at_ms=fields.integer("at_ms"),
        interval_s=fields.number("interval_s", low=0.001, high=3600.0),
        state=fields.choice("state", WorkerState),
        cpu_s=fields.optional("cpu_s", fields.number),
        epoch=fields.optional("epoch", lambda name: decode_epoch(fields.take(name), name)),
        generation=fields.optional("generation", fields.integer),
        complete=fields.flag("complete"),
        key_groups=tuple(_read_key_group_sample(row) for row in fields.objects("key_groups", limit=MAX_KEY_GROUPS)),
        pairs=tuple(_read_pair_sample(row) for row in fields.objects("pairs", limit=MAX_PAIRS)),
        refused=fields.optional("refused", lambda name: _read_refused(fields, name)) or {},
        standbys=fields.optional("standbys", lambda name: fields.integer(name, high=MAX_STANDBYS)),
        unknown=fields.optional("unknown", lambda name: fields.text(name, limit=1000)),
        breaches=fields.optional("breaches", fields.integer),
        fresh=fields.optional("fresh", fields.flag),
        copies=fields.optional("copies", lambda name: read_copies(fields.fields(name))) or (),
        following_s=fields.optional("following_s", fields.number),
        paused_s=fields.optional("paused_s", fields.number),
        paused=fields.optional("paused", fields.integer),
        reset=fields.optional("reset", fields.flag),
        maybe_reset=fields.optional("maybe_reset", fields.flag),
        lost=fields.optional("lost", fields.flag),
    )


def _read_refused(fields: Fields, name: str) -> dict[Fault, int]:
    """Ignores unknown reasons: a newer plug-in may have more of them."""
    counts = {
        word: check_integer(count, path, 0, 2**63 - 1) for word, path, count in fields.members(name, limit=MAX_FAULTS)
    }
    return {fault: counts[fault] for fault in Fault if fault in counts}


def _key_group_document(sample: KeyGroupSample) -> dict[str, Any]:
    return {
        "w": sample.worker,
        "a": sample.key_group.app,
        "o": sample.key_group.operator,
        "p": sample.key_group.partition,
        "cpu": sample.cpu_s,
        "ni": sample.tuples_in,
        "no": sample.tuples_out,
        "bi": sample.bytes_in,
        "bo": sample.bytes_out,
        "sb": sample.state_bytes,
        "lg": sample.lag_records,
        "bl": sample.backlog,
    }


def _pair_document(sample: PairSample) -> dict[str, Any]:
    later = {} if sample.direct is None else {"d": sample.direct}
    return later | {
        "a": sample.source.app,
        "fo": sample.source.operator,
        "fp": sample.source.partition,
        "to": sample.target.operator,
        "tp": sample.target.partition,
        "n": sample.tuples,
        "b": sample.bytes,
    }


def _read_key_group_sample(fields: Fields) -> KeyGroupSample:
    return KeyGroupSample(
        worker=WorkerId(fields.name("w")),
        key_group=_read_key_group(fields, fields.name("a"), "o", "p"),
        cpu_s=fields.optional("cpu", fields.number),
        tuples_in=fields.optional("ni", fields.integer),
        tuples_out=fields.optional("no", fields.integer),
        bytes_in=fields.optional("bi", fields.integer),
        bytes_out=fields.optional("bo", fields.integer),
        state_bytes=fields.optional("sb", fields.integer),
        lag_records=fields.optional("lg", fields.integer),
        backlog=fields.optional("bl", fields.integer),
    )


def _read_pair_sample(fields: Fields) -> PairSample:
    app = fields.name("a")
    return PairSample(
        source=_read_key_group(fields, app, "fo", "fp"),
        target=_read_key_group(fields, app, "to", "tp"),
        tuples=fields.integer("n"),
        bytes=fields.integer("b"),
        direct=fields.optional("d", fields.integer),
    )


def _read_key_group(fields: Fields, app: str, operator: str, partition: str) -> KeyGroup:
    return KeyGroup(AppId(app), OperatorId(fields.name(operator)), fields.integer(partition, high=MAX_PARTITIONS))
