"""Problem instances: the documents that `trimtab solve` reads, as checked values."""

from trimtab_models.instances.reading import BadInstance
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
    "BadInstance",
    "BalanceInstance",
    "Budget",
    "Flow",
    "KeyGroup",
    "Node",
    "Options",
    "decode_snapshot",
    "encode_snapshot",
    "parse_snapshot",
]
