"""What goes to the solver process and what comes back: plain values, nothing of numpy."""

from dataclasses import dataclass
from enum import StrEnum

from trimtab_controller.plan import Collocation
from trimtab_models.instances import BalanceInstance
from trimtab_protocol.messages.names import KeyGroup, WorkerId


class Method(StrEnum):
    """How plans are made."""

    MILP = "milp"  # the least load distance within the budget
    ALBIC = "albic"  # key groups that talk to each other come together, within a load distance


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A balance problem and how long the solver may take (seconds)."""

    instance: BalanceInstance
    time_limit_s: float
    method: Method = Method.MILP
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Moves as (key group, source, target); `before` and `load_distance` in pp.

    `fallback`: the solver did not answer, the greedy method did.  `alerts` name key groups that cannot leave a worker
    that is to be emptied.  `collocation`: of ALBIC only.
    """

    moves: tuple[tuple[KeyGroup, WorkerId, WorkerId], ...]
    status: str
    before: float
    load_distance: float
    lower_bound: float
    solve_s: float
    fallback: bool = False
    alerts: tuple[str, ...] = ()
    collocation: Collocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """There is no plan, or the greedy method failed too."""

    reason: str
