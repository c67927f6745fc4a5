"""Intents and rules as documents of the API."""

from trimtab_protocol.console_documents import IntentDocument, RuleDocument
from trimtab_protocol.messages.codec import copied
from trimtab_protocol.messages.intents import AddRule, Drain, Intent, MoveKeyGroups, RollingRestart, Scale
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
    kind, about = intent.KIND, intent.about
    workers = intent.workers if isinstance(intent, Scale) else None
    if isinstance(intent, RollingRestart):
        workers = len(intent.workers)
    if isinstance(intent, MoveKeyGroups) and intent.undoes is not None:
        kind, about = "undo", intent.undoes
    return IntentDocument(
        kind=kind,
        about=about,
        workers=workers,
        by=intent.by,
        at=intent.at,
        reason=intent.reason,
        until=intent.rule.until if isinstance(intent, AddRule) else intent.until if isinstance(intent, Drain) else None,
        host=intent.host if isinstance(intent, Drain) else None,
    )
