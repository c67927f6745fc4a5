"""Rules of operators about where key groups may be: what they say, and how they are written.

They stand in controller.toml as `[[rule]]`, or are intents.  Names are matched by patterns as shells have them: `*`,
`?` and `[...]`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from trimtab_protocol.messages.decode import BadMessage, Fault, Fields, check_text
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, HostId, WorkerId

MAX_RULES = 60
"""Rules of a cluster.  All that hold for a key group are numbered in one integer."""
MAX_PATTERNS = 1_000
"""Patterns of workers, of hosts, and of zones, in one rule."""
MAX_RANGES = 100
"""Ranges of key groups in one rule."""
MAX_PRIORITY = 100
"""The highest priority; the lowest one is as far below 0, which all key groups without a rule have."""
LATEST_END = 253_402_300_799.0
"""The last end that a rule may be given (epoch seconds): the year 9999, which clocks and calendars can still show."""
MAX_REASON = 2_000
"""Characters of a rule's reason."""
MAX_PATTERN = 200
"""Characters of a pattern."""
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_WILD = re.compile(r"[*?\[]")


class RuleKind(StrEnum):
    """What a rule asks for."""

    POOL = "pool"  # its key groups are on its workers, and on no others
    EXCLUDE = "exclude"  # its key groups are on none of its workers
    FREEZE = "freeze"  # its key groups stay where they are, unless their worker is lost
    PIN = "pin"  # its key groups are owned by one worker; others may follow them
    ZONE = "zone"  # its key groups are in its zones, and in no others
    SPREAD = "spread"  # owner and standbys of its apps' key groups are in different zones
    PRIORITY = "priority"  # its key groups come before those of a lower priority, where not all can


_TARGETS = ("workers", "hosts", "zones")
_NEEDS: Mapping[RuleKind, tuple[tuple[str, ...], str]] = {
    RuleKind.POOL: (_TARGETS, "workers, hosts or zones"),
    RuleKind.EXCLUDE: (_TARGETS, "workers, hosts or zones"),
    RuleKind.FREEZE: ((), ""),
    RuleKind.PIN: (("workers",), "workers"),
    RuleKind.ZONE: (("zones",), "zones"),
    RuleKind.SPREAD: ((), ""),
    RuleKind.PRIORITY: ((), ""),
}
"""What a rule of each kind says besides the key groups that it is about, and their priority."""


