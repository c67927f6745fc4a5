"""Plans within the disruption budget of their app: cut to what fits, or held back until there is room.  Pure.

The solver is asked for fewer moves, so that those remain that gain most.  What an operator asks for is done as a whole,
and so it waits as a whole.  Restores after a loss do not come here.  Stops and starts of workers wait, too: each of
them rebalances the consumer group, which pauses all key groups of the app.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trimtab_controller.decider.concerns import Concern, ConcernKind
from trimtab_controller.decider.decision import Planned, Resized, Scaled, SizeVerdict, Skip, SolveWanted
from trimtab_controller.decider.drained import to_stop
from trimtab_controller.decider.observing.view import NotReady, SmoothedView
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.decider.size.rounds import SizeRounds
from trimtab_controller.execution.budget import BudgetUse, PauseBudget
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.wording import counted


def within(wanted: SolveWanted, use: BudgetUse, max_migrations: int) -> SolveWanted | Skip:
    """The question with as many moves as the budget has room for, or why no plan is sought."""
    fits = use.fits
    if fits == 0:
        return held(use, wanted.detail)
    if fits is None or fits >= max_migrations:
        return wanted
    detail = f"{wanted.detail}; the disruption budget has room for {counted(fits, 'move')}"
    return replace(wanted, view=replace(wanted.view, max_moves=fits), detail=detail)


def as_a_whole(planned: Planned, use: BudgetUse) -> Planned | Skip:
    """The plan, or why it has to wait."""
    count = len(planned.plan.moves)
    if use.fits is None or use.fits >= count:
        return planned
    return held(use, f"{planned.plan.detail}: {counted(count, 'move')}", key_groups=count)


def held(use: BudgetUse, wanted: str, key_groups: int = 1) -> Skip:
    """The decision to wait for room in the budget."""
    detail = f"{use.app}: {wanted}, but the disruption budget is used up: {use.text}; {use.room_text(key_groups)}"
    return Skip(reason=SkipReason.DISRUPTION_BUDGET, detail=detail, app=use.app)


def change_of_workers(
    now: float,
    view: SmoothedView,
    use: BudgetUse,
    sizes: SizeRounds,
    execution: Execution,
    draining: frozenset[WorkerId],
) -> Scaled | Resized | None:
    """The stop of a drained worker, or the change of the app's size that is due.

    Both rebalance the consumer group, and so they wait for room in the budget.  A scale-out of an app that is asked for
    more than it can do does not wait, nor does the start of a worker that was stopped to be started again.  What waits
    holds up nothing else of the app.
    """
    stop = to_stop(view, execution, draining)
    if stop is not None and not use.holds_changes:
        return stop
    wanted = sizes.verdicts.get(use.app)
    if use.holds_changes and wanted is not None and wanted.due and not wanted.urgent:
        return None
    return sizes.decide(now, use.app)


def held_changes(
    now: float, budget: PauseBudget, execution: Execution, verdicts: Mapping[AppId, SizeVerdict]
) -> dict[AppId, str]:
    """The apps whose change of size is due and waits for room in the budget, and what the budget says."""
    due = (app for app, verdict in verdicts.items() if verdict.due and not verdict.urgent)
    uses = ((app, budget.use(now, execution, app)) for app in due)
    return {
        app: f"the disruption budget has no room for a rebalance: {use.text}; {use.change_text}"
        for app, use in uses
        if use.holds_changes
    }


def budget_concerns(
    now: float,
    budget: PauseBudget,
    execution: Execution,
    views: Mapping[AppId, SmoothedView | NotReady],
    draining: frozenset[WorkerId],
) -> Iterator[Concern]:
    """A concern for each app whose budget has no room for one more key group, or for the stop of a drained worker."""
    for app, view in sorted(views.items()):
        use = budget.use(now, execution, app)
        stop = to_stop(view, execution, draining) if use.holds_changes and isinstance(view, SmoothedView) else None
        workers: tuple[WorkerId, ...] = ()
        if use.fits == 0:
            detail = f"nothing moves, except after a loss: {use.text}; {use.room_text()}"
        elif stop is not None:
            workers = (stop.worker,)
            detail = f"{stop.worker} is drained and cannot stop: no room for a rebalance: {use.text}; {use.change_text}"
        else:
            continue
        yield Concern(kind=ConcernKind.DISRUPTION_BUDGET, app=app, workers=workers, detail=detail)
