"""Rules of operators about where key groups may be: what they say, and how they are written.

They stand in controller.toml as `[[rule]]`, or are intents.  Names are matched by patterns as shells have them: `*`,
`?` and `[...]`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

from trimtab_protocol.messages.codec import Most, Name, Text, WrittenAs
from trimtab_protocol.messages.decode import BadMessage, Fault
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


class BadRule(BadMessage):
    """A rule of this kind says too much or too little; `expected` = what it should say."""

    def __init__(self, kind: RuleKind, expected: str) -> None:
        super().__init__(Fault.RANGE, "kind", str(kind), expected)


def ranges_of(text: str) -> tuple[tuple[int, int], ...]:
    """Ranges of key groups, such as 0-15,40.  Raises BadMessage."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_RANGES:
        raise BadMessage(Fault.OVERSIZED, "", f"{len(parts)} ranges", f"at most {MAX_RANGES}")
    found = [_RANGE.fullmatch(part) for part in parts]
    ranges = [(int(each[1]), int(each[2] or each[1])) for each in found if each is not None]
    if None in found or any(last > MAX_PARTITIONS for _, last in ranges):
        raise BadMessage(Fault.RANGE, "", text, f"numbers and ranges up to {MAX_PARTITIONS}, such as 0-15,40")
    if any(first > last for first, last in ranges):
        raise BadMessage(Fault.RANGE, "", text, "ranges whose first key group is not above their last, such as 0-15")
    return tuple(ranges)


def ranges_text(ranges: tuple[tuple[int, int], ...]) -> str:
    """The text that `ranges_of` reads."""
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


def _priority(found: object) -> int:
    if type(found) is not int or not 0 < abs(found) <= MAX_PRIORITY:
        raise BadMessage(Fault.RANGE, "", found, f"a number from -{MAX_PRIORITY} to {MAX_PRIORITY}, but 0")
    return found


Patterns = Annotated[tuple[Annotated[str, Text(MAX_PATTERN)], ...], Most(MAX_PATTERNS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of operators.

    It is about the key groups of the `app` and `operator` patterns whose number is in one of `key_groups` (first and
    last; none: all of them).  Its workers match a pattern of `workers`, or run on a host that matches one of `hosts` or
    is in a zone that matches one of `zones`; a host of an unknown zone is in none.  Its key groups have this
    `priority`; 0 is that of all others.  It holds until `until` (epoch seconds); None: it has no end.
    """

    name: Name
    kind: RuleKind
    reason: Annotated[str, Text(MAX_REASON)]
    app: str = "*"
    operator: str = "*"
    key_groups: Annotated[tuple[tuple[int, int], ...], WrittenAs(str, ranges_text, ranges_of)] = ()
    workers: Patterns = ()
    hosts: Patterns = ()
    zones: Patterns = ()
    priority: Annotated[int, WrittenAs(Any, int, _priority)] = 0
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
