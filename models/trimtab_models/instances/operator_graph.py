"""The graph of a job's operators: edges between known operators, no cycle, and not too many instances."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from trimtab_models.instances.reading import BadInstance, check_flag, check_text, shown

MOST_INSTANCES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A stream from one operator to another; `keyed`: the key, not the place, chooses the receiving instance."""

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
    """Refuses operators (a list at `path`) that together have more instances than any plan could list."""
    total = sum(count or 0 for count in counts)
    if total > MOST_INSTANCES:
        raise BadInstance(path, f"{shown(total)} instances", f"at most {MOST_INSTANCES} in all")


def check_edges(path: str, edges: Sequence[Edge], operators: Collection[str]) -> None:
    """Refuses edges (a list at `path`) from or to anything but one of `operators`, and the last edge of a cycle."""
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
    """`operators`, every one after all that send to it; those on a cycle, and all behind them, are left out."""
    waits = dict.fromkeys(operators, 0)
    targets: dict[str, list[str]] = {id_: [] for id_ in waits}
    for edge in edges:
        waits[edge.target] += 1
        targets[edge.source].append(edge.target)
    order = [id_ for id_, count in waits.items() if not count]
    for id_ in order:  # grows while it is read
        for target in targets[id_]:
            waits[target] -= 1
            if not waits[target]:
                order.append(target)
    return order


def _last_edge_of_cycle(edges: Sequence[Edge], left: Collection[str]) -> int:
    """The position of the last edge of some cycle among `left`, each of which another of them sends to."""
    into: dict[str, int] = {}  # the first edge from one of `left` to each of them
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
