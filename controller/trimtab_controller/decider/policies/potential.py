"""The question to the solver on which the size of an app depends: what could free moves reach?  Pure.

Source: Madsen et al. (2017), Algorithm 1, step b: the size is decided by a *potential plan*, which is not carried out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trimtab_controller.decider.values.decision import SizeQuestion
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.owned import PERCENT_PER_CORE
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.names import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PotentialWanted:
    """The size of the app depends on the potential plan of `view`, on the workers that `remain`."""

    view: PlannableView
    remain: frozenset[WorkerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class PotentialLoads:
    """What a potential plan reaches: `loads` of the workers that remain, and `saving`, which are cores less than now.

    `complete`: nothing is left on other workers.  `in_time`: the search came to its end, so that nothing better is
    known.
    """

    loads: Mapping[WorkerId, float]
    saving: float
    complete: bool
    in_time: bool

    def times(self, factor: float) -> "PotentialLoads":
        """The same where all key groups ask for so many times as much."""
        loads = {worker: factor * load for worker, load in self.loads.items()}
        return replace(self, loads=loads, saving=factor * self.saving)


def potential_wanted(view: PlannableView, question: SizeQuestion, settings: Settings) -> PotentialWanted:
    """The question about a view that plans are made with.  What stays or waits in this round moves in a later one."""
    distance = settings.load_distance if question.load_distance is None else question.load_distance
    workers = tuple(
        worker if worker.id in question.remain else replace(worker, draining=True) for worker in view.workers
    )
    asked = replace(view, workers=workers, pinned=frozenset(), later=(), potential=distance)
    return PotentialWanted(view=asked, remain=question.remain)


def potential_in(wanted: PotentialWanted, found: Answer | NoAnswer) -> PotentialLoads | None:
    """What the solver has answered; None: nothing that the size can rest on."""
    plan = found.potential if isinstance(found, Answer) else None
    if plan is None:
        return None
    loads = dict(zip((worker.id for worker in wanted.view.workers), plan.loads, strict=True))
    return PotentialLoads(
        loads={worker: load / PERCENT_PER_CORE for worker, load in loads.items() if worker in wanted.remain},
        saving=(float(wanted.view.owned.load.sum()) - sum(plan.loads)) / PERCENT_PER_CORE,
        complete=not plan.left,
        in_time=plan.in_time,
    )
