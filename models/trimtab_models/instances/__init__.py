"""Problem instances: the documents that `trimtab solve` reads, as checked values."""

from trimtab_models.instances.reading import BadInstance
from trimtab_models.instances.scheduling import (
    AffineCost,
    RemoteCost,
    SchedulingInstance,
    Server,
    TableCost,
    Task,
    decode_scheduling,
    encode_scheduling,
    parse_scheduling,
)
from trimtab_models.instances.snapshot import (
    BalanceInstance,
    Budget,
    Flow,
    KeyGroup,
    Node,
    Options,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot,
)

__all__ = [
    "AffineCost",
    "BadInstance",
    "BalanceInstance",
    "Budget",
    "Flow",
    "KeyGroup",
    "Node",
    "Options",
    "RemoteCost",
    "SchedulingInstance",
    "Server",
    "TableCost",
    "Task",
    "decode_scheduling",
    "decode_snapshot",
    "encode_scheduling",
    "encode_snapshot",
    "parse_scheduling",
    "parse_snapshot",
]
