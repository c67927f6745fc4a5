"""What a rule says, and what it is about.

Names are matched by patterns as shells have them: `*`, `?` and `[...]`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.decider.owned import OwnedTable
from trimtab_protocol.messages.names import AppId, HostId, WorkerId


class RuleKind(StrEnum):
    """What a rule asks for."""

    POOL = "pool"  # its key groups are on its workers, and on no others
    EXCLUDE = "exclude"  # its key groups are on none of its workers
    FREEZE = "freeze"  # its key groups stay where they are, unless their worker is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of operators.

    It is about the key groups of the `app` and `operator` patterns whose number is in one of `key_groups` (first and
    last; none: all of them).  Its workers match a pattern of `workers`, or run on a host that matches one of `hosts`.
    It holds until `until` (epoch seconds); None: it has no end.
    """

    name: str
    kind: RuleKind
    reason: str
    app: str = "*"
    operator: str = "*"
    key_groups: tuple[tuple[int, int], ...] = ()
    workers: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    until: float | None = None

    def __post_init__(self) -> None:
        if (self.kind is RuleKind.FREEZE) == bool(self.workers or self.hosts):
            needs = "no workers or hosts" if self.kind is RuleKind.FREEZE else "workers or hosts"
            raise ValueError(f"a rule of the kind {self.kind} needs {needs}")
        if any(first > last for first, last in self.key_groups):
            raise ValueError("the first key group of a range must not be above its last")

    def holds(self, app: AppId, now: float) -> bool:
        """Whether it is about this app and has not ended."""
        return fnmatchcase(app, self.app) and (self.until is None or now < self.until)

    def covers(self, table: OwnedTable) -> NDArray[np.bool_]:
        """(K,) the key groups that it is about; their app is matched already."""
        operators = np.array([fnmatchcase(name, self.operator) for name in table.operators], np.bool_)
        found = operators[table.operator] if len(table) else np.zeros(0, np.bool_)
        if self.key_groups:
            inside = np.zeros(len(table), np.bool_)
            for first, last in self.key_groups:
                inside |= (first <= table.partition) & (table.partition <= last)
            found &= inside
        return found

    def allows(self, worker: WorkerId, host: HostId) -> bool:
        """Whether its key groups may be on this worker."""
        named = any(fnmatchcase(worker, each) for each in self.workers)
        named = named or any(fnmatchcase(host, each) for each in self.hosts)
        return self.kind is RuleKind.FREEZE or named == (self.kind is RuleKind.POOL)


def in_force(rules: Iterable[Rule], app: AppId, now: float) -> tuple[Rule, ...]:
    """The rules that hold for an app now (epoch seconds)."""
    return tuple(rule for rule in rules if rule.holds(app, now))


def names(rules: Sequence[Rule]) -> str:
    """The names of rules in a sentence."""
    return ("rule " if len(rules) == 1 else "rules ") + ", ".join(rule.name for rule in rules)
