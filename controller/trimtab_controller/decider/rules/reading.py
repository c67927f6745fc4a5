"""Reads `[[rule]]` from controller.toml."""

from collections.abc import Mapping
from datetime import datetime

from trimtab_protocol.messages.codec import converted, members
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, step
from trimtab_protocol.messages.rules import MAX_RULES, Rule


def read_rules(fields: Fields) -> tuple[Rule, ...]:
    """The rules of the document, in their order.  Raises BadMessage."""
    if not fields.has("rule"):
        return ()
    rules = [_read(value, path) for path, value in fields.items("rule", limit=MAX_RULES)]
    known: set[str] = set()
    for place, rule in enumerate(rules):
        if rule.name in known:
            raise BadMessage(Fault.RANGE, f"rule[{place}].name", rule.name, "a name that no other rule has")
        known.add(rule.name)
    return tuple(rules)


def _read(value: object, path: str) -> Rule:
    if not isinstance(value, Mapping):
        raise BadMessage(Fault.TYPE, path, value, "a table")
    until = {"until": _time(value["until"], f"{path}.until")} if "until" in value else {}
    rule = converted({**value, **until}, Rule, path)
    for name in value.keys() - {each.name for each in members(Rule)}:
        raise BadMessage(Fault.UNKNOWN, f"{path}.{step(name)}", value[name], "no such field")
    return rule


def _time(value: object, path: str) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadMessage(Fault.TYPE, path, str(value), "a time with its zone, such as 2026-12-01T00:00:00Z")
    return value.timestamp()
