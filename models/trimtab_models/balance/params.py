"""Parameters of the balance solver."""

from dataclasses import dataclass

from trimtab_models.balance.improve import Effort

OPTIMAL_PP = 0.01  # file contract: a plan within this distance of the bound is optimal
FULL_EFFORT = Effort(steps=8_000, steps_per_node=10)
BRIEF_EFFORT = Effort(steps=600)
POLISH_EFFORT = Effort(steps=2_000, steps_per_node=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceParams:
    """`tolerance` and `urgent` in pp.  A plan within `tolerance` of the bound is not improved further."""

    tolerance: float = OPTIMAL_PP
    urgent: float = 5.0  # above it, reducing the load distance comes before draining
    effort: Effort = FULL_EFFORT
    brief: Effort = BRIEF_EFFORT  # before the reduced problem of a tight budget is tried
    polish: Effort = POLISH_EFFORT  # for the second side and after draining
    certify: bool = False  # use CP-SAT at once for small problems; for larger ones all of the time, CP-SAT and search

    def shortest(self, nodes: int) -> Effort:
        """The brief effort for a cluster of `nodes`, or all of it if that is less."""
        return min(self.brief, self.effort, key=lambda effort: effort.total(nodes))


DEFAULT_PARAMS = BalanceParams()
