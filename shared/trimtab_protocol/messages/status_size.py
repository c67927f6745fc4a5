"""The size of an app in the status: how many workers it has, and how many it should have."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Text
from trimtab_protocol.messages.names import WorkerId

MAX_LEAVING = 100_000
"""Workers of one app that leave at the same time."""
MAX_SETTING = 1_000
"""Characters of a setting."""
MAX_SETTINGS = 100
"""Settings of one app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStatus:
    """The number of workers of an app; None = unknown.

    `workers` = how many stay, `wanted` = how many there should be by demand or by an operator's word, `desired` = the
    number for whoever adds and removes workers from outside: it follows `wanted` when a change is due.  `demand_cores`
    of `capacity_cores` are asked of the workers that stay.  `leaving` = workers that the controller drains, to stop
    them.  `restart_s` = the configured time until a started worker runs, `measured_restart_s` = the longest that the
    controller saw one of the last ten take.  `own_settings` = those of `[scaling.apps]` for this app, such as
    `max_workers = 4`.  `text` = the numbers of workers in words, with the reason.
    """

    text: Annotated[str, Text(4000)]
    workers: int | None = None
    wanted: int | None = None
    desired: int | None = None
    demand_cores: float | None = None
    capacity_cores: float | None = None
    leaving: Annotated[tuple[WorkerId, ...], Most(MAX_LEAVING)] = ()
    restart_s: float | None = None
    measured_restart_s: float | None = None
    own_settings: Annotated[tuple[Annotated[str, Text(MAX_SETTING)], ...], Most(MAX_SETTINGS)] = ()
