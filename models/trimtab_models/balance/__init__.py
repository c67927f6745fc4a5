"""The balance model: which key groups to move so that every node carries its share of the load."""

from trimtab_models.balance.drain import Alert, Obstacle
from trimtab_models.balance.encode import describe_alert, encode_result
from trimtab_models.balance.evaluate import BalanceScore, evaluate
from trimtab_models.balance.hosts import HostLimits, solve_on_hosts, within
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.params import BalanceParams
from trimtab_models.balance.placing_rules import FREE, PlacingRules
from trimtab_models.balance.problem import BalanceProblem, problem_of
from trimtab_models.balance.result import BalanceResult, SolveStage
from trimtab_models.balance.solve import solve, solve_flux, solve_greedily
from trimtab_models.solving.spared import Spared

__all__ = [
    "FREE",
    "Alert",
    "BalanceParams",
    "BalanceProblem",
    "BalanceResult",
    "BalanceScore",
    "Effort",
    "HostLimits",
    "Obstacle",
    "PlacingRules",
    "SolveStage",
    "Spared",
    "describe_alert",
    "encode_result",
    "evaluate",
    "problem_of",
    "solve",
    "solve_flux",
    "solve_greedily",
    "solve_on_hosts",
    "within",
]
