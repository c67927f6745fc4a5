"""The events of plans that wait for an operator's approval."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trimtab_controller.decider.decision import Outcome, ProposalEnded
from trimtab_controller.decider.describe import describe_plan
from trimtab_controller.execution.state import Execution, Proposal
from trimtab_controller.loop.events.of_plan import plan_fields
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.events import MAX_TEXT, Event, EventKind
from trimtab_protocol.messages.names import AppId

WAITS = "waits for approval: "
"""How the text of a plan that waits begins."""


def proposals_of_step(
    now: float,
    cluster: str,
    before: Execution,
    after: Execution,
    plans: Mapping[AppId, Plan],
    ended: Mapping[str, ProposalEnded],
) -> list[Event]:
    """What has changed from one published state to the next; `plans` = those just decided, `ended` by plan.

    The events have no ids yet.
    """
    return [*_begun(now, cluster, before, after, plans), *_ended(now, cluster, before, after, ended)]


def _event(now: float, cluster: str, row: Proposal, phase: str, text: str) -> Event:
    text = text[:MAX_TEXT]
    return Event(id="", cluster=cluster, at=now, kind=EventKind.PLAN, phase=phase, text=text, app=row.app, plan=row.id)


def _begun(
    now: float, cluster: str, before: Execution, after: Execution, plans: Mapping[AppId, Plan]
) -> Iterator[Event]:
    for app, row in after.proposals.items():
        known = before.proposals.get(app)
        if known is None or known.id != row.id:
            plan = plans.get(app, row.plan)
            yield replace(
                _event(now, cluster, row, "proposed", f"{WAITS}{describe_plan(plan)}"),
                before=plan.before,
                planned=plan.planned,
                lower_bound=plan.lower_bound,
                **plan_fields(plan, after.placements.get(app)),
            )


def _ended(
    now: float, cluster: str, before: Execution, after: Execution, ended: Mapping[str, ProposalEnded]
) -> Iterator[Event]:
    for app, row in before.proposals.items():
        now_row = after.proposals.get(app)
        kept = now_row if now_row is not None and now_row.id == row.id else None
        if not row.waits or (kept is not None and kept.waits):
            continue
        if kept is not None and kept.rejected is not None:
            yield _event(now, cluster, row, str(Outcome.REJECTED), kept.rejected)
        elif (found := ended.get(row.id)) is not None:
            yield _event(now, cluster, row, str(found.outcome), found.detail)
