"""Workloads by name and size, and recorded ones: one true state (`Moment`) per round.

Most are generated jobs like those of section 5 of the ALBIC paper (Madsen et al. 2017): the shapes are the paper's, the
numbers are ours.  A job is a chain of operators with the same number of key groups each.  Tuples enter at the first
operator.  An edge either keeps their key (*alike*: key group k sends to key group k) or changes it (every key group
sends to all, in the shares of the target's key groups).  These shares, and the input of each key group of the first
operator, drift around their means from period to period: their logarithms are autoregressions of order one.

The loads of `uneven` are uneven from the start, and stay.  Those are the clusters of the balance experiments (section
5.1): key-group loads are +-20 % around equal ones, mean node load 50; then 20 % of the nodes change by a given
percentage of their load, half up and half down, through a random 30-100 % of their key groups.  The paper leaves the
last range open.

A recorded workload replays snapshots of a live cluster under another policy.  The first snapshot gives the placement;
from then on the policy decides it.  Each snapshot gives the loads, rates, nodes, limits and pins of its round, and in
its options the cost of remote tuples.

State sizes of generated workloads are log-normal, about 1 MiB.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, repeat

import numpy as np

from trimtab_models.albic.problem import CollocationProblem, problem_of
from trimtab_models.balance.problem import BalanceProblem, Bools, Floats, Ints
from trimtab_models.instances.snapshot import BalanceInstance, MigrationBudget
from trimtab_models.simulation.rounds import Moment

NODE_LOAD = 50.0  # percent, mean of the nodes at the start
SPREAD = 0.2  # of key-group loads around equal ones
CHANGED = 0.2  # of the nodes
FEWEST = 0.3  # least share of a changed node's key groups that change
LEAST = 0.02  # least share of its load that a key group keeps
MOST_FLOWS = 5_000_000
STATE_BYTES, STATE_SKEW = 2**20, 1.0  # median, and standard deviation of the logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdge:
    """An edge from operator `source` to operator `target` (positions); `alike` = tuples keep their key."""

    source: int
    target: int
    alike: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftingJob:
    """`operators` with `key_groups` each on `nodes`; edges go from earlier operators to later ones.

    `skew`, `drift` = standard deviations of logarithms: of the means over key groups, and of a key group's input around
    its mean; `memory` = correlation from one period to the next; `communication` = share of the first load that remote
    tuples take if no flow is local.
    """

    nodes: int
    key_groups: int
    operators: tuple[str, ...]
    edges: tuple[JobEdge, ...]
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


def real_job_1() -> DriftingJob:
    """GeoHash, TopK, global TopK, all keyed independently: collocation gains nothing."""
    return DriftingJob(
        nodes=20,
        key_groups=100,
        operators=("geohash", "topk", "global-topk"),
        edges=(JobEdge(source=0, target=1, alike=False), JobEdge(source=1, target=2, alike=False)),
        skew=0.3,
        drift=0.15,
        memory=0.9,
        communication=0.2,
    )


def real_job_2(nodes: int = 20, per_node: int = 5) -> DriftingJob:
    """Extract delays, sum them by airplane; both have the same key, and half of the load is communication."""
    return DriftingJob(
        nodes=nodes,
        key_groups=nodes * per_node,
        operators=("extract", "sum-by-plane"),
        edges=(JobEdge(source=0, target=1, alike=True),),
        skew=0.2,
        drift=0.05,
        memory=0.9,
        communication=0.5,
    )


def real_job_3(nodes: int = 20, per_node: int = 5) -> DriftingJob:
    """Real job 2, with delays also summed by route, which is another key."""
    return replace(
        real_job_2(nodes, per_node),
        operators=("extract", "sum-by-plane", "sum-by-route"),
        edges=(JobEdge(source=0, target=1, alike=True), JobEdge(source=0, target=2, alike=False)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatisticsPeriod:
    """One statistics period: (K,) load without remote tuples, (F,) rates; `cost` of a remote tuple at each end."""

    work: Floats
    rate: Floats
    cost: float


def periods(job: DriftingJob, seed: int) -> Iterator[StatisticsPeriod]:
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
        yield StatisticsPeriod(work=work_scale * work, rate=rate, cost=cost)
        state = job.memory * state + np.sqrt(1 - job.memory**2) * random.normal(0.0, job.drift, shape)


def _through(job: DriftingJob, weights: Floats) -> tuple[Floats, Floats]:
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


def problem_at(job: DriftingJob, period: StatisticsPeriod, placement: Ints) -> CollocationProblem:
    """The problem of `period` with key groups at `placement`, measured exactly, without budgets."""
    source, target, _ = job.flows()
    unloaded = BalanceProblem.plain(load=period.work, home=placement, capacity=np.ones(job.nodes))
    problem = CollocationProblem(
        balance=unloaded,
        operator=np.repeat(np.arange(len(job.operators)), job.key_groups),
        source=source,
        target=target,
        rate=period.rate,
        serialise_cost=period.cost,
        deserialise_cost=period.cost,
    )
    loads = 2 * period.work - problem.work  # remote tuples on top of the work
    return replace(problem, balance=replace(unloaded, load=loads))


def uneven_cluster(nodes: int, key_groups: int, change_percent: float, seed: int) -> BalanceProblem:
    """The balance problem without budgets, after node loads have changed by `change_percent`."""
    random = np.random.default_rng(seed)
    home = np.sort(np.arange(key_groups) % nodes)
    load = NODE_LOAD * nodes / max(1, key_groups) * random.uniform(1 - SPREAD, 1 + SPREAD, key_groups)
    for at, node in enumerate(random.choice(nodes, min(nodes, max(2, round(CHANGED * nodes))), replace=False)):
        own = np.flatnonzero(home == node)
        if not len(own):
            continue
        grows, share = at % 2 == 0, change_percent / 100
        fewest = FEWEST if grows else min(1.0, max(FEWEST, share + 0.05))  # no load may fall below 0
        touched = random.permutation(own)[: max(1, int(np.ceil(random.uniform(fewest, 1.0) * len(own))))]
        added = (1 if grows else -1) * share * load[own].sum()
        load[touched] *= max(LEAST, 1 + added / load[touched].sum())
    return BalanceProblem.plain(load=load, home=home, capacity=np.ones(nodes))


class InvalidSize(ValueError):
    """A workload cannot have this size, for the reason in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a workload.

    `one_to_one` = share of the pairs of operators with the same key (only in that workload); `change_percent` = change
    of load of 20 % of the nodes (only in `uneven`).
    """

    nodes: int
    key_groups: int
    one_to_one: float = 0.5
    change_percent: float = 50.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.key_groups < self.nodes:
            raise InvalidSize("a cluster needs a node, and a key group for each node")
        if not 0 <= self.one_to_one <= 1 or not 0 <= self.change_percent <= 100:
            raise InvalidSize("one_to_one is between 0 and 1, change_percent between 0 and 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`text` = description; `moments` yields one moment per round, at the first placement, for ever."""

    text: str
    moments: Callable[[Size, int], Iterator[Moment]]


