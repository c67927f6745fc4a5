"""The size of an app in the status: how many workers it has, and how many it should have."""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import Fields, check_name, check_text
from trimtab_protocol.messages.names import WorkerId

MAX_LEAVING = 100_000
"""Workers of one app that leave at the same time."""
MAX_SETTING = 1_000
"""Characters of a setting."""


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

    text: str
    workers: int | None = None
    wanted: int | None = None
    desired: int | None = None
    demand_cores: float | None = None
    capacity_cores: float | None = None
    leaving: tuple[WorkerId, ...] = ()
    restart_s: float | None = None
    measured_restart_s: float | None = None
    own_settings: tuple[str, ...] = ()


def read_size(fields: Fields) -> SizeStatus:
    """The size in these fields; raises BadMessage."""
    return SizeStatus(
        text=fields.text("text", limit=4000),
        workers=fields.optional("workers", fields.integer),
        wanted=fields.optional("wanted", fields.integer),
        desired=fields.optional("desired", fields.integer),
        demand_cores=fields.optional("demand_cores", fields.number),
        capacity_cores=fields.optional("capacity_cores", fields.number),
        leaving=tuple(WorkerId(check_name(each, at)) for at, each in fields.items("leaving", limit=MAX_LEAVING))
        if fields.has("leaving")
        else (),
        restart_s=fields.optional("restart_s", fields.number),
        measured_restart_s=fields.optional("measured_restart_s", fields.number),
        own_settings=tuple(check_text(each, at, MAX_SETTING) for at, each in fields.items("own_settings", limit=100))
        if fields.has("own_settings")
        else (),
    )
