"""The plans in `trimtab status`, and how it writes times."""

import statistics
import time

from rich.table import Table
from rich.text import Text

from trimtab_protocol.messages.status import ProposalStatus, RoundStatus, Status
from trimtab_protocol.wording import counted, first_few, time_span

SHOWN_ROUNDS = 3
SHOWN_PLANS = 5
SHOWN_MOVES = 5


def plans_in_flight(status: Status, now: float) -> Text | None:
    """The plans in flight, the oldest first."""
    rows = sorted(status.plans_in_flight, key=lambda row: row.started_at)
    said = [_plan_in_flight(row, now) for row in rows[:SHOWN_PLANS]]
    if len(rows) > SHOWN_PLANS:
        said.append(f"and {len(rows) - SHOWN_PLANS} more")
    return Text("\n".join(said)) if said else None


def waiting_plans(status: Status, now: float) -> Text | None:
    """The plans that wait for approval, and those that were rejected a short while ago."""
    rows = sorted(status.proposals, key=lambda row: (row.rejected is not None, row.at))
    said = [_waiting(row, now) for row in rows[:SHOWN_PLANS]]
    if len(rows) > SHOWN_PLANS:
        said.append(f"and {len(rows) - SHOWN_PLANS} more")
    return Text("\n".join(said)) if said else None


def _waiting(row: ProposalStatus, now: float) -> str:
    left = time_span(row.expires_at - now)
    if row.rejected is not None:
        told = f"{row.plan} of {row.app} was rejected {row.rejected}"
        return f"{told}; nothing else is proposed for {left}, unless loads change"
    warm = f" ({row.to_standbys} to standbys)" if row.to_standbys else ""
    unknown = f" and that of {counted(row.unmeasured, 'key group')} of unknown size" if row.unmeasured else ""
    moves = [f"  {each.key_group} from {each.source} to {each.target}" for each in row.moves[:SHOWN_MOVES]]
    more = [f"  and {row.moves_total - SHOWN_MOVES} more"] if row.moves_total > SHOWN_MOVES else []
    return "\n".join(
        [
            f"{row.plan} of {row.app}, proposed {time_span(now - row.at)} ago, expires in {left}: {row.reason}",
            f"load distance {row.before:.1f} -> {row.planned:.1f} planned (bound {row.lower_bound:.1f}), "
            f"{counted(row.moves_total, 'move')}{warm}, {row.restore_bytes / 1e6:.1f} MB of state to restore{unknown}",
            *moves,
            *more,
            f"trimtab approve {row.plan}, or trimtab reject {row.plan} --reason TEXT",
        ]
    )


def _plan_in_flight(row: RoundStatus, now: float) -> str:
    total = sum(row.handovers.values())
    phases = ", ".join(f"{count} {phase}" for phase, count in row.handovers.items() if count)
    stopped = "" if row.stopped is None else f"; {row.stopped}"
    return (
        f"{row.plan} of {row.app}, started {time_span(now - row.started_at)} ago: {row.reason}\n"
        f"load distance {row.before:.1f} -> {row.planned:.1f} planned (bound {row.lower_bound:.1f})\n"
        f"{counted(total, 'hand-over')}: {phases}; {counted(row.migrations, 'key group')} moved so far{stopped}"
        f"{_recovery_planned(row)}"
    )


def _recovery_planned(row: RoundStatus) -> str:
    """When all targets should be warm; empty if their restores are not scheduled."""
    if row.recovery_planned_s is None or row.recovery_bound_s is None:
        return ""
    high = "" if row.recovery_high_s is None else f", {row.recovery_high_s:.1f} s if restores are slow"
    links = f"; a default for unknown links of {first_few(row.unknown_links)}" if row.unknown_links else ""
    return f"\nall warm after {row.recovery_planned_s:.1f} s planned (bound {row.recovery_bound_s:.1f} s{high}){links}"


def last_plans(status: Status) -> Table | None:
    """The plans that ended last, the newest first."""
    ended = [row for row in status.rounds if row.ended_at is not None]
    if not ended:
        return None
    table = Table.grid(padding=(0, 2))
    for row in reversed(ended[-SHOWN_ROUNDS:]):
        table.add_row(clock(row.started_at), Text(row.plan), _outcome(row))
    return table


def _outcome(row: RoundStatus) -> Text:
    after = f"{row.planned:.1f} planned" if row.after is None else f"{row.after:.1f} ({row.planned:.1f} planned)"
    text = Text(f"{row.reason}\n{row.before:.1f} -> {after}, {counted(row.migrations, 'key group')} moved")
    if row.recovery_s is not None and row.recovery_planned_s is not None and row.recovery_bound_s is not None:
        text.append(
            f", warm after {row.recovery_s:.1f} s ({row.recovery_planned_s:.1f} planned, "
            f"bound {row.recovery_bound_s:.1f})"
        )
    if row.saved_planned_pp is not None:
        saved = "" if row.saved_pp is None else f"{row.saved_pp:.1f} pp of load saved by collocation, "
        text.append(f", {saved}{row.saved_planned_pp:.1f} planned")
    if row.failed:
        text.append(f", {row.failed} failed", "red")
    if row.stopped:
        text.append(f", {row.stopped}", "yellow")
    if row.incomparable:
        text.append(f", cannot be compared: {row.incomparable}", "yellow")
    return text.append(f", pause {statistics.median(row.pauses_s):.2f} s" if row.pauses_s else "")


def clock(at: float) -> str:
    """A time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))
