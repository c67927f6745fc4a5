"""What operators ask about plans: approve or reject one, move key groups, undo a plan.  All raise ChangeRefused."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.policies.moves import VALID_S, kind_of, plan_of_moves, possible
from trimtab_controller.decider.policies.rolling import ON_THE_WAY
from trimtab_controller.decider.values.reasons import NotReady
from trimtab_controller.decider.window.fixed import is_of_differing
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.execution.state import Execution, HandoverPhase
from trimtab_controller.intents.actions import frozen_in
from trimtab_controller.intents.change import (
    Asked,
    Change,
    ChangeRefused,
    RefusalKind,
    check_heard,
    check_reports,
    check_seen,
    left_out,
    not_now,
    one,
    revoked_of,
    several,
    told_of_dropped,
    without_leader,
    worker_named,
)
from trimtab_controller.plan import Plan
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.events import Event, EventKind
from trimtab_protocol.messages.intents import (
    MAX_BYTES,
    MAX_MOVES,
    MAX_WORKERS,
    Approve,
    Drain,
    MoveKeyGroups,
    Reject,
    RequestedMove,
    RollingRestart,
)
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId, parse_key_group
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import ProposalStatus
from trimtab_protocol.wording import counted, first_few, time_span, what_there_is

KEY_GROUP = "APP/OPERATOR/N"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a controller would know now: a decider that has seen the last windows, the execution, the events kept."""

    decider: Decider
    execution: Execution
    events: Sequence[Event] = field(default_factory=tuple)

    @property
    def known(self) -> WindowResult:
        """What the last window showed."""
        return self.decider.known


def approve(asked: Asked, plan: str) -> Change:
    """Carry out a plan that waits for approval."""
    row = _waiting(asked, plan)
    text = f"plan {row.plan} of {row.app} begins: {cost_of(asked, row)}"
    intent = Approve(plan=row.plan, by=asked.by, at=asked.at, reason=asked.reason)
    return one(intent, text, not_now(asked, "it begins, if it fits then,", "moves"))


def reject(asked: Asked, plan: str) -> Change:
    """Do not carry out a plan that waits for approval."""
    row = _waiting(asked, plan)
    text = (
        f"plan {row.plan} of {row.app} is not carried out; no other one is proposed for balance during "
        "`[plans] approval_s`, unless loads change by more than the band"
    )
    intent = Reject(plan=row.plan, by=asked.by, at=asked.at, reason=asked.reason)
    return one(intent, text, without_leader(asked, "it is heard"))


def move(asked: Asked, moves: Sequence[RequestedMove], looked: Looked) -> Change:
    """Move key groups of one app to one worker, in a plan of their own."""
    wish, target = _wish(asked, moves), moves[0].worker
    known = [row.worker for row in asked.nodes]
    if known and target not in known:
        told = f"no worker {target!r} reports; {what_there_is(known)}{told_of_dropped(asked)}"
        raise ChangeRefused(RefusalKind.UNKNOWN, told)
    what = f"{counted(len(moves), 'key group')} of {wish.app} to {target}"
    stay = "what moves stays there for `[plans] keep_moved_s`, unless its worker is drained or lost"
    return _wanted(asked, [wish], looked, what, f"; {stay}")


def placings(key_groups: Sequence[str], worker: str) -> list[RequestedMove]:
    """Where a request to move key groups puts them, from their names."""
    target = worker_named(worker)
    return [RequestedMove(key_group=_parsed(text), worker=target) for text in key_groups]


def undo(asked: Asked, plan: str, looked: Looked, *, partly: bool = False) -> Change:
    """Move back what a plan has moved, in a plan of its own: all of it or nothing, or `partly` what can go back."""
    done, app, unlisted = _done_by(plan, looked)
    if unlisted and not partly:
        text = f"plan {plan} cannot be undone as a whole: the events list its first moves, and not {unlisted} more"
        raise ChangeRefused(RefusalKind.CONFLICT, f"{text}; `trimtab undo {plan} --partly` takes back what can")
    placement = looked.execution.placements.get(app)
    owner = {each: placement.of(each.operator, each.partition)[:1] if placement else () for each in done}
    moves = [
        RequestedMove(key_group=each, worker=source)
        for each, (source, target) in done.items()
        if owner[each] == (target,)
    ]
    if not moves:
        raise ChangeRefused(
            RefusalKind.CONFLICT, f"nothing is left to undo: {counted(len(done), 'key group')} moved on since"
        )
    left = len(done) - len(moves)
    stay = f"{counted(left, 'key group')} moved on since, and {'stays' if left == 1 else 'stay'} there"
    moved_on = f"; {stay}" if left else ""
    going, staying = _what_can(asked, app, moves, looked) if partly else (moves, ())
    rest = f"but not {counted(unlisted, 'move')} of the plan: the events list only the first ones"
    lost = (rest,) if unlisted else ()
    whole = "undone" if len(going) == len(moves) and not unlisted else "undone in part"
    what = f"plan {plan} of {app} will be {whole}: {counted(len(going), 'key group')} back"
    try:
        change = _wanted(asked, _portions(asked, going, plan), looked, f"{what}{_in_plans(going)}", moved_on)
    except ChangeRefused as refusal:
        if partly or (some := _some_can(asked, app, moves, looked)) is None:
            raise
        text = f"{refusal}; {some} of {counted(len(moves), 'key group')} can go back: `trimtab undo {plan} --partly`"
        raise ChangeRefused(refusal.fault, text) from refusal
    return replace(change, caveats=(*change.caveats, *staying, *lost))


