"""The graph of a job's operators, and its checks: known operators, no cycle, not too many instances."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from trimtab_models.instances.reading import BadInstance, check_flag, check_text, shown

MOST_INSTANCES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A stream from one operator to another; `keyed` = the key chooses the receiving instance."""

    source: str
    """Operator that sends."""
    target: str
    """Operator that receives."""
    keyed: bool = False
    """The key of a tuple chooses the instance that receives it, so that place makes no difference."""

    def __post_init__(self) -> None:
        check_text(".from", self.source)
        check_text(".to", self.target)
        check_flag(".keyed", self.keyed)


def check_total(path: str, counts: Iterable[int | None]) -> None:
    """Raises BadInstance if the operators (a list at `path`) together have too many instances for a plan."""
    total = sum(count or 0 for count in counts)
    if total > MOST_INSTANCES:
        raise BadInstance(path, f"{shown(total)} instances", f"at most {MOST_INSTANCES} in all")


def check_edges(path: str, edges: Sequence[Edge], operators: Collection[str]) -> None:
    """Raises BadInstance for an edge (of a list at `path`) with an unknown operator, or one that closes a cycle."""
    known = set(operators)
    for position, edge in enumerate(edges):
        for end, id_ in (("from", edge.source), ("to", edge.target)):
            if id_ not in known:
                raise BadInstance(f"{path}[{position}].{end}", shown(id_), "the id of an operator")
    order = topological_order(operators, edges)
    if len(order) < len(known):
        position = _last_edge_of_cycle(edges, known - set(order))
        raise BadInstance(f"{path}[{position}]", "an edge that closes a cycle", "a graph of operators without cycles")


def topological_order(operators: Collection[str], edges: Sequence[Edge]) -> list[str]:
    """`operators`, each after all that send to it; without those on a cycle and all downstream of them."""
    waits = dict.fromkeys(operators, 0)
    targets: dict[str, list[str]] = {id_: [] for id_ in waits}
    for edge in edges:
        waits[edge.target] += 1
        targets[edge.source].append(edge.target)
    order = [id_ for id_, count in waits.items() if not count]
    for id_ in order:  # grows during the loop
        for target in targets[id_]:
            waits[target] -= 1
            if not waits[target]:
                order.append(target)
    return order


def _last_edge_of_cycle(edges: Sequence[Edge], left: Collection[str]) -> int:
    """Position of the last edge of a cycle among `left`, all of which receive from another one of them."""
    into: dict[str, int] = {}  # operator -> first edge to it from one of `left`
    for position, edge in enumerate(edges):
        if edge.source in left:
            into.setdefault(edge.target, position)
    id_ = next(iter(into))
    walked: dict[str, int] = {}
    while id_ not in walked:
        walked[id_] = into[id_]
        id_ = edges[into[id_]].source
    positions = list(walked.values())
    return max(positions[list(walked).index(id_) :])
