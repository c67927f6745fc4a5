"""The status of a round, as part of the status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trimtab_protocol.messages.decode import MAX_NUMBER, Fields, check_integer, check_name, check_number
from trimtab_protocol.messages.names import AppId, HostId

MAX_PAUSES = 1_000_000
"""Measured pauses of one round."""
MAX_HOSTS = 100_000
"""Hosts of one round whose links are unknown."""


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
    or use is unknown, so that a preset stands for what restores there cost until some were measured.

    `saved_planned_pp`, `saved_pp` = by how much collocation was to lower the mean load, and has (pp; below 0: it rose).
    """

    plan: str
    app: AppId
    reason: str
    status: str
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
    handovers: Mapping[str, int] = field(default_factory=dict)
    pauses_s: tuple[float, ...] = ()
    incomparable: str | None = None
    stopped: str | None = None
    recovery_planned_s: float | None = None
    recovery_high_s: float | None = None
    recovery_bound_s: float | None = None
    recovery_s: float | None = None
    unknown_links: tuple[HostId, ...] = ()
    saved_planned_pp: float | None = None
    saved_pp: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "handovers", MappingProxyType(dict(self.handovers)))


def round_document(row: RoundStatus) -> dict[str, object]:
    """The fields as JSON types."""
    names = [name for name in RoundStatus.__slots__ if name != "handovers"]
    return {**{name: getattr(row, name) for name in names}, "handovers": dict(row.handovers)}


def read_round(row: Fields) -> RoundStatus:
    """The status of a round in these fields."""
    return RoundStatus(
        plan=row.name("plan"),
        app=AppId(row.name("app")),
        reason=row.text("reason", limit=4000),
        status=row.name("status"),
        fallback=row.flag("fallback"),
        started_at=row.number("started_at"),
        ended_at=row.optional("ended_at", row.number),
        before=row.number("before"),
        planned=row.number("planned"),
        after=row.optional("after", row.number),
        lower_bound=row.number("lower_bound"),
        migrations=row.integer("migrations"),
        failed=row.integer("failed"),
        bytes_moved=row.integer("bytes_moved"),
        handovers={
            name: check_integer(count, path, 0, 2**31) for name, path, count in row.members("handovers", limit=100)
        },
        pauses_s=tuple(
            check_number(value, path, 0.0, MAX_NUMBER) for path, value in row.items("pauses_s", limit=MAX_PAUSES)
        ),
        incomparable=row.optional("incomparable", lambda name: row.text(name, limit=4000)),
        stopped=row.optional("stopped", lambda name: row.text(name, limit=4000)),
        recovery_planned_s=row.optional("recovery_planned_s", row.number),
        recovery_high_s=row.optional("recovery_high_s", row.number),
        recovery_bound_s=row.optional("recovery_bound_s", row.number),
        recovery_s=row.optional("recovery_s", row.number),
        unknown_links=tuple(
            HostId(check_name(value, path)) for path, value in row.items("unknown_links", limit=MAX_HOSTS)
        )
        if row.has("unknown_links")
        else (),
        saved_planned_pp=row.optional("saved_planned_pp", lambda name: row.number(name, low=-MAX_NUMBER)),
        saved_pp=row.optional("saved_pp", lambda name: row.number(name, low=-MAX_NUMBER)),
    )
