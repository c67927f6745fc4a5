"""The part of the status about the disruption budget of an app."""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionStatus:
    """Paused key-group seconds of an app: `used_s` in the last hour, of which nobody measured `assumed_s`.

    `in_flight_s` = what hand-overs in flight are expected to add.  `limit_s` None: there is no limit.  `fits` = how
    many further key groups may be handed over now, `free_at` = when one may again (epoch seconds); None: no limit, or,
    beside `fits` 0, never.  `since` = from when on pauses were counted (epoch seconds); None: not yet.
    """

    used_s: float
    assumed_s: float
    in_flight_s: float
    limit_s: float | None = None
    fits: int | None = None
    free_at: float | None = None
    since: float | None = None


def read_disruption(row: Fields) -> DisruptionStatus:
    """The `disruption` of an app; raises BadMessage."""
    return DisruptionStatus(
        used_s=row.number("used_s"),
        assumed_s=row.number("assumed_s"),
        in_flight_s=row.number("in_flight_s"),
        limit_s=row.optional("limit_s", row.number),
        fits=row.optional("fits", row.integer),
        free_at=row.optional("free_at", row.number),
        since=row.optional("since", row.number),
    )
