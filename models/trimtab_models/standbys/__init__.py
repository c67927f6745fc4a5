"""The standby model: who takes over each key group when its owner is lost, so that survivors stay balanced (N-1)."""

from trimtab_models.standbys.construct import kept_standbys
from trimtab_models.standbys.evaluate import DomainLosses, StandbyScore, evaluate, is_allowed, is_new, losses
from trimtab_models.standbys.problem import HOST, UNPLACED, StandbyBudget, StandbyProblem
from trimtab_models.standbys.solve import StandbyParams, StandbyResult, rated, solve

__all__ = [
    "HOST",
    "UNPLACED",
    "DomainLosses",
    "StandbyBudget",
    "StandbyParams",
    "StandbyProblem",
    "StandbyResult",
    "StandbyScore",
    "evaluate",
    "is_allowed",
    "is_new",
    "kept_standbys",
    "losses",
    "rated",
    "solve",
]
