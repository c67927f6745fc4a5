"""What all solvers share: the signature `solve(problem, *, stop, seed, params) -> Result`, stop rules, statuses.

A solver checks its stop rule inside every loop.  Only stop rules read a clock.

The methods of the file contract turn a document into a plan.  A family of models that has some has a module with
`METHODS`, a mapping from name to `SolveMethod`.  A family is imported only when one of its methods is used: numpy and
OR-Tools take longer to load than most instances to solve.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any, Protocol

FAMILIES = {
    "milp": "trimtab_models.balance.methods",
    "flux": "trimtab_models.balance.methods",
    "albic": "trimtab_models.albic.methods",
    "cola": "trimtab_models.albic.methods",
    "elastic": "trimtab_models.elastic.solve",
    "even": "trimtab_models.placement",
    "lf": "trimtab_models.placement",
    "hetero": "trimtab_models.sizing.methods",
    "round-robin": "trimtab_models.sizing.methods",
    "dyndl-off": "trimtab_models.dyndl.methods",
    "dyndl-on": "trimtab_models.dyndl.methods",
    "hadoop": "trimtab_models.dyndl.methods",
    "delay": "trimtab_models.dyndl.methods",
    "list": "trimtab_models.dyndl.methods",
}
"""Name of a method -> the module whose `METHODS` contains it."""


class PlanStatus(Enum):
    """The statuses of the file contract."""

    OPTIMAL = "optimal"  # the objective is within the tolerance of its proven bound
    FEASIBLE = "feasible"
    UNCHANGED = "unchanged"  # nothing moves: nothing better was found or is allowed
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """There is no plan, for this reason."""

    reason: str
    status: PlanStatus = PlanStatus.INFEASIBLE


class StopRule(Protocol):
    """A stop rule."""

    def __call__(self) -> bool:
        """Whether the search must return what it has; once True, always True."""
        ...


class Never:
    """Never stops: the search ends by its own limits, so the same seed gives the same plan on any machine."""

    def __call__(self) -> bool:
        """Always False."""
        return False


class Deadline:
    """Stops when `clock` (seconds, such as time.monotonic) has reached `at_s`."""

    def __init__(self, clock: Callable[[], float], at_s: float, *, wall_per_s: float = 1.0) -> None:
        """`wall_per_s` = wall-clock seconds that may pass per second of `clock`, if that is not a wall clock."""
        self._clock = clock
        self._at_s = at_s
        self._wall_per_s = wall_per_s

    def __call__(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock() >= self._at_s

    def part(self, share: float) -> "Deadline":
        """A deadline after `share` of the time that is left."""
        return Deadline(self._clock, self._clock() + share * self.left_s(), wall_per_s=self._wall_per_s)

    def left_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._at_s - self._clock())

    def left_wall_s(self) -> float:
        """The same in wall-clock seconds, for external solvers that take a time limit instead of a stop rule."""
        return self._wall_per_s * self.left_s()


def part_of(stop: StopRule, share: float) -> StopRule:
    """`stop` after a share of the time that is left; without a deadline `stop` itself."""
    return stop.part(share) if isinstance(stop, Deadline) else stop


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
