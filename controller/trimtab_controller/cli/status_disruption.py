"""What `trimtab status` says about the disruption budget of an app."""

from trimtab_controller.execution.disruption import WINDOW_S
from trimtab_protocol.messages.status import AppStatus, DisruptionStatus
from trimtab_protocol.wording import counted, time_span

SHOWN_FROM_S = 0.05


def disruption_line(app: AppStatus, now: float) -> str:
    """One line: what has paused, how much of the budget that is, and when there is room; empty if there is nothing."""
    found = app.disruption
    if found is None or (found.limit_s is None and found.used_s < SHOWN_FROM_S):
        return ""
    of = "" if found.limit_s is None else f" of {found.limit_s:g}"
    return f"paused: {found.used_s:.1f}{of} key-group seconds in the last hour{_besides(found, now)}{_room(found, now)}"


def _besides(found: DisruptionStatus, now: float) -> str:
    parts = []
    if found.assumed_s >= SHOWN_FROM_S:
        parts.append(f"{found.assumed_s:.1f} not measured")
    causes = {cause: seconds for cause, seconds in found.by_cause.items() if seconds >= SHOWN_FROM_S}
    if causes.keys() - {"moves"}:
        parts.append("by " + ", ".join(f"{cause.replace('_', ' ')} {s:.1f}" for cause, s in causes.items()))
    if found.in_flight_s >= SHOWN_FROM_S:
        parts.append(f"{found.in_flight_s:.1f} more under way")
    if found.since is not None and now - found.since < WINDOW_S:
        parts.append(f"counted for {time_span(now - found.since)} only")
    if found.unmeasured:
        workers = counted(found.unmeasured, "worker")
        parts.append(f"unknown how long rebalances pause {workers} with an older plug-in")
    return f" ({', '.join(parts)})" if parts else ""


def _room(found: DisruptionStatus, now: float) -> str:
    if found.limit_s is None or found.fits is None:
        return ""
    if found.fits > 0:
        return f", room for {counted(found.fits, 'key group')}"
    if found.free_at is None:
        return ", too low for a single key group: nothing moves, except after a loss"
    return f", room again in {time_span(found.free_at - now)}: nothing moves until then, except after a loss"