def _some_can(asked: Asked, app: AppId, moves: Sequence[RequestedMove], looked: Looked) -> int | None:
    """How many of these moves could be made; None if none could, or that is not known."""
    try:
        return len(_what_can(asked, app, moves, looked)[0])
    except ChangeRefused:
        return None


def _what_can(
    asked: Asked, app: AppId, moves: Sequence[RequestedMove], looked: Looked
) -> tuple[Sequence[RequestedMove], tuple[str, ...]]:
    """The moves that can be made now, and why the others cannot."""
    view = looked.known.views.get(app)
    if not isinstance(view, SmoothedView):
        text = f"nothing is planned for {app} now, so it is not known which moves can be undone"
        raise ChangeRefused(RefusalKind.CONFLICT, f"{text}; `trimtab status` shows why")
    wish = MoveKeyGroups(moves=tuple(moves[:MAX_MOVES]), by=asked.by, at=asked.at, reason=asked.reason)
    revoked = revoked_of(asked, {worker for each in moves for worker in _ends(each, looked)})
    staying_at = {each.key_group for each in moves if not revoked.keys().isdisjoint(_ends(each, looked))}
    heard = [each for each in moves if each.key_group not in staying_at]
    going, against = possible(looked.decider.view_to_plan(asked.at, view, wish), heard)
    if staying_at:
        hosts = first_few(sorted(set(revoked.values())))
        why = f"what is said of {first_few(revoked)} is dropped: the key of {hosts} is revoked"
        against[why] = [each.key_group for each in moves if each.key_group in staying_at]
    left = {why: f"{counted(len(rows), 'key group')} ({first_few(rows)})" for why, rows in against.items()}
    staying = tuple(f"but not {rows}: {why}" for why, rows in left.items())
    if not going:
        raise ChangeRefused(RefusalKind.CONFLICT, f"no key group can go back: {first_few(against)}")
    return going, staying


def _portions(asked: Asked, moves: Sequence[RequestedMove], plan: str) -> list[MoveKeyGroups]:
    """The requests that take back these moves of a plan, each as large as a plan may be."""
    parts = (moves[begin : begin + MAX_MOVES] for begin in range(0, len(moves), MAX_MOVES))
    return [_wish(asked, part, undoes=plan) for part in parts]


