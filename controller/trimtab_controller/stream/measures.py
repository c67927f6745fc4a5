"""The quantities that are summed or kept per window, and their columns in the rows between Spark and the assembler.

All samples share one aggregation, so the sums of a host and of its workers always arrive together, once per batch; the
assembler adds the batches up.  Each kind of row uses the shared columns in its own way, in the order given here.  All
columns are 64-bit floats: with a fixed width Spark aggregates by hash instead of by sort, and whole numbers are exact
up to 2**53.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple

from trimtab_protocol.messages.report import Absence, Basis, WorkerState

Thing = tuple[object, ...]


class Kind(IntEnum):
    """The kind of thing that a row describes."""

    HOST = 0  # `operator` has its type, `target_operator` its zone
    WORKER = 1
    KEY_GROUP = 2
    PAIR = 3
    REJECTED = 4
    OPERATOR = 5  # what a worker declares: how many key groups (`partition`) an operator has
    STANDBYS = 6  # and how many standby replicas its app asks for (`partition`)
    UNKNOWN = 7  # and why its loads are not known (`operator`)
    REASON = 8  # and why it only reports, or what it lacks (`operator`)
    ABSENCE = 9  # and why it is away (`partition`), if it is, and the app that its agent can start it for (`operator`)
    COPY = 10  # and of which key groups it has a copy of the state on its disk


class Row(NamedTuple):
    """The samples of one thing, from one host, in the window that starts at `start_ms`; in an Arrow table (`rows.py`).

    `last_ms` = the middle of the newest sample's interval; `covered_s` = the sum of their intervals.  `sums` has one
    element per name in SUMS and `known_s` the seconds in which that quantity was known; `levels` has the last value
    per name in LEVELS. A rejected report has its fault as `operator` and nothing else.
    """

    start_ms: int
    kind: int
    host: str | None
    worker: str | None
    app: str | None
    operator: str | None
    partition: int | None
    target_operator: str | None
    target_partition: int | None
    samples: int
    last_ms: int
    covered_s: float
    sums: Sequence[float | None]
    known_s: Sequence[float]
    levels: Sequence[float | None]

    @property
    def thing(self) -> Thing:
        """The thing that the row describes: the fields that distinguish it from other rows of its window."""
        return self[1:9]


THING = Row._fields[1:9]

KEYS: Mapping[Kind, tuple[str, ...]] = {
    Kind.HOST: ("host", "operator", "target_operator"),
    Kind.WORKER: ("host", "worker", "app"),
    Kind.KEY_GROUP: ("host", "worker", "app", "operator", "partition"),
    Kind.PAIR: ("host", "worker", "app", "operator", "partition", "target_operator", "target_partition"),
    Kind.OPERATOR: ("host", "worker", "app", "operator", "partition"),
    Kind.STANDBYS: ("host", "worker", "app", "partition"),
    Kind.UNKNOWN: ("host", "worker", "app", "operator"),
    Kind.REASON: ("host", "worker", "app", "operator"),
    Kind.ABSENCE: ("host", "worker", "app", "operator", "partition"),
    Kind.COPY: ("host", "worker", "app", "operator", "partition"),
}
"""The fields that distinguish the things of a kind; the other fields of THING are empty.

Of a pair, `worker` is the topic.
"""
OF_WORKERS = frozenset(kind for kind, names in KEYS.items() if "worker" in names) - {Kind.PAIR}
"""The kinds whose things a worker tells of."""

STATES = tuple(WorkerState)
BASES = tuple(Basis)
ABSENCES = tuple(Absence)


STEERS, FRESH = 1, 2
"""What a worker says of itself, added up: it takes commands; its app had no state."""


ENDED = 16
"""Added to the code of a host's basis in the last report of an agent that was told to end."""


def code(column: str, family: tuple[StrEnum, ...]) -> str:
    """The SQL of the place of a column's text in a family."""
    members = ", ".join(f"'{member}'" for member in family)
    return f"array_position(array({members}), {column}) - 1"


