"""Balanced min-cut: METIS (Karypis and Kumar 1998) with a fixed seed, in whole numbers."""

import numpy as np
import pymetis

from trimtab_models.balance.problem import Floats, Ints

FINENESS = 1_000_000  # of weights; METIS adds them up in 32 bits, so a sum gets this many steps


def cut(weights: Floats, edges: Ints, edge_weights: Floats, parts: int, seed: int) -> Ints:
    """(V,) labels of `parts` parts of about equal weight that cut little edge weight; at least two are not empty.

    `edges` is (E, 2), each undirected edge once, V >= 2. The same seed gives the same labels.
    """
    vertex = _whole(weights)
    if not len(edges):
        return _dealt(vertex, parts)
    ends = np.concatenate((edges, edges[:, ::-1]))
    order = np.argsort(ends[:, 0], kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(ends[:, 0], minlength=len(weights)))))
    _, labels = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(adj_starts=start.tolist(), adjacent=ends[order, 1].tolist()),
        vweights=vertex.tolist(),
        eweights=np.tile(np.maximum(1, _whole(edge_weights)), 2)[order].tolist(),
        recursive=parts <= 8,
        options=pymetis.Options(seed=seed % 2**31),
    )
    found = np.array(labels, np.int64)
    # METIS may leave parts empty, even all but one, where weights are very uneven.
    return found if len(np.unique(found)) > 1 else _dealt(vertex, parts)


def _whole(weights: Floats) -> Ints:
    total = float(weights.sum())
    scaled: Ints = np.floor(weights * (FINENESS / total if total > 0 else 0.0)).astype(np.int64)
    return scaled


def _dealt(weights: Ints, parts: int) -> Ints:
    """Heaviest first, each to the lightest part."""
    labels, filled = np.zeros(len(weights), np.int64), [(0, 0)] * parts
    for vertex in np.argsort(-weights, kind="stable").tolist():
        part = min(range(parts), key=filled.__getitem__)
        labels[vertex] = part
        filled[part] = (filled[part][0] + int(weights[vertex]), filled[part][1] + 1)
    return labels
