"""The events that a new status is, compared with the last one: they are published in one transaction with it.

A new leader begins with the last status of its predecessor.  So nothing is told twice, and nothing is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, assert_never

from trimtab_protocol.messages.events import INTENT_ENDED, Event, EventKind, event_of, intent_event_id
from trimtab_protocol.messages.intents import (
    MOVE_KEY,
    AcceptJournal,
    AddRule,
    Approve,
    Drain,
    ForgetApp,
    ForgetWorker,
    Intent,
    MoveKeyGroups,
    Pause,
    Reject,
    RollingRestart,
    Scale,
    Stop,
    TakenBack,
    Undrain,
)
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import DecisionStatus, Status
from trimtab_protocol.wording import counted, first_few, time_span

MAX_WORKERS_TOLD = 20
"""Workers of one status whose news are told; the status has them all."""
TOLD_BY_EXECUTION = frozenset({"plan", "propose", "proposal"})
"""Kinds of decisions that the execution tells of, with their moves."""


def events_of_status(
    before: Status | None,
    after: Status,
    heard: Sequence[Intent],
    taken_back: Mapping[str, TakenBack] = MappingProxyType({}),
    known: Mapping[str, Intent] = MappingProxyType({}),
) -> list[Event]:
    """What is new in a status; `heard` = the intents that came since the last one, `taken_back` = who took some back.

    `known` = earlier intents by key, to say what has ended.  Only events of intents have ids.
    """
    words = {**known, **{intent.key: intent for intent in heard}}
    found = [*_decisions(before, after), *_intents(before, after, heard, taken_back, words), *_hold(before, after)]
    found += _workers(before, after)
    if after.window_end is not None:  # before the first window of a term nothing is known of concerns
        found += _concerns(before, after)
    return found


def _event(after: Status, kind: str, phase: str, text: str, **known: Any) -> Event:
    return event_of(after.at, after.cluster, kind, phase, text, **known)


def _decisions(before: Status | None, after: Status) -> Iterator[Event]:
    for row in new_decisions(before.decisions if before else (), after.decisions):
        if row.kind not in TOLD_BY_EXECUTION:
            yield Event(
                id="", cluster=after.cluster, at=row.at, kind=EventKind.DECISION, phase=row.kind, text=row.text,
                reason=row.reason, app=row.app,
            )  # fmt: skip


def new_decisions(old: Sequence[DecisionStatus], now: Sequence[DecisionStatus]) -> Sequence[DecisionStatus]:
    """The decisions of `now` that are not in `old`, without one that only repeats the last of them.

    A status has the newest decisions; one that repeats itself is in there once, with its last time.
    """
    for back, known in enumerate(reversed(old)):
        if known in now:
            rows = now[len(now) - now[::-1].index(known) :]
            return rows[1:] if back and rows and _same(rows[0], old[-1]) else rows
    return now[1:] if old and now and _same(now[0], old[-1]) else now


def _same(one: DecisionStatus, other: DecisionStatus) -> bool:
    return (one.kind, one.reason, one.app) == (other.kind, other.reason, other.app)


def _concerns(before: Status | None, after: Status) -> Iterator[Event]:
    old = {(row.kind, row.app) for row in before.concerns} if before else set()
    now = {(row.kind, row.app): row.text for row in after.concerns}
    for kind, app in sorted(old - now.keys()):
        yield _event(after, EventKind.CONCERN, "ended", f"{kind} of {app} has ended", reason=kind, app=app)
    for kind, app in sorted(now.keys() - old):
        yield _event(after, EventKind.CONCERN, "begun", f"{app}: {now[kind, app]}", reason=kind, app=app)


def _workers(before: Status | None, after: Status) -> Iterator[Event]:
    """What steered workers say that is not as it should be, such as that their offsets were reset."""
    old = {row.worker: row.reason for row in before.nodes} if before else {}
    said = [row for row in after.nodes if row.state is WorkerState.RUNNING and row.steering and row.reason]
    for row in [row for row in said if old.get(row.worker) != row.reason][:MAX_WORKERS_TOLD]:
        text = f"{row.worker} on {row.host}: {row.reason}"
        yield _event(after, EventKind.WORKER, "told", text, app=row.app, worker=row.worker)


def _hold(before: Status | None, after: Status) -> Iterator[Event]:
    old, now = before.hold if before else None, after.hold
    if now is not None and (old is None or old.id != now.id):
        yield _event(after, EventKind.HOLD, "begun", now.text)
    if old is not None and now is None:
        yield _event(after, EventKind.HOLD, "ended", f"no longer on hold: {old.text}")


def _intents(
    before: Status | None,
    after: Status,
    heard: Sequence[Intent],
    taken_back: Mapping[str, TakenBack],
    known: Mapping[str, Intent],
) -> Iterator[Event]:
    told = dict(before.intents or {}) if before else {}
    for intent in heard:
        if told.get(intent.key) != intent.at:
            what, app, worker = worded(intent)
            text = f"{what}, by {intent.by}: {intent.reason}"
            key = intent_event_id(intent.key, intent.at)
            yield _event(
                after, EventKind.INTENT, "given", text, id=key, app=app, worker=worker, by=intent.by,
                reason=intent.key.split("/")[0], rule=intent.rule if isinstance(intent, AddRule) else None,
            )  # fmt: skip
        told[intent.key] = intent.at
    for key, at in told.items():
        if key not in (after.intents or {}):
            word = taken_back.get(key)
            what, app, worker = _asked(key, known.get(key))
            text = f"{what} has ended" if word is None else f"{what} is taken back by {word.by}: {word.reason}"
            id_ = intent_event_id(key, at) + INTENT_ENDED
            by = None if word is None else word.by
            yield _event(
                after, EventKind.INTENT, "ended", text, id=id_, app=app, worker=worker, by=by,
                reason=key.split("/")[0],
            )  # fmt: skip


def _asked(key: str, intent: Intent | None) -> tuple[str, AppId | None, WorkerId | None]:
    """What was asked for, and of which app or worker; a leader does not know what only its predecessor has heard."""
    if intent is None:
        return ("a request to move key groups" if key.startswith(MOVE_KEY) else f"the request {key}"), None, None
    what, app, worker = worded(intent)
    return f"the request to {what}", app, worker


def worded(intent: Intent) -> tuple[str, AppId | None, WorkerId | None]:
    """What an operator wants, and which app or worker it is about."""
    match intent:
        case Drain(worker=worker, until=until):
            kept = "" if until is None else f" for maintenance of {time_span(until - intent.at)}"
            return f"drain {worker}{kept}", None, worker
        case Undrain(worker=worker):
            return f"undrain {worker}", None, worker
        case Pause():
            return "pause", None, None
        case Stop(app=None):
            return "stop all plans", None, None
        case Stop(app=app):
            return f"stop the plan of {app}", app, None
        case Scale(app=app, workers=workers):
            return f"scale {app} to {counted(workers, 'worker')}", app, None
        case ForgetApp(app=app):
            return f"forget app {app}", app, None
        case ForgetWorker(worker=worker):
            return f"forget worker {worker}", None, worker
        case RollingRestart(app=app, workers=workers):
            return f"restart {len(workers)} workers of {app}, host by host", app, None
        case Approve(plan=plan):
            return f"approve plan {plan}", None, None
        case Reject(plan=plan):
            return f"reject plan {plan}", None, None
        case MoveKeyGroups(app=app, undoes=None):
            return f"move {first_few(f'{each.key_group} to {each.worker}' for each in intent.moves)}", app, None
        case MoveKeyGroups(app=app, undoes=plan):
            return f"undo plan {plan}", app, None
        case AddRule(rule=rule):
            return f"keep rule {rule.name} ({rule.kind})", None, None
        case AcceptJournal():
            return "carry on without the journal", None, None
        case _:
            assert_never(intent)
