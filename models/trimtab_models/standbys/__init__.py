"""The standby model: who takes over each key group when its owner is lost, so that the survivors stay balanced (N-1).

The running controller calls it (`trimtab_controller.decider.standbys.choice`).
"""

from trimtab_models.standbys.construct import kept_standbys
from trimtab_models.standbys.evaluate import Losses, Score, evaluate, is_allowed, is_new, losses
from trimtab_models.standbys.problem import HOST, UNPLACED, Budget, Problem
from trimtab_models.standbys.result import StandbyResult
from trimtab_models.standbys.solve import Params, rated, solve

__all__ = [
    "HOST",
    "UNPLACED",
    "Budget",
    "Losses",
    "Params",
    "Problem",
    "Score",
    "StandbyResult",
    "evaluate",
    "is_allowed",
    "is_new",
    "kept_standbys",
    "losses",
    "rated",
    "solve",
]
