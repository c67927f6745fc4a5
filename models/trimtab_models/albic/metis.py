"""Balanced min-cut by METIS (Karypis and Kumar 1998), with a fixed seed and integer weights."""

import numpy as np

from trimtab_models.balance.problem import Floats, Ints

FINENESS = 1_000_000  # sum of the integer weights, which METIS adds in 32 bits


def cut(weights: Floats, edges: Ints, edge_weights: Floats, parts: int, seed: int) -> Ints:
    """(V,) labels of `parts` parts of about equal weight with little edge weight between them.

    `edges` (E, 2) has each undirected edge once; V >= 2.  At least two parts are not empty.  The same seed gives the
    same labels.
    """
    vertex = _whole(weights)
    if not len(edges):
        return _dealt(vertex, parts)
    import pymetis  # who only looks at pairs, or predicts loads, need not have it

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
    # With very uneven weights METIS may leave all parts but one empty.
    return found if len(np.unique(found)) > 1 else _dealt(vertex, parts)


def _whole(weights: Floats) -> Ints:
    total = float(weights.sum())
    scaled: Ints = np.floor(weights * (FINENESS / total if total > 0 else 0.0)).astype(np.int64)
    return scaled


def _dealt(weights: Ints, parts: int) -> Ints:
    """(V,) labels: heaviest vertices first, each to the lightest part."""
    labels, filled = np.zeros(len(weights), np.int64), [(0, 0)] * parts
    for vertex in np.argsort(-weights, kind="stable").tolist():
        part = min(range(parts), key=filled.__getitem__)
        labels[vertex] = part
        filled[part] = (filled[part][0] + int(weights[vertex]), filled[part][1] + 1)
    return labels
