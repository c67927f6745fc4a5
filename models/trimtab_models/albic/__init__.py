"""Load balancing with integrated collocation: ALBIC, and many pairs per round; COLA as a baseline.

Only tests call `scaling` so far.
"""

from trimtab_models.albic.cola import solve_cola
from trimtab_models.albic.fit import CostFit, Samples, TupleCost, Unknown, fit_costs
from trimtab_models.albic.problem import CollocationProblem, load_index, problem_of
from trimtab_models.albic.result import AlbicResult, encode_albic, warnings_of
from trimtab_models.albic.scaling import (
    PotentialPlacement,
    ScalingDecision,
    ScalingDirection,
    ScalingPolicy,
    ScalingReason,
    decide_scaling,
    potential,
)
from trimtab_models.albic.scores import Pairs, scored_among, scored_pairs
from trimtab_models.albic.solve import AlbicParams, Strategy, solve, solve_on_hosts

__all__ = [
    "AlbicParams",
    "AlbicResult",
    "CollocationProblem",
    "CostFit",
    "Pairs",
    "PotentialPlacement",
    "Samples",
    "ScalingDecision",
    "ScalingDirection",
    "ScalingPolicy",
    "ScalingReason",
    "Strategy",
    "TupleCost",
    "Unknown",
    "decide_scaling",
    "encode_albic",
    "fit_costs",
    "load_index",
    "potential",
    "problem_of",
    "scored_among",
    "scored_pairs",
    "solve",
    "solve_cola",
    "solve_on_hosts",
    "warnings_of",
]
