"""The disruption budget of an app, as the status shows it."""

from trimtab_controller.execution.budget import BudgetUse
from trimtab_protocol.messages.status import CauseStatus, DisruptionStatus


def disruption_status(use: BudgetUse, unmeasured: int | None) -> DisruptionStatus:
    """What an app has used of its budget; `unmeasured` = workers of which the last window does not say all of it."""
    return DisruptionStatus(
        used_s=use.used_s,
        assumed_s=use.assumed_s,
        in_flight_s=use.in_flight_s,
        limit_s=use.limit_s,
        fits=use.fits,
        free_at=None if use.limit_s is None else use.free_at(),
        since=use.since,
        causes=tuple(CauseStatus(cause=str(cause), used_s=seconds) for cause, seconds in use.causes.items()),
        unmeasured=unmeasured,
    )
