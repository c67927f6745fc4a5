"""The balance model: which key groups to move so that every node carries its share."""

from trimtab_models.balance.drain import Alert, Obstacle
from trimtab_models.balance.encode import describe_alert, encode_result
from trimtab_models.balance.evaluate import Score, evaluate
from trimtab_models.balance.improve import Effort
from trimtab_models.balance.problem import Problem, problem_of
from trimtab_models.balance.result import BalanceResult, Infeasible, Stage, Status
from trimtab_models.balance.solve import Params, solve, solve_flux
from trimtab_models.balance.stop import Deadline, Never, Stop

__all__ = [
    "Alert",
    "BalanceResult",
    "Deadline",
    "Effort",
    "Infeasible",
    "Never",
    "Obstacle",
    "Params",
    "Problem",
    "Score",
    "Stage",
    "Status",
    "Stop",
    "describe_alert",
    "encode_result",
    "evaluate",
    "problem_of",
    "solve",
    "solve_flux",
]