def _in_plans(moves: Sequence[RequestedMove]) -> str:
    count = -(-len(moves) // MAX_MOVES)
    return f" in {count} plans, one after the other" if count > 1 else ""


def _ends(each: RequestedMove, looked: Looked) -> tuple[WorkerId, ...]:
    """The workers between which a key group would move, as far as they are known."""
    placement = looked.execution.placements.get(each.key_group.app)
    owner = placement.of(each.key_group.operator, each.key_group.partition)[:1] if placement else ()
    return (*owner, each.worker)


def _wish(asked: Asked, moves: Sequence[RequestedMove], undoes: str | None = None) -> MoveKeyGroups:
    if len(moves) > MAX_MOVES:
        raise ChangeRefused(RefusalKind.INVALID, f"found {len(moves)} key groups, expected {MAX_MOVES} at most")
    try:
        wish = MoveKeyGroups(moves=tuple(moves), by=asked.by, at=asked.at, reason=asked.reason, undoes=undoes)
    except ValueError as error:
        raise ChangeRefused(RefusalKind.INVALID, str(error)) from error
    if (size := len(encoded(wish))) > MAX_BYTES:
        raise ChangeRefused(
            RefusalKind.INVALID, f"found {size} bytes of names, expected {MAX_BYTES} at most: move fewer at once"
        )
    return wish


def _wanted(asked: Asked, wishes: Sequence[MoveKeyGroups], looked: Looked, what: str, then: str) -> Change:
    """The change, after the checks that the controller makes; it makes them again, for each request by itself."""
    wish, moves = wishes[0], [move for each in wishes for move in each.moves]
    caveats = not_now(asked, "it begins", "moves")
    if asked.mode_of(wish.app) == "dry-run":
        raise ChangeRefused(
            RefusalKind.CONFLICT, f"the mode of {wish.app} is dry-run: nothing of it moves, see [plans]"
        )
    check_heard(asked, (worker for each in moves for worker in _ends(each, looked)))
    view = looked.known.views.get(wish.app)
    if view is None and looked.known.views:
        there = what_there_is(sorted(looked.known.views))
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no app {wish.app!r} reports; {there}")
    waits = f"but nothing is planned for {wish.app} now: it waits for at most {time_span(VALID_S)}: "
    if not isinstance(view, SmoothedView):
        why = looked.known.not_ready if view is None else view
        told = f"{why.reason}: {why.detail}" if isinstance(why, NotReady) else "nothing is known of it"
        return several(wishes, f"{what}{then}", (*caveats, waits + told))
    if looked.execution.busy(wish.app):
        caveats = (*caveats, f"but plan {looked.execution.rounds[wish.app].plan} is in flight: it begins after that")
    plan = plan_of_moves(looked.decider.view_to_plan(asked.at, view, *wishes), moves, kind_of(wish), asked.reason)
    if isinstance(plan, str):
        raise ChangeRefused(RefusalKind.CONFLICT, f"{wish.app}: {plan}")
    told = f"{what}: load distance {plan.before:.1f} -> {plan.planned:.1f}, {_cost_of_plan(asked, plan, looked)}"
    return several(wishes, told + then, caveats)


def _waiting(asked: Asked, plan: str) -> ProposalStatus:
    told = asked.status.proposals if asked.status else ()
    rows = [row for row in told if row.rejected is None]
    row = next((row for row in told if row.plan == plan), None)
    if row is not None and row.rejected is not None:
        raise ChangeRefused(RefusalKind.CONFLICT, f"plan {row.plan} was rejected {row.rejected}")
    if row is not None and asked.at >= row.expires_at:
        raise ChangeRefused(RefusalKind.CONFLICT, f"plan {row.plan} has expired: nobody has decided about it in time")
    if row is None:
        known = what_there_is(row.plan for row in rows) if rows else "none does"
        raise ChangeRefused(RefusalKind.UNKNOWN, f"no plan {plan[:200]!r} waits for approval; {known}")
    return row


def _parsed(text: str) -> KeyGroup:
    try:
        return parse_key_group(text, KEY_GROUP)
    except BadMessage as error:
        raise ChangeRefused(RefusalKind.INVALID, str(error)) from error


def _done_by(plan: str, looked: Looked) -> tuple[dict[KeyGroup, tuple[WorkerId, WorkerId]], AppId, int]:
    """What a plan has moved, as key group -> (source, target), and how many moves are not known.

    By the journal, else by the events, which list the first moves of a plan only.
    """
    for app, row in looked.execution.rounds.items():
        if row.plan == plan and row.ended_at is None:
            raise ChangeRefused(RefusalKind.CONFLICT, f"plan {plan} is in flight: `trimtab stop {app}` ends it")
        if row.plan == plan and row.handovers:
            done = (each for each in row.handovers if each.phase is HandoverPhase.DONE)
            return _some({kg: (each.source, each.target) for each in done for kg in each.key_groups}, plan), app, 0
    told = [each for each in looked.events if each.plan == plan and each.kind == EventKind.PLAN and each.app]
    ends = [each for each in told if each.phase == "ended"]
    if not ends or ends[-1].app is None:
        why = "no event shows its end" if told else "neither the journal nor an event has it"
        raise ChangeRefused(RefusalKind.UNKNOWN, f"it is not known what plan {plan[:200]!r} moved: {why}")
    last = ends[-1]
    unlisted = max(0, (last.moves_total or 0) - len(last.moves))
    moved = {row.key_group: (row.source, row.target) for row in last.moves if row.outcome == "done"}
    return _some(moved, plan), ends[-1].app, unlisted


def _some(moved: Mapping[KeyGroup, tuple[WorkerId, WorkerId]], plan: str) -> dict[KeyGroup, tuple[WorkerId, WorkerId]]:
    if not moved:
        raise ChangeRefused(RefusalKind.CONFLICT, f"plan {plan} has moved nothing")
    return dict(moved)


def cost_of(asked: Asked, row: ProposalStatus) -> str:
    """What a plan that waits costs, in words."""
    moves = _moves(row.moves_total, row.to_standbys)
    return f"{moves}, {_restored(row.restore_bytes, row.unmeasured)}{_pauses(asked, row.app)}"


def _cost_of_plan(asked: Asked, plan: Plan, looked: Looked) -> str:
    placement = looked.execution.placements.get(plan.app)
    cold = [
        each
        for each in plan.moves
        if placement is None or each.target not in placement.of(each.key_group.operator, each.key_group.partition)
    ]
    sizes = [each.state_bytes for each in cold]
    known = sum(size for size in sizes if size is not None)
    restored = _restored(known, sum(size is None for size in sizes))
    return f"{_moves(len(plan.moves), len(plan.moves) - len(cold))}, {restored}{_pauses(asked, plan.app)}"


def _moves(total: int, warm: int) -> str:
    return counted(total, "move") + (f" ({warm} to standbys)" if warm else "")


def _restored(known: int, unmeasured: int) -> str:
    more = f" and that of {counted(unmeasured, 'key group')} of unknown size" if unmeasured else ""
    return f"{known / 1e6:.1f} MB of state to restore{more}"


def _pauses(asked: Asked, app: AppId) -> str:
    """How long a key group pauses, by the last plans of the app."""
    rows = asked.status.rounds if asked.status else ()
    pauses = list(_all(row.pauses_s for row in rows if row.app == app))
    if not pauses:
        return ", pauses not known: no plan of the app has ended"
    median, longest = statistics.median(pauses), max(pauses)
    measured = f"median of {counted(len(pauses), 'hand-over')}, the longest {longest:.2f} s"
    return f", a pause of {median:.2f} s each ({measured})"


def _all(rows: Iterable[Sequence[float]]) -> Iterable[float]:
    return (each for row in rows for each in row)


# --- rolling restarts -------------------------------------------------------------------------------------------------


OTHER_TABLES = (
    "if the new version has other topics, tables or operators, the hosts after the first are not drained: "
    "their workers are restarted one at a time"
)
WITHOUT_DRAIN = "without a drain, one worker at a time, since nothing may move"


def rolling_restart(asked: Asked, app: AppId) -> Change:
    """Restart the workers of the app that run now."""
    check_reports(asked, app)
    check_seen(asked)
    if RollingRestart.key_of(app) in asked.intents:
        text = f"{app} is being restarted already; `trimtab rolling-restart {app} --cancel` ends that"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    revoked = revoked_of(asked, (row.worker for row in asked.nodes if row.app == app))
    ours = [row for row in asked.nodes if row.app == app and row.worker not in revoked]
    running = [row for row in ours if row.state is WorkerState.RUNNING]
    drained = sorted(row.worker for row in running if Drain.key_of(row.worker) in asked.intents)
    rows = [row for row in running if row.startable and row.worker not in drained]
    if running and not any(row.startable for row in ours):
        text = f"no agent can start a worker of {app}: expected `app` and `command` of the workers in agent.toml"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    late = sorted(row.worker for row in ours if row.state in ON_THE_WAY and row.startable)
    if not 2 <= len(rows) <= MAX_WORKERS:
        text = f"workers of {app} that run and can be restarted: {len(rows)}, expected 2 to {MAX_WORKERS}"
        later = f"; {first_few(late)} do not run yet, ask again when they do" if late else ""
        out = "".join(f"; {each}" for each in left_out(revoked))
        raise ChangeRefused(RefusalKind.CONFLICT, f"{text}, so that one can take over from another{later}{out}")
    if asked.mode_of(app) == "dry-run":
        raise ChangeRefused(RefusalKind.CONFLICT, f"the mode of {app} is dry-run: nothing of it moves, see [plans]")
    hosts = {row.host for row in rows}
    if len(hosts) == 1:
        text = f"all workers of {app} are on {next(iter(hosts))}: nobody could take over; expected two hosts or more"
        raise ChangeRefused(RefusalKind.CONFLICT, text)
    workers = tuple(sorted(row.worker for row in rows))
    intent = RollingRestart(app=app, workers=workers, by=asked.by, at=asked.at, reason=asked.reason)
    text = (
        f"{len(workers)} workers of {app} on {len(hosts)} hosts will be restarted, host by host: each is drained, "
        f"stopped, and started by its agent; {OTHER_TABLES}; `trimtab status` shows how far it is"
    )
    left = sorted(row.worker for row in running if not row.startable)
    told = (f"but {first_few(left)} stay as they are: their agents cannot start them",) if left else ()
    off = (f"but without {first_few(drained)}: operators drain them",) if drained else ()
    missed = (f"but without {first_few(late)}: they do not run yet",) if late else ()
    differ = tuple(f"but {WITHOUT_DRAIN}: {row.reason}" for row in running if is_of_differing(row))[:1]
    notes = (
        *not_now(asked, "it begins", "restarts"),
        *differ,
        *left_out(revoked),
        *told,
        *off,
        *missed,
        *frozen_in(asked, {app}),
    )
    return one(intent, text, notes)
