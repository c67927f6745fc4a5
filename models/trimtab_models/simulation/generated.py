"""Generated workloads by name and size: the jobs of the paper's section 5, and others.

Loads drift from round to round (`workloads/jobs.py`), except for `uneven`, whose loads are uneven and constant.  State
sizes are log-normal, about 1 MiB.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, repeat

import numpy as np

from trimtab_models.albic.problem import CollocationProblem
from trimtab_models.balance.problem import Floats, Problem
from trimtab_models.instances import Budget
from trimtab_models.simulation.moment import Moment
from trimtab_models.simulation.uneven import uneven_cluster
from trimtab_models.workloads.jobs import Edge, Job, periods, real_job_1, real_job_2, real_job_3
from trimtab_models.workloads.problem import problem_at

MOST_FLOWS = 5_000_000
STATE_BYTES, STATE_SKEW = 2**20, 1.0  # median, and standard deviation of the logarithm


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


def generated(name: str, size: Size, *, rounds: int, seed: int, budget: Budget) -> Iterator[Moment]:
    """The moments of the workload `name` of `WORKLOADS`. Raises InvalidSize."""
    return _limited(islice(WORKLOADS[name].moments(size, seed), rounds), budget, seed)


def generated_job(job: Job, *, rounds: int, seed: int, budget: Budget) -> Iterator[Moment]:
    """The moments of any job."""
    return _limited(islice(_moments_of(job, seed), rounds), budget, seed)


def _limited(moments: Iterator[Moment], budget: Budget, seed: int) -> Iterator[Moment]:
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


def _of_job(build: Callable[[Size], Job]) -> Callable[[Size, int], Iterator[Moment]]:
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


def _moments_of(job: Job, seed: int) -> Iterator[Moment]:
    nodes, key_groups, placement = _ids("n", job.nodes), _ids("k", job.size), job.placement()
    _, _, alike = job.flows()
    for period in periods(job, seed):
        problem = problem_at(job, period, placement)
        yield Moment(nodes=nodes, key_groups=key_groups, problem=problem, alike=alike)


def _ids(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(1, count + 1))


def _sized(job: Job) -> Callable[[Size], Job]:
    return lambda size: replace(job, nodes=size.nodes, key_groups=size.key_groups // len(job.operators))


def _uneven(size: Size, seed: int) -> Iterator[Moment]:
    balance = uneven_cluster(size.nodes, size.key_groups, size.change_percent, seed)
    nodes, key_groups = _ids("n", size.nodes), _ids("k", size.key_groups)
    return repeat(Moment(nodes=nodes, key_groups=key_groups, problem=_without_flows(balance)))


def _without_flows(balance: Problem) -> CollocationProblem:
    nothing = np.zeros(0, np.int64)
    return CollocationProblem(
        balance=balance,
        operator=np.zeros(len(balance.load), np.int64),
        source=nothing,
        target=nothing,
        rate=np.zeros(0),
    )


def _one_to_one(size: Size) -> Job:
    """Section 5.3: half as many operators as nodes, in pairs; a share `one_to_one` of the pairs has the same key."""
    pairs = max(1, size.nodes // 4)
    edges = (
        Edge(source=2 * pair, target=2 * pair + 1, alike=pair < round(size.one_to_one * pairs)) for pair in range(pairs)
    )
    return Job(
        nodes=size.nodes,
        key_groups=size.key_groups // (2 * pairs),
        operators=tuple(f"o{number}" for number in range(1, 2 * pairs + 1)),
        edges=tuple(edges),
        skew=0.2,
        drift=0.15,
        memory=0.9,
        communication=0.5,
    )


def real_job_4() -> Job:
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
        Edge(source=source, target=target, alike=(source, target) in alike) for source, target in sorted(alike | other)
    ]
    return replace(real_job_3(), operators=operators, edges=tuple(edges))


def _drift(size: Size) -> Job:
    return Job(
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
