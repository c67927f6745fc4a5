"""Where a key group is and why, and what moving it to each worker would do.  Pure: by what was read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.policies.explain import SingleMoves
from trimtab_controller.decider.policies.moves import pinned_in
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.window.copies import Held, copies_of_one, state_held
from trimtab_controller.decider.window.placing import is_about, names
from trimtab_controller.decider.window.view import PlannableView, SmoothedView
from trimtab_controller.execution.state import Execution, HandoverPhase, Round
from trimtab_controller.loop.events.explanation import moves_of, why_text
from trimtab_protocol.console_documents import KeyGroupWhy, WhyMove, WhyTarget
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.events import Event, EventKind, EventMove
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.rules import RuleKind
from trimtab_protocol.messages.status import Status
from trimtab_protocol.wording import time_span, what_there_is

MAX_TARGETS = 1_000
"""Workers of one answer: those to which a move would do most good, and the owner."""
MAX_MOVES = 50
"""Past moves of one answer."""
WAITS_S = 120.0
"""How old the decision to wait may be beside the status: it is repeated in every window."""
HELD_UP = frozenset(
    {
        SkipReason.JOURNAL,
        SkipReason.PAUSED,
        SkipReason.SCALING_IN_FLIGHT,
        SkipReason.DRY_RUN,
        SkipReason.AWAITING_APPROVAL,
        SkipReason.REJECTED,
        SkipReason.DISRUPTION_BUDGET,
        SkipReason.PLANS_FROZEN,
        SkipReason.PLANS_MISS,
        SkipReason.JOB_SUFFERS,
    }
)
"""Reasons for which no plan for balance begins, whatever the loads are."""


class UnknownKeyGroupError(Exception):
    """There is no such key group; the message says what there is."""


@dataclass(frozen=True, slots=True)
class _Came:
    """When and by which plan a key group came to its owner, and that in words."""

    since: float | None
    plan: str | None
    story: str


def why_here(
    key_group: KeyGroup,
    known: WindowResult,
    execution: Execution,
    events: Sequence[Event],
    status: Status | None = None,
) -> KeyGroupWhy:
    """What is known of a key group; `events` = as far back as they were read, `status` = that of the controller.

    Raises UnknownKeyGroupError.
    """
    placement = execution.placements.get(key_group.app)
    row = placement.of(key_group.operator, key_group.partition) if placement else ()
    view = known.views.get(key_group.app)
    place = _place(view, key_group)
    if not row and place is None:
        raise UnknownKeyGroupError(_what_there_is(key_group, known, execution))
    past = moves_of(key_group, events)
    owner = row[0] if row else None
    came = _came(key_group, owner, execution.rounds.get(key_group.app), past, cut=_cut(key_group.app, events))
    reported, load, size = _reported(view, place)
    held = state_held(known.snapshot, key_group.app, placement)
    targets, found = _targets(view, place, row, held) if isinstance(view, SmoothedView) else ([], None)
    return KeyGroupWhy(
        key_group=str(key_group),
        owner=owner,
        standbys=list(row[1:]),
        reported=reported,
        since=came.since,
        plan=came.plan,
        story=came.story,
        load_pct=load,
        state_bytes=size,
        window_end=known.snapshot.end_ms / 1000.0 if known.snapshot else None,
        load_distance=found.load_distance if found else None,
        mean_load=found.mean_load if found else None,
        stays=_stays(key_group, view, place, execution) or _waits(key_group.app, status),
        targets=targets[:MAX_TARGETS],
        targets_total=len(targets),
        moves=[_told(event, move) for event, move in past[:MAX_MOVES]],
        rules=list(_rules(key_group, view, owner or reported)) if isinstance(view, SmoothedView) else [],
    )


def _place(view: SmoothedView | NotReady | None, key_group: KeyGroup) -> tuple[bool, int] | None:
    """Whether the key group is fixed, and its row; None if the last window does not have it."""
    if not isinstance(view, SmoothedView):
        return None
    for kept, table in ((False, view.owned), (True, view.kept_table)):
        at = int(table.places_of([key_group])[0])
        if at >= 0:
            return kept, at
    return None


def _what_there_is(key_group: KeyGroup, known: WindowResult, execution: Execution) -> str:
    apps = sorted(known.views.keys() | execution.placements.keys())
    if not apps and known.snapshot is None:
        return f"nothing is known of app {key_group.app!r} yet: no window has come, and nothing has been placed"
    if key_group.app not in apps:
        return f"found no app {key_group.app!r}, {what_there_is(apps)}"
    view, placement = known.views.get(key_group.app), execution.placements.get(key_group.app)
    sizes = {name: len(rows) for name, rows in placement.owners.items()} if placement else {}
    if isinstance(view, SmoothedView):
        sizes |= view.sizes
    if key_group.operator not in sizes:
        return f"found no operator {key_group.operator!r} of {key_group.app}, {what_there_is(sorted(sizes))}"
    last = sizes[key_group.operator] - 1
    there = f"there are 0 to {last}" if last else "there is 0"
    return f"found no key group {key_group.partition} of {key_group.app}/{key_group.operator}, {there}"


def _cut(app: AppId, events: Sequence[Event]) -> str | None:
    """The newest plan of the app of which the events list only a part of the moves."""
    plans = [each for each in events if each.app == app and each.kind == EventKind.PLAN and each.phase == "ended"]
    return next((each.plan for each in reversed(plans) if (each.moves_total or 0) > len(each.moves)), None)


def _came(
    key_group: KeyGroup,
    owner: WorkerId | None,
    last: Round | None,
    past: Sequence[tuple[Event, EventMove]],
    *,
    cut: str | None,
) -> _Came:
    """By the journal, which knows the last plan to the second, else by the events; `cut` = a plan not told in full."""
    if owner is None:
        return _Came(None, None, "no placement names an owner yet: the app assigns it by its own rule")
    for handover in last.handovers if last else ():
        if key_group in handover.key_groups and handover.phase is HandoverPhase.DONE and handover.target == owner:
            assert last is not None
            return _Came(handover.since, last.plan, _story(last.plan, handover.source, _why(last.plan, past)))
    for event, move in past:
        if move.outcome == "done":
            if move.target != owner:
                break
            return _Came(event.at, event.plan, _story(event.plan, move.source, why_text(move, event)))
    why = "the app has assigned it, or it is long ago"
    why += f", or it was one of the moves of plan {cut}, of which the events list a part" if cut is not None else ""
    return _Came(None, None, f"no event shows which plan brought it here: {why}")


def _why(plan: str, past: Sequence[tuple[Event, EventMove]]) -> str | None:
    return next((why_text(move, event) for event, move in past if event.plan == plan), None)


def _story(plan: str | None, source: WorkerId, why: str | None) -> str:
    return f"plan {plan} moved it here from {source}" + (f": {why}" if why else "")


def _reported(
    view: SmoothedView | NotReady | None, place: tuple[bool, int] | None
) -> tuple[WorkerId | None, float | None, int | None]:
    """Owner, load and state by the last window."""
    if not isinstance(view, SmoothedView) or place is None:
        return None, None, None
    kept, at = place
    row = (view.kept_table if kept else view.owned)[at]
    return row.owner, None if np.isnan(row.load) else row.load, row.state_bytes


def _stays(
    key_group: KeyGroup, view: SmoothedView | NotReady | None, place: tuple[bool, int] | None, execution: Execution
) -> str | None:
    """Why it cannot be moved now; None if it can."""
    if view is None:
        return "the app does not report"
    if isinstance(view, NotReady):
        return f"nothing is planned for the app: {view.reason}: {view.detail}"
    if place is None:
        return "the last window does not have it"
    if place[0]:
        owner = view.kept_table[place[1]].owner
        fixed = next((each for each in view.fixed if each.id == owner), None)
        return f"its worker takes no part in plans: {fixed.why}" if fixed else "its owner is not known for sure"
    row = execution.rounds.get(key_group.app)
    if row is not None and row.ended_at is None:
        return f"plan {row.plan} of the app is in flight"
    if key_group in pinned_in(view.end_s, PlannableView.of(view), execution.hand_moved):
        left = time_span(execution.hand_moved[key_group].until - view.end_s)
        return f"an operator moved it here: it stays for another {left} ([plans] keep_moved_s)"
    return None


def _waits(app: AppId, status: Status | None) -> str | None:
    """What holds up all plans for balance, by the controller's last decision about the app or the cluster."""
    decisions = [row for row in status.decisions if row.app in (app, None)] if status is not None else []
    if status is None or not decisions or decisions[-1].reason not in HELD_UP:
        return None
    last = decisions[-1]
    return last.text.removeprefix("nothing: ").removeprefix(f"{app}: ") if status.at - last.at <= WAITS_S else None


