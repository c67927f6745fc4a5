"""The methods of the file contract by name: each turns a document into a plan.

Every family of models has a module `methods` with `METHODS`, a mapping from name to `SolveMethod`.  A family is
imported only when one of its methods is used: numpy and OR-Tools take longer to load than most instances to solve.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from trimtab_models.solving.outcome import Infeasible
from trimtab_models.solving.stop import StopRule

FAMILIES = {
    "milp": "trimtab_models.balance.methods",
    "flux": "trimtab_models.balance.methods",
    "albic": "trimtab_models.albic.methods",
    "cola": "trimtab_models.albic.methods",
    "elastic": "trimtab_models.elastic.methods",
    "even": "trimtab_models.placement.methods",
    "lf": "trimtab_models.placement.methods",
    "hetero": "trimtab_models.sizing.methods",
    "round-robin": "trimtab_models.sizing.methods",
    "dyndl-off": "trimtab_models.dyndl.methods",
    "dyndl-on": "trimtab_models.dyndl.methods",
    "hadoop": "trimtab_models.dyndl.methods",
    "delay": "trimtab_models.dyndl.methods",
    "list": "trimtab_models.dyndl.methods",
}
"""Name of a method -> the module whose `METHODS` contains it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """The result document of the file contract, without `solve_seconds`; `warnings` = lines for people."""

    document: dict[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveMethod:
    """A method of the file contract.

    `read` parses a document and raises BadInstance.  `solve(instance, stop, seed)` returns the best plan that it has
    when it is stopped.  `timed` = whether the result contains `solve_seconds`; without it, results are equal byte for
    byte.

    `text` says in a sentence what the method does; `result` what each key of the plan's document means.
    """

    read: Callable[[bytes], Any]
    solve: Callable[[Any, StopRule, int], PlanDocument | Infeasible]
    text: str
    result: Mapping[str, str]
    timed: bool = True


def method_named(name: str) -> SolveMethod:
    """The method `name` of `FAMILIES`; raises KeyError for any other name."""
    method: SolveMethod = import_module(FAMILIES[name]).METHODS[name]
    return method
