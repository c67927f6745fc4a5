"""Intents as documents of the API."""

from typing import assert_never

from trimtab_protocol.console_documents import IntentDocument
from trimtab_protocol.messages.intents import (
    AcceptJournal,
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
    Undrain,
)


def intent_document(intent: Intent) -> IntentDocument:
    """Who asked for what, when and why."""
    kind, about, workers = _what(intent)
    return IntentDocument(kind=kind, about=about, workers=workers, by=intent.by, at=intent.at, reason=intent.reason)


def _what(intent: Intent) -> tuple[str, str | None, int | None]:
    match intent:
        case Drain(worker=worker):
            return "drain", worker, None
        case Undrain(worker=worker):
            return "undrain", worker, None
        case Pause():
            return "pause", None, None
        case Stop(app=app):
            return "stop", app, None
        case Scale(app=app, workers=workers):
            return "scale", app, workers
        case ForgetApp(app=app):
            return "forget app", app, None
        case ForgetWorker(worker=worker):
            return "forget worker", worker, None
        case RollingRestart(app=app, workers=workers):
            return "rolling restart", app, len(workers)
        case Approve(plan=plan):
            return "approve", plan, None
        case Reject(plan=plan):
            return "reject", plan, None
        case MoveKeyGroups(app=app, undoes=None):
            return "move", app, None
        case MoveKeyGroups(undoes=plan):
            return "undo", plan, None
        case AcceptJournal():
            return "accept journal", None, None
        case _:
            assert_never(intent)
