"""Sizing: how many instances of each operator on which machines, so that the sources can emit most."""

from trimtab_models.sizing.fit import Fit, NotFitted, fit_coefficients
from trimtab_models.sizing.fluid import Fluid, fluid_relaxation
from trimtab_models.sizing.methods import encode_sizing
from trimtab_models.sizing.paper import first_assignment, maximize_throughput, placement_of, round_robin
from trimtab_models.sizing.problem import SizingProblem, max_rate, problem_of, use_of
from trimtab_models.sizing.solve import SizingParams, SizingResult, solve, solve_round_robin

__all__ = [
    "Fit",
    "Fluid",
    "NotFitted",
    "SizingParams",
    "SizingProblem",
    "SizingResult",
    "encode_sizing",
    "first_assignment",
    "fit_coefficients",
    "fluid_relaxation",
    "max_rate",
    "maximize_throughput",
    "placement_of",
    "problem_of",
    "round_robin",
    "solve",
    "solve_round_robin",
    "use_of",
]
