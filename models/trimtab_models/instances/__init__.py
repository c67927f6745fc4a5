"""Problem instances: the documents that `trimtab solve` reads, as validated values."""

from trimtab_models.instances.operator_graph import Edge
from trimtab_models.instances.reading import BadInstance
from trimtab_models.instances.scheduling import (
    AffineCost,
    RemoteCost,
    SchedulingInstance,
    SchedulingServer,
    TableCost,
    Task,
    decode_scheduling,
    parse_scheduling,
)
from trimtab_models.instances.sizing import (
    CostedOperator,
    Machine,
    SizingInstance,
    decode_sizing,
    parse_sizing,
)
from trimtab_models.instances.snapshot import (
    BalanceInstance,
    MigrationBudget,
    Node,
    SnapshotKeyGroup,
    SnapshotOptions,
    TupleFlow,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot,
)
from trimtab_models.instances.topology import (
    ParallelOperator,
    Slot,
    Topology,
    decode_topology,
    parse_topology,
)

__all__ = [
    "AffineCost",
    "BadInstance",
    "BalanceInstance",
    "CostedOperator",
    "Edge",
    "Machine",
    "MigrationBudget",
    "Node",
    "ParallelOperator",
    "RemoteCost",
    "SchedulingInstance",
    "SchedulingServer",
    "SizingInstance",
    "Slot",
    "SnapshotKeyGroup",
    "SnapshotOptions",
    "TableCost",
    "Task",
    "Topology",
    "TupleFlow",
    "decode_scheduling",
    "decode_sizing",
    "decode_snapshot",
    "decode_topology",
    "encode_snapshot",
    "parse_scheduling",
    "parse_sizing",
    "parse_snapshot",
    "parse_topology",
]
