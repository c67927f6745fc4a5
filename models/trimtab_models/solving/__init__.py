"""What all solvers share: the signature `solve(problem, *, stop, seed, params) -> Result`, stop rules, statuses."""

from trimtab_models.solving.methods import FAMILIES, PlanDocument, SolveMethod, method_named
from trimtab_models.solving.outcome import Infeasible, PlanStatus
from trimtab_models.solving.stop import Deadline, Never, StopRule

__all__ = [
    "FAMILIES",
    "Deadline",
    "Infeasible",
    "Never",
    "PlanDocument",
    "PlanStatus",
    "SolveMethod",
    "StopRule",
    "method_named",
]