def _targets(
    view: SmoothedView, place: tuple[bool, int] | None, row: Owners, held: Held
) -> tuple[list[WhyTarget], SingleMoves]:
    """What moving it to each worker would do, the best first; then the workers that take no part."""
    if place is None or place[0]:
        return [], SingleMoves(PlannableView.of(view))
    moves = SingleMoves(PlannableView.of(view, copies=copies_of_one(view, place[1], held)))
    found = [*_free(view, place[1], row, moves), *_not_free(view, row)]

    def rank(target: WhyTarget) -> tuple[bool, bool, float, float]:
        far = target.load_distance if target.load_distance is not None else np.inf
        return not target.owner, target.forbidden is not None, far, target.load_pct or 0.0

    return sorted(found, key=rank), moves


def _free(view: SmoothedView, at: int, row: Owners, moves: SingleMoves) -> Iterator[WhyTarget]:
    now, distances = moves.load_distance, moves.distances(np.array([at]))[0].tolist()
    source = int(moves.owner[at])
    for target, worker in enumerate(view.workers):
        limit = None if target == source else moves.limit(at, target)
        forbidden = "it is being drained" if worker.draining and target != source else None
        forbidden = forbidden or _by_rule(view, at, target, source)
        yield WhyTarget(
            worker=worker.id,
            host=worker.host,
            load_distance=None if now is None else distances[target],
            change=None if now is None else distances[target] - now,
            load_pct=moves.load_after(at, target),
            owner=target == source,
            standby=worker.id in row[1:],
            forbidden=forbidden or (f"it would overfill {limit}" if limit else None),
        )


