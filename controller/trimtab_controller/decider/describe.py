"""Words for decisions: a line for operators in logs and status, and the names in metrics."""

from typing import assert_never

from trimtab_controller.decider.decision import (
    Adopted,
    Decision,
    Forgotten,
    IntentRefused,
    MaintenanceEnded,
    PlanEnded,
    Planned,
    ProposalEnded,
    ProposalOutcome,
    Proposed,
    Resized,
    Restarted,
    Scaled,
    Skip,
    StandbysPlaced,
)
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.plan import Plan, PlanReason
from trimtab_controller.solver.answer import Answer
from trimtab_protocol.messages.commands import CommandKind
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.wording import counted, first_few

REFUSED = ("move", "undo", "approve", "reject", "forget")
"""What an operator may ask for that is refused."""
ALL_NAMES = (
    *(("skip", str(reason)) for reason in SkipReason),
    *(("plan", str(reason)) for reason in PlanReason),
    *(("propose", str(reason)) for reason in PlanReason if reason.may_wait),
    *(("proposal", str(outcome)) for outcome in ProposalOutcome),
    *(("refuse", what) for what in REFUSED),
    ("adopt", "ownership"),
    ("standbys", "standbys"),
    *(("end", what) for what in ("loss", "restart", "maintenance")),
    *((str(kind), why) for kind in (CommandKind.START, CommandKind.STOP) for why in ("drain", "size")),
    *(("resize", change) for change in ("in", "out", "keep")),
    *(("forget", what) for what in ("app", "worker")),
)
"""All pairs that `names_of` gives."""


def describe(decision: Decision) -> str:
    """One line for the operator."""
    match decision:
        case Skip():
            return f"nothing: {decision.detail}"
        case Planned(plan=plan):
            return f"{plan.app}: {describe_plan(plan)}"
        case Proposed(plan=plan):
            return f"{plan.app}: waits for approval: {describe_plan(plan)}"
        case ProposalEnded(plan=name):
            return f"{decision.app}: plan {name} {decision.outcome}: {decision.detail}"
        case IntentRefused():
            return f"refused: {decision.what}: {decision.detail}"
        case Adopted() | StandbysPlaced() | PlanEnded() | Restarted():
            return f"{decision.app}: {decision.detail}"
        case MaintenanceEnded():
            return decision.detail
        case Scaled():
            return f"{decision.kind} {decision.worker} on {decision.host}: {decision.detail}"
        case Resized(app=app):
            return f"{app or 'size'}: {_changes(decision)}: {decision.detail}"
        case Forgotten():
            return f"forget {decision.what}: {decision.detail}"
    assert_never(decision)


def describe_plan(plan: Plan) -> str:
    """What a plan does, and why, without its app."""
    if plan.lost:
        return plan.detail
    return (
        f"{_moves(plan)}, load distance {plan.before:.1f} -> "
        f"{plan.planned:.1f} (bound {plan.lower_bound:.1f}){collocation_of(plan)}, "
        f"because {plan.detail}{method_of(plan)}"
        f"{'; ' if plan.note else ''}{plan.note}"
    )


def app_of(decision: Decision) -> AppId | None:
    """The app that a decision is about; None: the cluster, or an operator's wish."""
    return decision.plan.app if isinstance(decision, Planned | Proposed) else decision.app


def _moves(plan: Plan) -> str:
    count = len(plan.moves)
    nearer = {"standbys": plan.to_standbys, "copies on disk": plan.to_copies}
    told = ", ".join(f"{count} to {what}" for what, count in nearer.items() if count)
    warm = f" ({told})" if told else ""
    return f"{counted(count, 'move')}{warm}"


def names_of(decision: Decision) -> tuple[str, str]:
    """The kind and reason of a decision, as metrics and status name them."""
    match decision:
        case Skip():
            return "skip", str(decision.reason)
        case Planned(plan=plan):
            return "plan", str(plan.reason)
        case Proposed(plan=plan):
            return "propose", str(plan.reason)
        case ProposalEnded(outcome=outcome):
            return "proposal", str(outcome)
        case IntentRefused(what=what):
            return "refuse", what
        case Adopted():
            return "adopt", "ownership"
        case StandbysPlaced():
            return "standbys", "standbys"
        case PlanEnded():
            return "end", "loss"
        case Restarted():
            return "end", "restart"
        case MaintenanceEnded():
            return "end", "maintenance"
        case Scaled():
            wanted = "drain" if decision.app is None else "size"
            return str(decision.kind), "restart" if decision.owning else wanted
        case Resized(start=start, drain=drain, short=short):
            return "resize", "in" if drain else "out" if start or short else "keep"
        case Forgotten(app=app):
            return "forget", "worker" if app is None else "app"
    assert_never(decision)


def _changes(found: Resized) -> str:
    parts = {
        "start": [f"{row.worker} on {row.host}" for row in found.start],
        "drain and stop": found.drain,
        "keep": found.keep,
    }
    said = [f"{what} {first_few(names)}" for what, names in parts.items() if names]
    if found.short:
        said.append(f"run the hook for {found.short} more")
    return ", ".join(said) or "nothing to change"


def collocation_of(found: Answer | Plan) -> str:
    """The gain in collocation, if the answer or plan is about that; else empty."""
    if found.collocation is None:
        return ""
    change = found.collocation
    return (
        f", collocation {change.before:.1%} -> {change.planned:.1%}, saving {change.saved_pp:.1f} pp of load, "
        f"and the broker {change.spared_s:.0f} tuples/s"
    )


def method_of(found: Answer | Plan) -> str:
    """How the answer or plan was found, if it was not by the solver; else empty."""
    return ", by the greedy method as the solver gave no answer" if found.fallback else ""
