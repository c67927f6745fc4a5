"""What all solvers share: the signature `solve(problem, *, stop, seed, params) -> Result`, stop rules, statuses."""

from trimtab_models.solving.methods import FAMILIES, Method, Plan, method_named
from trimtab_models.solving.outcome import Infeasible, Status
from trimtab_models.solving.stop import Deadline, Never, Stop

__all__ = ["FAMILIES", "Deadline", "Infeasible", "Method", "Never", "Plan", "Status", "Stop", "method_named"]
