"""The status of a round, as part of the status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Name, Range, Text
from trimtab_protocol.messages.decode import MAX_NUMBER
from trimtab_protocol.messages.names import AppId, HostId

MAX_PAUSES = 1_000_000
"""Measured pauses of one round."""
MAX_HOSTS = 100_000
"""Hosts of one round whose links are unknown."""
Reason = Annotated[str, Text(4000)]
Signed = Annotated[float, Range(-MAX_NUMBER, MAX_NUMBER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStatus:
    """A round: the execution of one plan, in flight while `ended_at` is None.

    `status` = the solver's (optimal, feasible ...), `fallback` = whether the greedy method planned; load distance
    `before` the plan, as `planned`, its `lower_bound`, and measured `after` the round (pp), `incomparable` = why the
    last says nothing about the plan; `migrations`, `failed` = key groups moved and not moved; `bytes_moved` = state;
    `handovers` = number per phase; `pauses_s` = pause of each hand-over in seconds, measured by the new owner;
    `stopped` = who stopped it, and why.

    Seconds until the targets of all hand-overs are warm: `recovery_planned_s` (expected), `recovery_high_s` (if
    restores are as slow as the p90 of those measured), `recovery_bound_s` (no schedule is expected to take less) and
    `recovery_s` (measured, so far).  None = not scheduled, or unknown.  `unknown_links` = target hosts whose link speed
    or use is unknown, so that a default stands for what restores there cost until some were measured.

    `saved_planned_pp`, `saved_pp` = by how much collocation was to lower the mean load, and has (pp; below 0: it rose).
    """

    plan: Name
    app: AppId
    reason: Reason
    status: Name
    fallback: bool
    started_at: float
    ended_at: float | None
    before: float
    planned: float
    after: float | None
    lower_bound: float
    migrations: int
    failed: int
    bytes_moved: int
    handovers: Annotated[Mapping[str, Annotated[int, Range(0, 2**31)]], Most(100)] = field(default_factory=dict)
    pauses_s: Annotated[tuple[float, ...], Most(MAX_PAUSES)] = ()
    incomparable: Reason | None = None
    stopped: Reason | None = None
    recovery_planned_s: float | None = None
    recovery_high_s: float | None = None
    recovery_bound_s: float | None = None
    recovery_s: float | None = None
    unknown_links: Annotated[tuple[HostId, ...], Most(MAX_HOSTS)] = ()
    saved_planned_pp: Signed | None = None
    saved_pp: Signed | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "handovers", MappingProxyType(dict(self.handovers)))
