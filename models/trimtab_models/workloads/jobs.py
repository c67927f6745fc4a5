"""Generated jobs like those of the paper's section 5: the shapes are the paper's, the numbers are ours.

A job is a chain of operators with the same number of key groups each.  Tuples enter at the first operator.  An edge
either keeps their key (*alike*: key group k sends to key group k) or changes it (every key group sends to all, in the
shares of the target's key groups).  These shares, and the input of each key group of the first operator, drift around
their means from period to period: their logarithms are autoregressions of order one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab_models.balance.problem import Bools, Floats, Ints

NODE_LOAD = 50.0  # percent, mean at the start


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge from operator `source` to operator `target` (positions); `alike` = tuples keep their key."""

    source: int
    target: int
    alike: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`operators` with `key_groups` each on `nodes`; edges go from earlier operators to later ones.

    `skew`, `drift` = standard deviations of logarithms: of the means over key groups, and of a key group's input around
    its mean; `memory` = correlation from one period to the next; `communication` = share of the first load that remote
    tuples take if no flow is local.
    """

    nodes: int
    key_groups: int
    operators: tuple[str, ...]
    edges: tuple[Edge, ...]
    skew: float
    drift: float
    memory: float
    communication: float

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.key_groups < 1 or not self.operators:
            raise ValueError("a job needs nodes, operators and key groups")
        if not all(0 <= edge.source < edge.target < len(self.operators) for edge in self.edges):
            raise ValueError("edges go from earlier operators to later ones")
        if not 0 <= self.memory < 1 or not 0 <= self.communication < 1 or min(self.skew, self.drift) < 0:
            raise ValueError("memory and communication are shares below 1, skew and drift at least 0")
        object.__setattr__(self, "edges", tuple(sorted(self.edges, key=lambda edge: edge.source)))  # upstream first

    @property
    def size(self) -> int:
        """Number of key groups of all operators."""
        return self.key_groups * len(self.operators)

    def placement(self) -> Ints:
        """(K,) first placement: equal numbers on every node, key groups with the same key on different nodes."""
        blocks = np.arange(self.key_groups) * self.nodes // self.key_groups
        placed: Ints = np.concatenate([(blocks + at) % self.nodes for at in range(len(self.operators))])
        return placed

    def flows(self) -> tuple[Ints, Ints, Bools]:
        """(F,) source, target, and whether both have the same key."""
        source, target, alike = [], [], []
        own = np.arange(self.key_groups)
        for edge in self.edges:
            senders, receivers = (own, own) if edge.alike else (np.repeat(own, len(own)), np.tile(own, len(own)))
            source.append(senders + edge.source * self.key_groups)
            target.append(receivers + edge.target * self.key_groups)
            alike.append(np.full(len(senders), edge.alike))
        nothing = np.zeros(0, np.int64)
        return (
            np.concatenate([nothing, *source]),
            np.concatenate([nothing, *target]),
            np.concatenate([nothing.astype(np.bool_), *alike]),
        )


def real_job_1(nodes: int = 20, key_groups: int = 100) -> Job:
    """GeoHash, TopK, global TopK, all keyed independently: collocation gains nothing."""
    return Job(
        nodes=nodes,
        key_groups=key_groups,
        operators=("geohash", "topk", "global-topk"),
        edges=(Edge(source=0, target=1, alike=False), Edge(source=1, target=2, alike=False)),
        skew=0.3,
        drift=0.15,
        memory=0.9,
        communication=0.2,
    )


def real_job_2(nodes: int = 20, per_node: int = 5) -> Job:
    """Extract delays, sum them by airplane; both have the same key, and half of the load is communication."""
    return Job(
        nodes=nodes,
        key_groups=nodes * per_node,
        operators=("extract", "sum-by-plane"),
        edges=(Edge(source=0, target=1, alike=True),),
        skew=0.2,
        drift=0.05,
        memory=0.9,
        communication=0.5,
    )


def real_job_3(nodes: int = 20, per_node: int = 5) -> Job:
    """Real job 2, with delays also summed by route, which is another key."""
    return Job(
        nodes=nodes,
        key_groups=nodes * per_node,
        operators=("extract", "sum-by-plane", "sum-by-route"),
        edges=(Edge(source=0, target=1, alike=True), Edge(source=0, target=2, alike=False)),
        skew=0.2,
        drift=0.05,
        memory=0.9,
        communication=0.5,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Period:
    """One statistics period: (K,) load without remote tuples, (F,) rates; `cost` of a remote tuple at each end."""

    work: Floats
    rate: Floats
    cost: float


def periods(job: Job, seed: int) -> Iterator[Period]:
    """The endless periods of `job`; the same seed gives the same periods."""
    random = np.random.default_rng(seed)
    shape = (len(job.operators), job.key_groups)
    means = random.normal(0.0, job.skew, shape)
    state = random.normal(0.0, job.drift, shape)
    work, rate = _through(job, np.exp(means))
    work_scale = NODE_LOAD * job.nodes * (1 - job.communication) / work.sum()
    total = float(rate.sum())
    cost = NODE_LOAD * job.nodes * job.communication / (2 * total) if total else 0.0
    while True:
        work, rate = _through(job, np.exp(means + state))
        yield Period(work=work_scale * work, rate=rate, cost=cost)
        state = job.memory * state + np.sqrt(1 - job.memory**2) * random.normal(0.0, job.drift, shape)


def _through(job: Job, weights: Floats) -> tuple[Floats, Floats]:
    """(K,) input of each key group, and (F,) rates; `weights` by operator.  Every tuple takes the same work."""
    received = np.zeros_like(weights)
    fed = {edge.target for edge in job.edges}
    rates = []
    for operator in range(len(job.operators)):
        if operator not in fed:
            received[operator] = 100.0 * weights[operator]
        for edge in job.edges:
            if edge.source != operator:
                continue
            sent = received[operator]
            if edge.alike:
                received[edge.target] += sent
                rates.append(sent)
            else:
                shares = weights[edge.target] / weights[edge.target].sum()
                flow = np.outer(sent, shares)
                received[edge.target] += flow.sum(axis=0)
                rates.append(flow.ravel())
    return received.ravel(), np.concatenate([np.zeros(0), *rates])
