"""Intents and rules as documents of the API."""

from typing import assert_never

from trimtab_protocol.console_documents import IntentDocument, RuleDocument
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.intents import (
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
    Undrain,
)
from trimtab_protocol.messages.rules import ranges_text
from trimtab_protocol.messages.status import RuleStatus


def rule_row(row: RuleStatus) -> RuleDocument:
    """What a rule says, and whose it is."""
    rule = row.rule
    return copied(
        RuleDocument,
        rule,
        kind=str(rule.kind),
        key_groups=ranges_text(rule.key_groups) or None,
        workers=list(rule.workers),
        hosts=list(rule.hosts),
        zones=list(rule.zones),
        by=row.by,
        at=row.at,
        ignored=row.ignored,
    )


def intent_document(intent: Intent) -> IntentDocument:
    """Who asked for what, when and why."""
    kind, about, workers = _what(intent)
    return IntentDocument(
        kind=kind,
        about=about,
        workers=workers,
        by=intent.by,
        at=intent.at,
        reason=intent.reason,
        until=_until(intent),
        host=intent.host if isinstance(intent, Drain) else None,
    )


def _until(intent: Intent) -> float | None:
    match intent:
        case Drain(until=until):
            return until
        case AddRule(rule=rule):
            return rule.until
        case _:
            return None


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
        case AddRule(rule=rule):
            return "rule", rule.name, None
        case AcceptJournal():
            return "accept journal", None, None
        case _:
            assert_never(intent)
