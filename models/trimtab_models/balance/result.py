"""The result of a balance solver, and its document in the file contract."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_models.balance.drain import Alert
from trimtab_models.balance.evaluate import BalanceScore, evaluate
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Ints, problem_of
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.solving import PlanStatus

OPTIMAL_PP = 0.01  # file contract: a plan within this distance of the bound is optimal
BALANCE_RESULT = {
    "method": "The method that made the plan.",
    "status": "`optimal`: the load distance is proven within 0.01 pp of the bound; `feasible`: it is not; "
    "`unchanged`: nothing better exists within the budget.",
    "moves": "Each key group that changes its node, as `key_group`, `from` and `to`; `from` is null if it had none.",
    "load_distance_before": "Load distance of the allocation in the instance (pp).",
    "load_distance": "Load distance of the plan, by the loads in the instance (pp).",
    "lower_bound": "Proven: no plan within the budget has a smaller load distance (pp).",
    "mean_load": "All loads over the capacity of the nodes that are not marked for removal (percent).",
    "node_loads": "Node to its load under the plan, in percent of its own capacity.",
    "migrations": "Key groups that move from one node to another.",
    "cost_bytes": "State that these migrations move; at least 1 byte each.",
    "collocation_before": "Share of the flows' rate that stays within a node, by the allocation in the instance.",
    "collocation": "The same under the plan.",
}
"""Key of a plan -> what it says; loads are percent, load distances percentage points (pp)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BalanceResult:
    """A plan and its proven bound.  `allocation` (K,) = the new node of every key group."""

    status: PlanStatus
    allocation: Ints
    score: BalanceScore
    lower_bound: float
    alerts: tuple[Alert, ...] = ()

    @classmethod
    def of(
        cls,
        problem: BalanceProblem,
        allocation: Ints,
        score: BalanceScore,
        bound: float,
        *,
        alerts: tuple[Alert, ...] = (),
    ) -> "BalanceResult":
        """The plan with its status; no plan has a load distance below `bound`."""
        status = PlanStatus.OPTIMAL if score.load_distance <= bound + OPTIMAL_PP else PlanStatus.FEASIBLE
        return cls(
            status=status if (allocation != problem.home).any() else PlanStatus.UNCHANGED,
            allocation=allocation,
            score=score,
            lower_bound=min(bound, score.load_distance),
            alerts=alerts,
        )

    @property
    def gap_pp(self) -> float:
        """Load distance - lower bound, in pp: how far the plan is from the optimum at most."""
        return max(0.0, self.score.load_distance - self.lower_bound)


def encode_result(instance: BalanceInstance, result: BalanceResult, *, method: str) -> dict[str, Any]:
    """The result document for `instance`, without `solve_seconds`."""
    problem = problem_of(instance)
    node_ids = [node.id for node in instance.nodes]
    changed = np.flatnonzero(result.allocation != problem.home).tolist()
    moves = [
        {
            "key_group": instance.key_groups[key_group].id,
            "from": instance.key_groups[key_group].node,
            "to": node_ids[result.allocation[key_group]],
        }
        for key_group in changed
    ]
    loads = problem.node_loads(result.allocation) / problem.capacity
    return {
        "method": method,
        "status": result.status.value,
        "moves": moves,
        "load_distance_before": evaluate(problem, problem.home).load_distance,
        "load_distance": result.score.load_distance,
        "lower_bound": result.lower_bound,
        "mean_load": problem.mean,
        "node_loads": dict(zip(node_ids, loads.tolist(), strict=True)),
        "migrations": result.score.migrations,
        "cost_bytes": sum(instance.key_groups[k].cost_bytes for k in changed if problem.home[k] != UNPLACED),
        "collocation_before": collocation(instance, problem.home),
        "collocation": collocation(instance, result.allocation),
    }


def collocation(instance: BalanceInstance, allocation: Ints) -> float:
    """Rate of flows within a node / total rate; 0 without flows.  Flows of unplaced key groups cross nodes."""
    if not instance.flows:
        return 0.0
    position = {key_group.id: at for at, key_group in enumerate(instance.key_groups)}
    source = allocation[[position[flow.source] for flow in instance.flows]]
    target = allocation[[position[flow.target] for flow in instance.flows]]
    rate = np.array([flow.rate for flow in instance.flows], np.float64)
    together: Bools = (source == target) & (source != UNPLACED)
    total = float(rate.sum())
    return float(rate[together].sum()) / total if total else 0.0


def describe_alert(instance: BalanceInstance, alert: Alert) -> str:
    """One line that names the key group, its node and the obstacle."""
    key_group, node = instance.key_groups[alert.key_group].id, instance.nodes[alert.node].id
    return f"key group {key_group!r} cannot leave node {node!r}, which is draining: {alert.obstacle.value}"
