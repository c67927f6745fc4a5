"""Moves that operators choose, and moves back when the guard has ended a plan: plans with the same checks as any other.

What an operator has moved stays there for a while: the solver does not move it again until then.  It may leave all
the same where its worker is drained or lost, or where its host is asked for more than it has.

Which moves made a worker fall behind is judged by the execution (`execution/guard.py`).  Here they become a plan, as
far as they still fit: the key group is where the plan brought it, its old worker takes part in plans, no rule is
against it, and no host is overfilled.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from trimtab_controller.decider.policies.explain import plan_for
from trimtab_controller.decider.values.decision import IntentRefused, PlanEnded, Planned, Skip
from trimtab_controller.decider.values.reasons import Concern, ConcernKind, SkipReason
from trimtab_controller.decider.window.placing import names
from trimtab_controller.decider.window.resources import ROUNDING, bottleneck_in, filled_by
from trimtab_controller.decider.window.rules import broken_by
from trimtab_controller.decider.window.view import AppView, PlannableView
from trimtab_controller.execution.guard import describe_stop
from trimtab_controller.execution.state import Execution, GuardStop, HandMoved, HandoverPhase, Moved, Round
from trimtab_controller.plan import Plan, PlanReason
from trimtab_protocol.messages.intents import Intent, MoveKeyGroups, RequestedMove
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.wording import first_few

MISSING = "there is no such key group"
VALID_S = 900.0
"""How long a move that an operator asked for may wait until it begins."""


def wish_for(app: AppId, intents: Iterable[Intent]) -> MoveKeyGroups | None:
    """The oldest request to move key groups of this app."""
    wishes = (each for each in intents if isinstance(each, MoveKeyGroups) and each.app == app)
    return min(wishes, key=lambda each: each.at, default=None)


def kind_of(wish: MoveKeyGroups) -> PlanReason:
    """Whether an operator moves key groups, or takes back the moves of a plan."""
    return PlanReason.MOVE if wish.undoes is None else PlanReason.UNDO


def plan_of(now: float, view: PlannableView, wish: MoveKeyGroups, keep_s: float) -> Planned | IntentRefused:
    """The plan that does what an operator asks for, or why it cannot be done; all of it is done, or nothing."""
    kind = kind_of(wish)
    what = f"undo plan {wish.undoes}" if wish.undoes else f"{wish.by} moves it"
    plan = plan_of_moves(view, wish.moves, kind, f"{what}: {wish.reason}")
    if isinstance(plan, str):
        detail = f"{view.app}: {plan}; asked for by {wish.by}: {wish.reason}"
        return IntentRefused(what=str(kind), detail=detail, answered=(wish.key,), app=view.app)
    return Planned(plan=plan, keep_until=now + keep_s, answered=(wish.key,))


def plan_of_moves(view: PlannableView, moves: Sequence[RequestedMove], kind: PlanReason, detail: str) -> Plan | str:
    """The plan that makes all of these moves, or what is against it."""
    rows, wrong = _rows(view, moves)
    if against := broken_by(view, rows):
        wrong.append(against)
    filled = filled_by(view, rows) if not wrong else []
    wrong += [f"it would overfill {each}" for each in filled if each.overfills]
    if wrong or not rows:
        return first_few(wrong) if wrong else "every key group is there already"
    return plan_for(view, rows, filled, kind, f"{detail}{bottleneck_in(filled)}"[:4000])


def is_too_late(now: float, wish: MoveKeyGroups, last: Round | None) -> bool:
    """Whether it could not begin in time; `last` = the last plan of its app.

    What takes back the moves of a large plan comes in several requests: each waits for the one before, and its time
    begins with the end of that.
    """
    since = wish.at
    if wish.undoes is not None and last is not None and last.kind is PlanReason.UNDO:
        since = max(since, now if last.ended_at is None else last.ended_at)
    return now > since + VALID_S


def possible(
    view: PlannableView, moves: Sequence[RequestedMove]
) -> tuple[list[RequestedMove], dict[str, list[KeyGroup]]]:
    """Those of these moves that can be made together, and the key groups of the others by what is against them.

    Of what would overfill a host, nothing moves there.  A key group that is there already is in neither.
    """
    against: dict[str, list[KeyGroup]] = {}
    found: dict[int, RequestedMove] = {}
    for each, place, why in _checked(view, moves):
        if why is None and place >= 0 and view.rules and (by := view.places.against(place, view.numbers[each.worker])):
            why = f"not to {each.worker} by {names(by)}"
        if why is not None:
            against.setdefault(why, []).append(each.key_group)
        elif place >= 0:
            found[place] = each
    while over := _overfilled(view, {place: each.worker for place, each in found.items()}):
        for each in found.values():
            if (why := over.get(view.hosts[each.worker])) is not None:
                against.setdefault(why, []).append(each.key_group)
        found = {place: each for place, each in found.items() if view.hosts[each.worker] not in over}
    return list(found.values()), against


def _overfilled(view: PlannableView, moves: Mapping[int, WorkerId]) -> dict[HostId, str]:
    """The hosts to which too much would move, and of what."""
    targets = {view.hosts[worker] for worker in moves.values()}
    found = (each for each in filled_by(view, moves) if each.overfills and each.host in targets)
    return {each.host: f"it would overfill {each}" for each in found}


def _rows(view: AppView, wanted: Sequence[RequestedMove]) -> tuple[dict[int, WorkerId], list[str]]:
    """The moves as row -> target, without those that are done already; and what is wrong with the others."""
    moves, wrong = dict[int, WorkerId](), list[str]()
    for each, place, why in _checked(view, wanted):
        if why is None and place >= 0:
            moves[place] = each.worker
        elif why is not None:
            named = f"there is no key group {each.key_group}" if why == MISSING else f"{each.key_group} stays: {why}"
            wrong.append(why if place >= 0 else named)
    return moves, list(dict.fromkeys(wrong))


def _checked(view: AppView, moves: Sequence[RequestedMove]) -> Iterator[tuple[RequestedMove, int, str | None]]:
    """Each move with the row of its key group, and what is against it; row -1: unknown, or it is there already."""
    workers = {worker.id: worker for worker in view.workers}
    aside = {each.id: f"takes no part in plans: {each.why}" for each in view.fixed}
    places = view.owned.places_of(each.key_group for each in moves).tolist()
    kept = view.kept_table.places_of(each.key_group for each in moves).tolist()
    table = view.owned
    for each, place, held in zip(moves, places, kept, strict=True):
        worker = workers.get(each.worker)
        if place < 0:
            owner = view.kept_table[held].owner if held >= 0 else None
            why = f"its worker {aside[owner]}" if owner in aside else "its owner is not known"
            yield each, -1, why if held >= 0 else MISSING
        elif worker is None:
            yield each, place, f"{each.worker} {aside.get(each.worker, 'does not run')}"
        elif table.workers[table.owner[place]] == each.worker:
            yield each, -1, None
        else:
            yield each, place, f"{each.worker} is being drained" if worker.draining else None


def pinned_in(now: float, view: PlannableView, hand_moved: Mapping[KeyGroup, HandMoved]) -> frozenset[KeyGroup]:
    """The key groups that stay where an operator moved them.

    Not on workers that drain, nor where a rule does not want them, nor on hosts over a limit.
    """
    wanted = {key_group: row for key_group, row in hand_moved.items() if key_group.app == view.app and row.until > now}
    if not wanted:
        return frozenset()
    over = {each.host for each in filled_by(view, {}) if each.before > each.room * (1 + ROUNDING)}
    free = _free(view, over)
    table, key_groups, misplaced = view.owned, list(wanted), view.misplaced
    places = table.places_of(key_groups).tolist()
    return frozenset(
        name
        for name, place in zip(key_groups, places, strict=True)
        if place >= 0
        and not misplaced[place]
        and table.workers[table.owner[place]] == wanted[name].worker
        and wanted[name].worker in free
    )


def _free(view: AppView, over: Collection[str]) -> frozenset[WorkerId]:
    return frozenset(each.id for each in view.workers if not each.draining and each.host not in over)


def backs_off(now: float, stop: GuardStop | None) -> Skip | None:
    """The reason to make no plan for balance, if the guard has just ended one."""
    if stop is None or now >= stop.until:
        return None
    detail = f"{stop.app}: {describe_stop(stop)}; no plan for balance for another {stop.until - now:.0f} s"
    return Skip(reason=SkipReason.JOB_SUFFERS, detail=detail, app=stop.app)


def guard_concerns(now: float, guarded: Mapping[AppId, GuardStop]) -> tuple[Concern, ...]:
    """One concern for each app that gets no plan for balance because of the guard."""
    return tuple(
        Concern(
            kind=ConcernKind.JOB_SUFFERS,
            app=app,
            workers=tuple(sorted({each.target for each in stop.moves})),
            detail=f"{describe_stop(stop)}; no plan for balance for {stop.until - stop.at:.0f} s",
        )
        for app, stop in sorted(guarded.items())
        if now < stop.until
    )


def roll_back(now: float, view: PlannableView, stop: GuardStop | None) -> Planned | None:
    """The plan that moves back what made a worker fall behind; None if there is nothing that can go back."""
    wanted = () if stop is None else stop.to_move_back(now)
    moves = _rows_back(view, wanted)
    if stop is None or not moves:
        return None
    filled = filled_by(view, moves)
    if any(each.overfills for each in filled):
        return None
    detail = f"the guard rolls plan {stop.plan} back: {stop.detail}{bottleneck_in(filled)}"[:4000]
    return Planned(plan=plan_for(view, moves, filled, PlanReason.ROLL_BACK, detail))


def _rows_back(view: PlannableView, wanted: Iterable[Moved]) -> dict[int, WorkerId]:
    """The moves back as row -> target, without those that do not fit any more."""
    rows, table = tuple(wanted), view.owned
    free = {worker.id for worker in view.workers if not worker.draining}
    places = table.places_of(each.key_group for each in rows).tolist()
    return {
        place: each.source
        for each, place in zip(rows, places, strict=True)
        if place >= 0
        and table.workers[table.owner[place]] == each.target
        and each.source in free
        and not broken_by(view, {place: each.source})
    }


UNRELEASED = frozenset({HandoverPhase.WAITING, HandoverPhase.PREPARING})


def in_vain(execution: Execution, revoked: frozenset[HostId]) -> PlanEnded | None:
    """The early end of a plan in flight that needs one of these hosts for what it has not released yet.

    Each of its hand-overs there would wait for an answer that does not count.  What is released goes on: source and
    target do it between themselves.  A plan after a loss goes on, and gives what was to restore there to others
    (`next_owners.py`).
    """
    for row in execution.in_flight if revoked else ():
        needed = {host for each in row.handovers if each.phase in UNRELEASED for host in each.hosts} & revoked
        if needed and row.stopped is None and not row.lost:
            why = f"the key of {first_few(sorted(needed))} is revoked, and nobody would hear of its hand-overs there"
            return PlanEnded(app=row.app, reason=f"ended early, since {why}")
    return None