class BadRule(ValueError):
    """A rule of this `kind` says too much or too little; `expected` = what it should say."""

    def __init__(self, kind: RuleKind, expected: str) -> None:
        self.kind = kind
        self.expected = expected
        super().__init__(f"found a rule of the kind {kind}, expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of operators.

    It is about the key groups of the `app` and `operator` patterns whose number is in one of `key_groups` (first and
    last; none: all of them).  Its workers match a pattern of `workers`, or run on a host that matches one of `hosts` or
    is in a zone that matches one of `zones`; a host of an unknown zone is in none.  Its key groups have this
    `priority`; 0 is that of all others.  It holds until `until` (epoch seconds); None: it has no end.
    """

    name: str
    kind: RuleKind
    reason: str
    app: str = "*"
    operator: str = "*"
    key_groups: tuple[tuple[int, int], ...] = ()
    workers: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    priority: int = 0
    until: float | None = None

    def __post_init__(self) -> None:
        may, expected = _NEEDS[self.kind]
        given = [name for name in _TARGETS if getattr(self, name)]
        if bool(may) != bool(given) or not set(given) <= set(may):
            raise BadRule(
                self.kind,
                f"{expected or 'no workers, hosts or zones'}"
                + (f", and no {' or '.join(extra)}," if may and (extra := sorted(set(given) - set(may))) else "")
                + f" beside the kind {self.kind}",
            )
        if self.kind is RuleKind.PIN and (len(self.workers) > 1 or _WILD.search(self.workers[0])):
            raise BadRule(self.kind, "the name of one worker beside the kind pin; a pool may have several")
        if self.kind is RuleKind.SPREAD and (self.operator != "*" or self.key_groups):
            raise BadRule(self.kind, "no operator and no key_groups beside the kind spread: it is about whole apps")
        if self.kind is RuleKind.PRIORITY and not self.priority:
            raise BadRule(self.kind, "priority beside the kind priority")
        if abs(self.priority) > MAX_PRIORITY:
            raise BadRule(self.kind, f"a priority from -{MAX_PRIORITY} to {MAX_PRIORITY}")
        if any(first > last for first, last in self.key_groups):
            raise BadRule(self.kind, "no key group of a range above its last")

    @property
    def places(self) -> bool:
        """Whether it says which workers may own key groups."""
        return bool(self.workers or self.hosts or self.zones)

    @property
    def places_standbys(self) -> bool:
        """Whether it says which workers may follow key groups."""
        return self.places and self.kind is not RuleKind.PIN

    def ended(self, now: float) -> bool:
        """Whether its end is over (epoch seconds)."""
        return self.until is not None and now >= self.until

    def holds(self, app: AppId, now: float) -> bool:
        """Whether it is about this app and has not ended."""
        return fnmatchcase(app, self.app) and not self.ended(now)

    def allows(self, worker: WorkerId, host: HostId, zone: str | None = None) -> bool:
        """Whether its key groups may be on this worker."""
        if not self.places:
            return True
        named = any(fnmatchcase(worker, each) for each in self.workers)
        named = named or any(fnmatchcase(host, each) for each in self.hosts)
        named = named or (zone is not None and any(fnmatchcase(zone, each) for each in self.zones))
        return named != (self.kind is RuleKind.EXCLUDE)


def rule_document(rule: Rule) -> dict[str, Any]:
    """The keys of a rule as in controller.toml, without its reason; `until` in epoch seconds."""
    ranges = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in rule.key_groups)
    found: dict[str, Any] = {"name": rule.name, "kind": str(rule.kind)}
    found |= {name: given for name in ("app", "operator") if (given := getattr(rule, name)) != "*"}
    found |= {"key_groups": ranges} if ranges else {}
    found |= {name: list(given) for name in _TARGETS if (given := getattr(rule, name))}
    found |= {"priority": rule.priority} if rule.priority else {}
    return found | ({} if rule.until is None else {"until": rule.until})


def read_rule(fields: Fields, reason: str | None = None, until: Callable[[Fields, str], float] = Fields.number) -> Rule:
    """The rule in these fields; `reason` None: it is one of them.  Raises BadMessage."""
    found: dict[str, Any] = {
        "name": fields.name("name"),
        "kind": fields.choice("kind", RuleKind),
        "reason": fields.text("reason", limit=MAX_REASON) if reason is None else reason,
        "app": fields.optional("app", fields.text) or "*",
        "operator": fields.optional("operator", fields.text) or "*",
        "key_groups": fields.optional("key_groups", lambda name: ranges_of(fields.text(name), fields.at(name))) or (),
        **{name: _patterns(fields, name) for name in _TARGETS},
        "priority": fields.optional("priority", lambda name: _priority(fields, name)) or 0,
        "until": fields.optional("until", lambda name: until(fields, name)),
    }
    try:
        return Rule(**found)
    except BadRule as error:
        raise BadMessage(Fault.RANGE, fields.at("kind"), str(error.kind), error.expected) from error


def ranges_of(text: str, path: str) -> tuple[tuple[int, int], ...]:
    """Ranges of key groups, such as 0-15,40.  Raises BadMessage."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_RANGES:
        raise BadMessage(Fault.OVERSIZED, path, f"{len(parts)} ranges", f"at most {MAX_RANGES}")
    found = [_RANGE.fullmatch(part) for part in parts]
    ranges = [(int(each[1]), int(each[2] or each[1])) for each in found if each is not None]
    if None in found or any(last > MAX_PARTITIONS for _, last in ranges):
        raise BadMessage(Fault.RANGE, path, text, f"numbers and ranges up to {MAX_PARTITIONS}, such as 0-15,40")
    if any(first > last for first, last in ranges):
        raise BadMessage(Fault.RANGE, path, text, "ranges whose first key group is not above their last, such as 0-15")
    return tuple(ranges)


def _patterns(fields: Fields, name: str) -> tuple[str, ...]:
    if not fields.has(name):
        return ()
    return tuple(check_text(value, at, MAX_PATTERN) for at, value in fields.items(name, limit=MAX_PATTERNS))


def _priority(fields: Fields, name: str) -> int:
    value = fields.take(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < abs(value) <= MAX_PRIORITY:
        expected = f"a number from -{MAX_PRIORITY} to {MAX_PRIORITY}, but 0"
        raise BadMessage(Fault.RANGE, fields.at(name), value, expected)
    return value
