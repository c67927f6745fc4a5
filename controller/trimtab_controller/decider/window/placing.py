"""Which key groups rules are about, the workers that these may be on, and rules that cannot hold together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.window.owned import Integers, OwnedTable
from trimtab_controller.solver.answer import Placing
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind

FREE = -1
"""The class of key groups without a rule about workers."""
LARGEST_SET = 4
"""Rules up to which the smallest set in conflict is looked for; of more, one is left out after the other."""

Bools = NDArray[np.bool_]
Site = tuple[WorkerId, HostId, str | None]
"""A worker, its host, and the zone of that; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Rules that leave no worker to some key groups, although some are there: no smaller set of them does.

    `example` = the row of one of these key groups, `count` of them.
    """

    rules: tuple[Rule, ...]
    example: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Where the K key groups of a table may be among N workers.

    Key groups with the same rules form a class; `rules` are those of each class.  `allowed` (C, N), `class_of` (K,) or
    FREE, `frozen` (K,).
    """

    class_of: Integers
    allowed: Bools
    frozen: Bools
    rules: tuple[tuple[Rule, ...], ...]
    workers: tuple[Site, ...]
    freezing: tuple[tuple[Rule, Bools], ...] = ()
    """Rules of the kind freeze, each with (K,) its key groups."""
    _by_class: Bools = field(init=False)  # (C + 1, N), the last row is for FREE

    def __post_init__(self) -> None:
        anywhere = np.ones((1, len(self.workers)), np.bool_)
        object.__setattr__(self, "_by_class", np.concatenate((self.allowed, anywhere)))

    @classmethod
    def of(cls, rules: Sequence[Rule], table: OwnedTable, workers: Sequence[Site]) -> "Places":
        """Of rules in force for the table's app."""
        frozen, codes = np.zeros(len(table), np.bool_), np.zeros(len(table), np.int64)
        if not rules:
            nowhere = np.ones((0, len(workers)), np.bool_)
            return cls(class_of=codes + FREE, allowed=nowhere, frozen=frozen, rules=(), workers=tuple(workers))
        placing = [rule for rule in rules if rule.places]
        freezing = tuple((rule, covers(rule, table)) for rule in rules if rule.kind is RuleKind.FREEZE)
        for _, covered in freezing:
            frozen |= covered
        for bit, rule in enumerate(placing):
            codes |= covers(rule, table).astype(np.int64) << bit
        found, class_of = np.unique(codes, return_inverse=True)
        classes = [tuple(rule for bit, rule in enumerate(placing) if code >> bit & 1) for code in found.tolist()]
        free = len(found) > 0 and found[0] == 0
        return cls(
            class_of=class_of.reshape(len(table)).astype(np.int64) - int(free),
            allowed=np.array([allowed_by(of, workers) for of in classes[int(free) :]], np.bool_).reshape(
                -1, len(workers)
            ),
            frozen=frozen,
            rules=tuple(classes[int(free) :]),
            workers=tuple(workers),
            freezing=freezing,
        )

    @property
    def idle(self) -> bool:
        """Whether no key group has a rule."""
        return not self.rules and not self.frozen.any()

    @property
    def of_question(self) -> Placing | None:
        """As the solver's process takes them; None if no key group has a rule."""
        if self.idle:
            return None
        return Placing(class_of=self.class_of.astype(np.int32), allowed=self.allowed, frozen=self.frozen)

    def may(self, rows: Integers | int, workers: Integers | int) -> Bools:
        """Whether key groups may be on workers, for both broadcast together."""
        found: Bools = self._by_class[self.class_of[rows], workers]
        return found

    def misplaced(self, owner: Integers) -> Bools:
        """(K,) the key groups that are where they may not be, and may move; `owner` (K,) = their workers."""
        bound = np.flatnonzero(self.class_of != FREE)
        found = np.zeros(len(self.class_of), np.bool_)
        found[bound] = ~self.allowed[self.class_of[bound], owner[bound]]
        return found & ~self.frozen

    def barred(self, row: int, worker: int) -> tuple[Rule, ...]:
        """The rules that keep a key group off a worker."""
        which = int(self.class_of[row])
        if which == FREE or self.allowed[which, worker]:
            return ()
        return tuple(rule for rule in self.rules[which] if not rule.allows(*self.workers[worker]))

    def against(self, row: int, worker: int) -> tuple[Rule, ...]:
        """The rules against a move of a key group to a worker."""
        return self.frozen_by(row) or self.barred(row, worker)

    def frozen_by(self, row: int) -> tuple[Rule, ...]:
        """The rules that keep a key group where it is."""
        return tuple(rule for rule, covered in self.freezing if covered[row])

    def conflicts(self) -> list[Conflict]:
        """The smallest sets of rules that leave key groups without any of the workers."""
        found: list[Conflict] = []
        for which, allowed in enumerate(self.allowed):
            if allowed.any() or not self.workers:
                continue
            rows = np.flatnonzero(self.class_of == which)
            rules = smallest(self.rules[which], lambda chosen: not any(allowed_by(chosen, self.workers)))
            found.append(Conflict(rules=rules, example=int(rows[0]), count=len(rows)))
        return found


def allowed_by(rules: Sequence[Rule], sites: Sequence[Site]) -> list[bool]:
    """Which of the workers all rules allow."""
    return [all(rule.allows(*site) for rule in rules) for site in sites]


def smallest(rules: Sequence[Rule], fails: Callable[[Sequence[Rule]], bool]) -> tuple[Rule, ...]:
    """The smallest of the sets of these rules that cannot hold together; all of them cannot."""
    for size in range(1, min(LARGEST_SET, len(rules)) + 1):
        for chosen in combinations(rules, size):
            if fails(chosen):
                return chosen
    left = list(rules)
    for rule in rules:
        without = [each for each in left if each is not rule]
        if fails(without):
            left = without
    return tuple(left)


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
