"""Intents and rules as documents of the API."""

from collections.abc import Mapping
from operator import attrgetter

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

KINDS: Mapping[type[Intent], tuple[str, str | None]] = {
    Drain: ("drain", "worker"),
    Undrain: ("undrain", "worker"),
    Pause: ("pause", None),
    Stop: ("stop", "app"),
    Scale: ("scale", "app"),
    ForgetApp: ("forget app", "app"),
    ForgetWorker: ("forget worker", "worker"),
    RollingRestart: ("rolling restart", "app"),
    Approve: ("approve", "plan"),
    Reject: ("reject", "plan"),
    MoveKeyGroups: ("move", "app"),
    AddRule: ("rule", "rule.name"),
    AcceptJournal: ("accept journal", None),
}
"""Intent -> its kind, and the attribute that says what it is about."""


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
    kind, about = KINDS[type(intent)]
    workers = intent.workers if isinstance(intent, Scale) else None
    if isinstance(intent, RollingRestart):
        workers = len(intent.workers)
    if isinstance(intent, MoveKeyGroups) and intent.undoes is not None:
        kind, about = "undo", "undoes"
    return IntentDocument(
        kind=kind,
        about=None if about is None else attrgetter(about)(intent),
        workers=workers,
        by=intent.by,
        at=intent.at,
        reason=intent.reason,
        until=intent.rule.until if isinstance(intent, AddRule) else intent.until if isinstance(intent, Drain) else None,
        host=intent.host if isinstance(intent, Drain) else None,
    )
