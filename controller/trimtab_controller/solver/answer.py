"""What goes to the solver process and what comes back: plain values, nothing of numpy."""

from dataclasses import dataclass

from trimtab_models.instances import BalanceInstance
from trimtab_models.messages.names import KeyGroup, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A balance problem and how long the solver may take (seconds)."""

    instance: BalanceInstance
    time_limit_s: float
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Moves as (key group, source, target); `before` and `load_distance` in pp.

    `fallback`: the solver did not answer, the greedy method did.  `alerts` name key groups that cannot leave a worker
    that is to be emptied.
    """

    moves: tuple[tuple[KeyGroup, WorkerId, WorkerId], ...]
    status: str
    before: float
    load_distance: float
    lower_bound: float
    solve_s: float
    fallback: bool = False
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """There is no plan, or the greedy method failed too."""

    reason: str
