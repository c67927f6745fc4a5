"""Whether an answer of the solver is worth carrying out.  Pure functions."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.policies.admission import SolveWanted
from trimtab_controller.decider.policies.explain import moves_of, why_of
from trimtab_controller.decider.policies.restores import onto_copies, with_restores
from trimtab_controller.decider.values.decision import Decision, Planned, Skip, collocation_of, method_of, not_ready
from trimtab_controller.decider.values.reasons import OF_BALANCE, NotReady, SkipReason
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.collocation import pays_back
from trimtab_controller.decider.window.copies import state_held
from trimtab_controller.decider.window.fixed import refusal
from trimtab_controller.decider.window.resources import bottleneck_in, filled_by
from trimtab_controller.decider.window.restores import what_restores
from trimtab_controller.decider.window.rules import broken_by
from trimtab_controller.decider.window.view import AppView, PlannableView
from trimtab_controller.execution.restore_costs import LearnedRestores
from trimtab_controller.execution.state import Execution
from trimtab_controller.plan import Plan, PlanReason
from trimtab_controller.solver.answer import Answer
from trimtab_models.albic.problem import PAY_BACK_S
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.wording import first_few

MIN_COLLOCATION_GAIN = 2.0
"""pp of the tuples between key groups that a plan must keep within workers, to be one for collocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBlocked:
    """Key groups that cannot leave a worker being drained, and the obstacle."""

    worker: WorkerId
    key_groups: tuple[KeyGroup, ...]
    obstacle: str


def judge(wanted: SolveWanted, answer: Answer, settings: Settings) -> Planned | Skip:
    """Whether the solver's answer is worth carrying out, and keeps rules and the limits of the hosts."""
    moves = {row: wanted.view.workers[target].id for row, target in answer.moves}
    filled = filled_by(wanted.view, moves)
    if over := [each for each in filled if each.overfills]:
        detail = f"{wanted.view.app}: the plan is refused, it would overfill {first_few(over)}"
        return Skip(reason=SkipReason.SOLVER_FAILED, detail=detail, app=wanted.view.app)
    if against := broken_by(wanted.view, moves):
        detail = f"{wanted.view.app}: the plan is refused: {against}"
        return Skip(reason=SkipReason.SOLVER_FAILED, detail=detail, app=wanted.view.app)
    full = bottleneck_in(filled)
    evened = wanted.balancing and answer.before - answer.load_distance >= settings.min_gain
    together = _saves_enough(answer, settings)
    paid = together and pays_back(wanted.view, answer)
    due = _moves_what_must(wanted, answer)
    if not answer.moves or not (due or evened or paid):
        unpaid = f", too little to make up for restores in {PAY_BACK_S:g} s" if together and not paid else ""
        most = settings.moves_for(wanted.view.max_moves)
        detail = (
            f"{wanted.view.app}: {wanted.detail}, but {most} moves bring it only from "
            f"{answer.before:.1f} to {answer.load_distance:.1f} (bound {answer.lower_bound:.1f})"
            f"{collocation_of(answer)}{unpaid}{method_of(answer)}{full}"
        )
        reason = SkipReason.SOLVER_FAILED if answer.fallback else SkipReason.NOTHING_BETTER
        return Skip(reason=reason, detail=detail, app=wanted.view.app)
    kind, detail = wanted.reason, wanted.detail
    if wanted.must_move and not due:
        kind = PlanReason.LOAD_DISTANCE if evened else PlanReason.COLLOCATION
        detail = f"load distance {answer.before:.1f}, and nothing can move for: {wanted.detail}"
    return Planned(
        plan=Plan(
            app=wanted.view.app,
            reason=kind,
            detail=detail + full,
            moves=moves_of(wanted.view, moves),
            hosts=wanted.view.hosts,
            before=answer.before,
            planned=answer.load_distance,
            lower_bound=answer.lower_bound,
            status=answer.status,
            fallback=answer.fallback,
            solve_s=answer.solve_s,
            collocation=answer.collocation,
            why=why_of(wanted.view, moves, kind, filled),
        )
    )


def _moves_what_must(wanted: SolveWanted, answer: Answer) -> bool:
    """Whether a plan for a drain or for a rule moves something for it; if it does not, it is one for balance."""
    if not wanted.must_move:
        return False
    due = wanted.view.leaving | wanted.view.misplaced
    return any(bool(due[row]) for row, _ in answer.moves)


def _saves_enough(answer: Answer, settings: Settings) -> bool:
    found = answer.collocation
    return found is not None and found.gain_pp >= MIN_COLLOCATION_GAIN and found.saved_pp >= settings.min_gain


def judge_now(
    wanted: SolveWanted,
    answer: Answer,
    known: WindowResult,
    execution: Execution,
    learned: LearnedRestores,
    settings: Settings,
    draining: Collection[WorkerId],
) -> Planned | Skip:
    """Judge the answer by what became known while the solver worked.

    `learned` = what restores cost, `draining` = workers that are to be emptied by now.
    """
    app = wanted.view.app
    newest = known.not_ready or known.views.get(app)
    if isinstance(newest, NotReady):
        return not_ready(newest)
    held = state_held(known.snapshot, app, execution.placements.get(app))
    restores = what_restores(known.snapshot, execution, learned, held)
    decision = judge(wanted, onto_copies(wanted, answer, restores, settings), settings)
    if isinstance(decision, Skip):
        return decision
    changed = newest and still_free(decision, newest, draining)
    return not_ready(changed) if changed else with_restores(decision, known.snapshot, held)


def still_free(decision: Planned, now: AppView, draining: Collection[WorkerId]) -> NotReady | None:
    """Why a plan cannot be carried out, because of workers that are no longer free; None if they all are."""
    if leaving := sorted({move.target for move in decision.plan.moves}.intersection(draining)):
        detail = f"{first_few(leaving)} began to be drained after the window, and takes nothing any more"
        return NotReady(reason=SkipReason.WINDOW_TOO_EARLY, detail=detail, app=now.app)
    ends = {worker for move in decision.plan.moves for worker in (move.source, move.target)}
    if ends <= now.hosts.keys():
        return None
    fixed = [each for each in now.fixed if each.id in ends]
    if fixed:
        return refusal(now.app, fixed)
    detail = f"workers that own key groups but are away: {first_few(sorted(ends - now.hosts.keys()))}"
    return NotReady(reason=SkipReason.WORKER_MISSING, detail=detail, app=now.app)


def blocked_drains(view: PlannableView, answer: Answer) -> list[DrainBlocked]:
    """The drains that cannot continue, by worker and obstacle."""
    blocked: dict[tuple[WorkerId, str], list[KeyGroup]] = {}
    for stuck in answer.stuck:
        if not view.workers[stuck.worker].draining or stuck.key_group in view.later:
            continue  # a key group that is to leave by a rule, or after others
        key_groups = blocked.setdefault((view.workers[stuck.worker].id, stuck.obstacle), [])
        key_groups.append(view.owned[stuck.key_group].key_group)
    return [
        DrainBlocked(worker=worker, key_groups=tuple(key_groups), obstacle=obstacle)
        for (worker, obstacle), key_groups in blocked.items()
    ]


def noted(decision: Decision, note: str) -> Decision:
    """The decision, with the settings' note added if it is about the balance of an app."""
    if not note:
        return decision
    match decision:
        case Skip(reason=reason, detail=detail) if reason in OF_BALANCE:
            return replace(decision, detail=f"{detail}; {note}")
        case Planned(plan=plan):
            return replace(decision, plan=replace(plan, note=note))
        case _:
            return decision
