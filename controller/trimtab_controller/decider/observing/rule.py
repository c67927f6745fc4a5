"""Which key groups rules are about, and which of them hold."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.observing.owned import Integers, OwnedTable
from trimtab_protocol.messages.names import AppId, KeyGroup
from trimtab_protocol.messages.rules import Rule, RuleKind


def covers(rule: Rule, table: OwnedTable) -> NDArray[np.bool_]:
    """(K,) the key groups that a rule is about; their app is matched already."""
    operators = np.array([fnmatchcase(name, rule.operator) for name in table.operators], np.bool_)
    found = operators[table.operator] if len(table) else np.zeros(0, np.bool_)
    if rule.key_groups:
        inside = np.zeros(len(table), np.bool_)
        for first, last in rule.key_groups:
            inside |= (first <= table.partition) & (table.partition <= last)
        found &= inside
    return found


def is_about(rule: Rule, key_group: KeyGroup) -> bool:
    """Whether a rule is about this key group; its app is matched already."""
    inside = not rule.key_groups or any(first <= key_group.partition <= last for first, last in rule.key_groups)
    return inside and fnmatchcase(key_group.operator, rule.operator)


def in_force(rules: Iterable[Rule], app: AppId, now: float) -> tuple[Rule, ...]:
    """The rules that hold for an app now (epoch seconds)."""
    return tuple(rule for rule in rules if rule.holds(app, now))


def spreads(rules: Iterable[Rule]) -> bool:
    """Whether owner and standbys are to be in different zones."""
    return any(rule.kind is RuleKind.SPREAD for rule in rules)


def priorities(rules: Iterable[Rule], table: OwnedTable) -> Integers | None:
    """(K,) the priority of key groups: the highest that a rule gives them, else 0; None if no rule gives any."""
    given = [(rule.priority, covers(rule, table)) for rule in rules if rule.priority]
    if not given:
        return None
    ruled = np.logical_or.reduce([covered for _, covered in given])
    found = np.max([np.where(covered, priority, np.iinfo(np.int64).min) for priority, covered in given], axis=0)
    return np.where(ruled, found, 0).astype(np.int64)


def names(rules: Sequence[Rule]) -> str:
    """The names of rules in a sentence."""
    return ("rule " if len(rules) == 1 else "rules ") + ", ".join(rule.name for rule in rules)