def generated(name: str, size: Size, *, rounds: int, seed: int, budget: MigrationBudget) -> Iterator[Moment]:
    """The moments of the workload `name` of `WORKLOADS`. Raises InvalidSize."""
    return _limited(islice(WORKLOADS[name].moments(size, seed), rounds), budget, seed)


def generated_job(job: DriftingJob, *, rounds: int, seed: int, budget: MigrationBudget) -> Iterator[Moment]:
    """The moments of any job."""
    return _limited(islice(_moments_of(job, seed), rounds), budget, seed)


def _limited(moments: Iterator[Moment], budget: MigrationBudget, seed: int) -> Iterator[Moment]:
    """`moments` with state sizes and a budget."""
    state_bytes: Floats = np.zeros(0)
    for moment in moments:
        if not len(state_bytes):
            state_bytes = _state_bytes(len(moment.key_groups), seed)
        balance = replace(
            moment.problem.balance,
            cost_bytes=state_bytes,
            max_migrations=budget.max_migrations,
            max_cost_bytes=budget.max_cost_bytes,
        )
        yield replace(moment, problem=replace(moment.problem, balance=balance))


def _state_bytes(count: int, seed: int) -> Floats:
    random = np.random.default_rng((seed, 4))
    sizes: Floats = np.ceil(STATE_BYTES * np.exp(STATE_SKEW * random.standard_normal(count)))
    return sizes


def _of_job(build: Callable[[Size], DriftingJob]) -> Callable[[Size, int], Iterator[Moment]]:
    def moments(size: Size, seed: int) -> Iterator[Moment]:
        try:
            job = build(size)
        except ValueError as error:
            raise InvalidSize(f"{size.key_groups:,} key groups are too few for all operators") from error
        flows = sum(job.key_groups if edge.alike else job.key_groups**2 for edge in job.edges)
        if flows > MOST_FLOWS:
            raise InvalidSize(
                f"{job.key_groups:,} key groups that send to as many make {flows:,} flows: at most {MOST_FLOWS:,}"
            )
        yield from _moments_of(job, seed)

    return moments