def _by_rule(view: SmoothedView, at: int, target: int, source: int) -> str | None:
    """The rules that keep a key group off a worker, or where it is."""
    if not view.rules or target == source:
        return None
    by = view.places.against(at, target)
    return f"{names(by)}: {'; '.join(rule.reason for rule in by)}" if by else None


def _rules(key_group: KeyGroup, view: SmoothedView, owner: WorkerId | None) -> Iterator[str]:
    """The rules about a key group, and which of them its owner breaks."""
    site = next((each for each in view.all_workers if each.id == owner), None)
    for rule in view.rules:
        if not is_about(rule, key_group):
            continue
        kind = f"{rule.kind} {rule.priority}" if rule.kind is RuleKind.PRIORITY else str(rule.kind)
        broken = site is not None and not rule.allows(site.id, site.host, site.zone)
        told = f"rule {rule.name} ({kind}): {rule.reason}"
        yield f"{told}; it may not be on {owner}" if broken else told


def _not_free(view: SmoothedView, row: Owners) -> Iterator[WhyTarget]:
    for fixed in view.fixed:
        yield WhyTarget(
            worker=fixed.id,
            host=fixed.worker.host if fixed.worker else "",
            load_distance=None,
            change=None,
            load_pct=None,
            owner=False,
            standby=fixed.id in row[1:],
            forbidden=f"it takes no part in plans: {fixed.why}",
        )


def _told(event: Event, move: EventMove) -> WhyMove:
    return copied(WhyMove, move, at=event.at, plan=event.plan, why=why_text(move, event))
