"""METIS on a balance problem: a partition from scratch, with parts assigned to nodes."""

import numpy as np
import pymetis

from trimtab_models.balance.problem import BalanceProblem

FINENESS = 1_000_000


def partition(problem: BalanceProblem, seed: int) -> np.ndarray:
    """(K,) node of each key group; key groups of one node are linked in a chain, so that few of them move."""
    order = np.argsort(problem.home, kind="stable")
    tied = problem.home[order[:-1]] == problem.home[order[1:]]
    neighbours: list[list[int]] = [[] for _ in order]
    for first, second in zip(order[:-1][tied].tolist(), order[1:][tied].tolist(), strict=True):
        neighbours[first].append(second)
        neighbours[second].append(first)
    weights = np.maximum(1, np.rint(problem.load / problem.load.sum() * FINENESS)).astype(np.int64).tolist()
    nodes = len(problem.capacity)
    options = pymetis.Options(seed=seed)
    _, labels = pymetis.part_graph(nodes, adjacency=neighbours, vweights=weights, options=options)
    return named(np.array(labels, np.int64), problem.home, nodes)


def named(labels: np.ndarray, home: np.ndarray, nodes: int) -> np.ndarray:
    """(K,) node of each key group, with each part on the node that shares most key groups with it."""
    shared = np.zeros((nodes, nodes), np.int64)
    np.add.at(shared, (labels, home), 1)
    node_of = np.full(nodes, -1, np.int64)
    for flat in np.argsort(-shared, axis=None, kind="stable").tolist():
        part, node = divmod(flat, nodes)
        if node_of[part] < 0 and node not in node_of:
            node_of[part] = node
    nodes_of_key_groups: np.ndarray = node_of[labels]
    return nodes_of_key_groups