def _moments_of(job: DriftingJob, seed: int) -> Iterator[Moment]:
    nodes, key_groups, placement = _ids("n", job.nodes), _ids("k", job.size), job.placement()
    _, _, alike = job.flows()
    for period in periods(job, seed):
        problem = problem_at(job, period, placement)
        yield Moment(nodes=nodes, key_groups=key_groups, problem=problem, alike=alike)


def _ids(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(1, count + 1))


def _sized(job: DriftingJob) -> Callable[[Size], DriftingJob]:
    return lambda size: replace(job, nodes=size.nodes, key_groups=size.key_groups // len(job.operators))


def _uneven(size: Size, seed: int) -> Iterator[Moment]:
    balance = uneven_cluster(size.nodes, size.key_groups, size.change_percent, seed)
    nodes, key_groups = _ids("n", size.nodes), _ids("k", size.key_groups)
    return repeat(Moment(nodes=nodes, key_groups=key_groups, problem=_without_flows(balance)))


def _without_flows(balance: BalanceProblem) -> CollocationProblem:
    nothing = np.zeros(0, np.int64)
    return CollocationProblem(
        balance=balance,
        operator=np.zeros(len(balance.load), np.int64),
        source=nothing,
        target=nothing,
        rate=np.zeros(0),
    )


def _one_to_one(size: Size) -> DriftingJob:
    """Section 5.3: half as many operators as nodes, in pairs; a share `one_to_one` of the pairs has the same key."""
    pairs = max(1, size.nodes // 4)
    edges = (
        JobEdge(source=2 * pair, target=2 * pair + 1, alike=pair < round(size.one_to_one * pairs))
        for pair in range(pairs)
    )
    return DriftingJob(
        nodes=size.nodes,
        key_groups=size.key_groups // (2 * pairs),
        operators=tuple(f"o{number}" for number in range(1, 2 * pairs + 1)),
        edges=tuple(edges),
        skew=0.2,
        drift=0.15,
        memory=0.9,
        communication=0.5,
    )


def real_job_4() -> DriftingJob:
    """Real job 3 with weather data, reconstructed from the text of the paper (section 5.4), which has no graph of it.

    Rain scores are joined with the delays of routes; sums by route and by airplane are stored where they are computed.
    """
    operators = (
        "extract", "sum-by-plane", "sum-by-route", "weather", "rainscore", "join", "efficiency",
        "store-efficiency", "store-planes",
    )  # fmt: skip
    alike = {(0, 1), (1, 8), (2, 5), (3, 4), (6, 7)}
    other = {(0, 2), (4, 5), (5, 6)}
    edges = [
        JobEdge(source=source, target=target, alike=(source, target) in alike)
        for source, target in sorted(alike | other)
    ]
    return replace(real_job_3(), operators=operators, edges=tuple(edges))


def _drift(size: Size) -> DriftingJob:
    return DriftingJob(
        nodes=size.nodes,
        key_groups=size.key_groups,
        operators=("count",),
        edges=(),
        skew=0.3,
        drift=0.15,
        memory=0.9,
        communication=0.0,
    )


WORKLOADS: Mapping[str, Workload] = {
    "drift": Workload(text="one operator, loads that drift, no flows", moments=_of_job(_drift)),
    "uneven": Workload(text="section 5.1: loads uneven from the start, that stay; no flows", moments=_uneven),
    "one-to-one": Workload(text="section 5.3: pairs of operators, some keyed alike", moments=_of_job(_one_to_one)),
    "real-job-1": Workload(
        text="section 5.2: three operators, each keyed differently", moments=_of_job(_sized(real_job_1()))
    ),
    "real-job-2": Workload(text="section 5.4: two operators, keyed alike", moments=_of_job(_sized(real_job_2()))),
    "real-job-3": Workload(
        text="section 5.4: a third operator, keyed differently", moments=_of_job(_sized(real_job_3()))
    ),
    "real-job-4": Workload(text="section 5.4: nine operators, a reconstruction", moments=_of_job(_sized(real_job_4()))),
}


def recorded(snapshots: Iterable[BalanceInstance], *, budget: MigrationBudget | None = None) -> Iterator[Moment]:
    """One moment per snapshot, in order; `budget` overrides the budgets of the snapshots."""
    for snapshot in snapshots:
        instance = snapshot if budget is None else replace(snapshot, budget=budget)
        yield Moment(
            nodes=tuple(node.id for node in instance.nodes),
            key_groups=tuple(key_group.id for key_group in instance.key_groups),
            problem=problem_of(instance),
        )
