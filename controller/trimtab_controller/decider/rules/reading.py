"""Reads `[[rule]]` from controller.toml."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trimtab_controller.decider.rules.rule import Rule, RuleKind
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_text
from trimtab_protocol.messages.names import MAX_PARTITIONS

MAX_RULES = 60
"""Rules of a cluster.  All that hold for a key group are numbered in one integer."""
MAX_PATTERNS = 1_000
"""Patterns of workers, and of hosts, in one rule."""
MAX_RANGES = 100
"""Ranges of key groups in one rule."""
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


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
    fields = Fields(dict(value), path)
    found: dict[str, Any] = {
        "name": fields.name("name"),
        "kind": fields.choice("kind", RuleKind),
        "reason": fields.text("reason"),
        "app": fields.optional("app", fields.text) or "*",
        "operator": fields.optional("operator", fields.text) or "*",
        "key_groups": fields.optional("key_groups", lambda name: _ranges(fields.text(name), fields.at(name))) or (),
        "workers": _patterns(fields, "workers"),
        "hosts": _patterns(fields, "hosts"),
        "until": fields.optional("until", lambda name: _time(fields.take(name), fields.at(name))),
    }
    fields.done()
    try:
        return Rule(**found)
    except ValueError as error:
        raise BadMessage(Fault.RANGE, path, f"rule {found['name']}", str(error)) from error


def _patterns(fields: Fields, name: str) -> tuple[str, ...]:
    if not fields.has(name):
        return ()
    return tuple(check_text(value, at, 200) for at, value in fields.items(name, limit=MAX_PATTERNS))


def _ranges(text: str, path: str) -> tuple[tuple[int, int], ...]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_RANGES:
        raise BadMessage(Fault.OVERSIZED, path, f"{len(parts)} ranges", f"at most {MAX_RANGES}")
    found = [_RANGE.fullmatch(part) for part in parts]
    ranges = [(int(each[1]), int(each[2] or each[1])) for each in found if each is not None]
    if None in found or any(last > MAX_PARTITIONS for _, last in ranges):
        raise BadMessage(Fault.RANGE, path, text, f"numbers and ranges up to {MAX_PARTITIONS}, such as 0-15,40")
    return tuple(ranges)


def _time(value: object, path: str) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadMessage(Fault.TYPE, path, str(value), "a time with its zone, such as 2026-12-01T00:00:00Z")
    return value.timestamp()
