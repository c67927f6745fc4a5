"""Frames between an engine plug-in and the agent of its host: one JSON object per line over a Unix socket.

The plug-in connects and sends `hello`; the agent answers `welcome`.  After that the plug-in sends statistics and acks,
and the agent sends commands.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from trimtab_protocol.messages.codec import MAX_INTEGER, Lenient, Most, Name, Range, Text, Wire, chosen, tagged
from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.copies import Copies
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, Epoch, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.reason_text import reason_text
from trimtab_protocol.messages.report import (
    MAX_KEY_GROUPS,
    MAX_OPERATORS,
    MAX_PAIRS,
    MAX_STANDBYS,
    KeyGroupSample,
    PairSample,
    WorkerState,
)

VERSION = 1
PROTOCOL = 2
"""Version of this protocol.  A plug-in names its own in `Hello.versions`, an agent in its welcome."""
PROTOCOL_KEY = "trimtab-protocol"
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
    (engine, plug-in), under `trimtab-protocol` the protocol version.
    """

    WIRE: ClassVar = Wire(version=VERSION)

    app: AppId
    worker: WorkerId
    pid: Annotated[int, Range(1, MAX_INTEGER)]
    steering: bool
    reason: Annotated[str | None, Text(MAX_REASON)]
    operators: Annotated[Mapping[OperatorId, Annotated[int, Range(1, MAX_PARTITIONS)]], Most(MAX_OPERATORS)]
    versions: Annotated[Mapping[str, Annotated[str, Text(100)]], Most(20)]

    @property
    def protocol(self) -> int:
        """Newest protocol version that the plug-in reads; 1 when it names none."""
        said = self.versions.get(PROTOCOL_KEY, "")
        return int(said) if re.fullmatch("[1-9][0-9]{0,8}", said) else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The agent's answer to hello: its cluster and host, and the interval of statistics in seconds.

    `protocol` = newest protocol version that the agent reads; None = 1.
    """

    WIRE: ClassVar = Wire(version=VERSION)

    cluster: Name
    host: HostId
    interval_s: Annotated[float, Range(0.01, 3600.0)]
    protocol: Annotated[int | None, Range(1, 999_999_999)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a worker measured in the interval of `interval_s` seconds that ended at `at_ms` (epoch milliseconds).

    `cpu_s` = CPU seconds of the process; `epoch` = newest placement that it knows; `generation` = generation of its
    consumer group; `complete` = whether `key_groups` lists all key groups that it owns; `pairs` = tuples between key
    groups; `refused` = refused placements and hand-over records since its start, by reason; `standbys` = standby
    replicas per key group that the app asks for, `cold` = key groups that the placement has this worker stand by for
    and whose state is not here yet (None = unknown); `unknown` = why the loads of the key groups are unknown in this
    interval, as `reason_text` returns it; `breaches` = times since its start that a changelog was about to overwrite
    state that the worker owns (it then ends itself); `fresh` = the worker started a short while ago, and its app had no
    state then (None = it had, or that is unknown); `copies` = state on its disk of key groups that it neither owns nor
    follows; `following_s` = CPU seconds, of `cpu_s`, for keeping the state of others warm (None = unknown); `paused_s`
    = key-group seconds for which inputs stood still at rebalances of the group that ended in this interval, or before
    the first one, `paused` = of how many key groups (None = unknown); `reset` = within the last hour the worker began
    at the first records of its topics although its tables have counted them (None = it did not, or that is unknown),
    `maybe_reset` = that may be so, but deleted records would look the same, `lost` = it found that inputs, or changes
    of its tables, were deleted before it read them (None likewise); `direct` of the pairs.
    """

    WIRE: ClassVar = Wire(version=VERSION)

    at_ms: int
    interval_s: Annotated[float, Range(0.001, 3600.0)]
    state: WorkerState
    cpu_s: float | None
    epoch: Epoch | None
    generation: int | None
    complete: bool
    key_groups: Annotated[tuple[KeyGroupSample, ...], Most(MAX_KEY_GROUPS)]
    pairs: Annotated[tuple[PairSample, ...], Most(MAX_PAIRS)]
    refused: Annotated[Mapping[Annotated[Fault, Lenient()], int], Most(MAX_FAULTS)] = field(default_factory=dict)
    standbys: Annotated[int | None, Range(0, MAX_STANDBYS)] = None
    cold: int | None = None
    unknown: str | None = None
    breaches: int | None = None
    fresh: bool | None = None
    copies: Copies = ()
    following_s: float | None = None
    paused_s: float | None = None
    paused: int | None = None
    reset: bool | None = None
    maybe_reset: bool | None = None
    lost: bool | None = None

    def __post_init__(self) -> None:
        if self.unknown is not None:
            object.__setattr__(self, "unknown", reason_text(self.unknown))


Frame = Hello | Welcome | Statistics | Command | Ack

FRAMES: Mapping[str, type[Frame]] = {
    "hello": Hello,
    "welcome": Welcome,
    "statistics": Statistics,
    "command": Command,
    "ack": Ack,
}
"""The classes of frames, by the member `frame`."""


def encode_frame(frame: Frame) -> bytes:
    """The frame as one line, with its newline."""
    return tagged(frame, "frame", FRAMES) + b"\n"


def decode_frame(line: bytes) -> Frame:
    """The frame in this line; raises BadMessage."""
    return chosen(line, "frame", FRAMES, MAX_FRAME_BYTES)