REASON_AT = "coalesce(array_size(x.oc), 0) + nvl2(x.sby, 1, 0) + nvl2(x.unk, 1, 0) + 1"
"""Of the rows of a worker, the index of the one with the reason, if there is one."""
ABSENCE_AT = f"{REASON_AT} + nvl2(x.why, 1, 0)"
"""The index of the next one, if the worker is absent or its agent can start it."""
COPIES_AT = f"{ABSENCE_AT} + nvl2(coalesce(x.off, x.dap), 1, 0)"
"""The index from which on the rows are those of its copies."""

# Name -> SQL over the report's host sample `n`, and the worker or block `x` at place `i` of its columns.
SUMS: Mapping[Kind, Mapping[str, str]] = {
    Kind.HOST: {"cpu_s": "n.cpu", "received_bytes": "n.rx", "sent_bytes": "n.tx"},
    Kind.WORKER: {
        "cpu_s": "x.cpu",
        "marked": "if(size(x.m) > 0, 1, 0)",
        "following_s": "x.fol",
        "paused_s": "x.psd",
        "paused": "x.psk",
    },
    Kind.KEY_GROUP: {
        "cpu_s": "x.c[i]",
        "tuples_in": "x.ni[i]",
        "tuples_out": "x.no[i]",
        "bytes_in": "x.bi[i]",
        "bytes_out": "x.bo[i]",
    },
    Kind.PAIR: {"tuples": "x.n[i]", "bytes": "x.b[i]", "direct": "x.dir[i]"},
    Kind.OPERATOR: {},
    Kind.STANDBYS: {},
    Kind.UNKNOWN: {},
    Kind.REASON: {},
    Kind.ABSENCE: {},
    Kind.COPY: {},
}
LEVELS: Mapping[Kind, Mapping[str, str]] = {
    Kind.HOST: {
        "cores": "n.cor",
        "basis": f"{code('n.b', BASES)} + if(n.bye, {ENDED}, 0)",
        "memory_bytes": "n.mem",
        "memory_limit_bytes": "n.lim",
        "link_bytes_s": "n.lnk",
        "speed": "n.spd",
        "disk_total_bytes": "n.dkt",
        "disk_free_bytes": "n.dkf",
    },
    Kind.WORKER: {
        "capacity": "x.cap",
        "state": code("x.s", STATES),
        "abilities": f"if(x.st, {STEERS}, 0) + if(x.fsh, {FRESH}, 0)",
        "memory_bytes": "x.mem",
        "epoch_generation": "x.ep[0]",
        "epoch_number": "x.ep[1]",
        "generation": "x.g",
        "waiting": "x.wai",
    },
    Kind.STANDBYS: {"cold": "x.cld"},
    Kind.KEY_GROUP: {"state_bytes": "x.sb[i]", "lag_records": "x.lg[i]", "backlog": "x.bl[i]"},
    Kind.COPY: {"records": f"get(x.cpr, CAST(i - ({COPIES_AT}) AS INT))"},
}


def slots(measures: Mapping[Kind, Mapping[str, str]]) -> list[dict[Kind, str]]:
    """Per shared column: the SQL of each kind that uses it."""
    width = max(len(names) for names in measures.values())
    columns: list[dict[Kind, str]] = [{} for _ in range(width)]
    for kind, names in measures.items():
        for column, sql in zip(columns, names.values(), strict=False):
            column[kind] = sql
    return columns


SUM_COLUMNS = tuple(f"sum_{index}" for index in range(len(slots(SUMS))))
KNOWN_COLUMNS = tuple(f"known_{index}" for index in range(len(slots(SUMS))))
LEVEL_COLUMNS = tuple(f"level_{index}" for index in range(len(slots(LEVELS))))

KNOWN = "{}_known_s"
"""The name of the seconds in which a summed quantity was known."""
NAMES: Mapping[Kind, Mapping[str, str]] = {
    kind: {
        **dict(zip(SUM_COLUMNS, names, strict=False)),
        **dict(zip(KNOWN_COLUMNS, map(KNOWN.format, names), strict=False)),
        **dict(zip(LEVEL_COLUMNS, LEVELS.get(kind, ()), strict=False)),
    }
    for kind, names in SUMS.items()
}
"""What the shared columns mean in the rows of a kind: column -> name."""
