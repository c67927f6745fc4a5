"""The status in a few lines, in the words of `trimtab status`; `trimtab sandbox status` prints them."""

from trimtab_controller.cli.status_collocation import collocation_line
from trimtab_controller.cli.status_plans import plans_in_flight
from trimtab_controller.cli.status_view import app_line, headline, restart_line
from trimtab_controller.seen import Seen
from trimtab_protocol.wording import time_span

SHOWN_APPS = 5
SHOWN_DECISIONS = ("last decision", "the one before")


def brief_status(seen: Seen) -> list[str]:
    """State and age of the last window, a line for each app, the plans in flight, the last decisions, the runbook."""
    status = seen.status
    lines = [headline(seen).plain]
    for app in status.apps[:SHOWN_APPS]:
        lines += [
            f"{app.app}: {line}" for line in (app_line(app).plain, restart_line(app), collocation_line(app)) if line
        ]
    if len(status.apps) > SHOWN_APPS:
        lines.append(f"and {len(status.apps) - SHOWN_APPS} more apps")
    in_flight = plans_in_flight(status, seen.now)
    lines += ["no plan in flight"] if in_flight is None else [f"plan in flight {in_flight.plain}"]
    for name, row in zip(SHOWN_DECISIONS, reversed(status.decisions), strict=False):
        lines.append(f"{name} {time_span(seen.now - row.at)} ago: {row.text}")
    if seen.runbook is not None:
        lines.append(f"What to check and what to do: trimtab runbook {seen.runbook}")
    return "\n".join(lines).splitlines()
