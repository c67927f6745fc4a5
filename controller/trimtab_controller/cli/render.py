"""Status and plans for people: tables and a few words."""

import statistics
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab_controller.decider.decide import Decision, Planned, describe
from trimtab_controller.leadership.group import Member
from trimtab_models.messages.status import RoundStatus, Status

SILENT_AFTER_S = 15.0
"""An acting controller publishes its status every 5 s."""
SHOWN_DECISIONS = 8
SHOWN_ROUNDS = 5


def show_status(status: Status, controllers: Sequence[Member], now: float) -> None:
    """Print the whole status; `controllers`: those in the election, as the broker knows them now."""
    console = Console(highlight=False, markup=False)
    role = "acts" if status.acting else "dry run"
    console.print(f"cluster {status.cluster}: controller {role}, epoch {status.epoch}")
    if (silent_s := now - status.at) > SILENT_AFTER_S:
        console.print(f"the controller has not been heard of for {silent_s:.0f} s", style="bold red")
    for row in controllers:
        console.print(f"{row.name} ({row.address}) {'leads' if row.leads else 'stands by'}")
    if status.hold:
        console.print(Text(f"on hold, nothing is moved: {status.hold.text}", style="bold red"))
        console.print("a plan may have been in flight; to begin anew from the placement and what workers report:")
        console.print("  trimtab resume --accept-journal", style="bold")
    if status.paused:
        console.print(status.paused, style="bold yellow")
    if status.window_end is None:
        console.print("no window has been seen yet", style="yellow")
    else:
        coverage = "" if status.coverage is None else f", coverage {status.coverage:.0%}"
        console.print(f"last window ended {now - status.window_end:.0f} s ago{coverage}")
    for app in status.apps:
        if app.not_ready:
            console.print(f"{app.app}: not ready: {app.not_ready}", style="yellow")
        elif app.load_distance is not None:
            mean = f", mean load {app.mean_load:.1f} %" if app.mean_load is not None else ""
            noise = f" (noise {app.noise:.1f})" if app.noise is not None else ""
            console.print(f"{app.app}: load distance {app.load_distance:.1f}{noise}{mean}, {app.key_groups} key groups")
    if status.nodes:
        console.print(_nodes(status))
    if status.rounds:
        console.print(_rounds(status))
    if status.decisions:
        console.print(_decisions(status))
    if status.rejected:
        listed = ", ".join(f"{name}: {count}" for name, count in sorted(status.rejected.items()))
        console.print(f"refused messages: {listed}")


def _nodes(status: Status) -> Table:
    table = Table(title="workers", title_justify="left")
    for name in ("worker", "host", "app", "state", "cores", "load %", "key groups", ""):
        table.add_column(name, justify="right" if name in ("cores", "load %", "key groups") else "left")
    for row in status.nodes:
        marks = [text for text, shown in (("draining", row.draining), ("only reports", not row.steering)) if shown]
        load = "unknown" if row.load_pct is None else f"{row.load_pct:.1f}"
        cells = (row.worker, row.host, row.app or "", str(row.state), f"{row.capacity:g}", load, str(row.key_groups))
        table.add_row(*map(Text, cells), Text(", ".join(marks)))
    return table


def _rounds(status: Status) -> Table:
    table = Table(title="rounds", title_justify="left")
    for name in ("plan", "began", "because", "before", "planned", "bound", "after", "moved", "failed", "pause s"):
        table.add_column(name, justify="left" if name in ("plan", "began", "because") else "right")
    for row in status.rounds[-SHOWN_ROUNDS:]:
        after = "" if row.after is None else f"{row.after:.1f}"
        table.add_row(
            Text(row.plan),
            _clock(row.started_at),
            Text(row.reason),
            f"{row.before:.1f}",
            f"{row.planned:.1f}",
            f"{row.lower_bound:.1f}",
            after if row.ended_at is not None else Text(_progress(row), style="bold"),
            str(row.migrations),
            str(row.failed),
            f"{statistics.median(row.pauses_s):.2f}" if row.pauses_s else "",
        )
    return table


def _progress(row: RoundStatus) -> str:
    return ", ".join(f"{count} {phase}" for phase, count in row.handovers.items() if count)


def _decisions(status: Status) -> Table:
    table = Table(title="last decisions", title_justify="left", show_header=False)
    for row in status.decisions[-SHOWN_DECISIONS:]:
        table.add_row(_clock(row.at), Text(row.kind), Text(row.text))
    return table


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def show_decision(decision: Decision) -> None:
    """Print a decision, and the moves when it is a plan."""
    console = Console(highlight=False, markup=False)
    console.print(Text(describe(decision)))
    if isinstance(decision, Planned):
        table = Table()
        for name in ("key group", "from", "to", "state bytes"):
            table.add_column(name, justify="right" if name == "state bytes" else "left")
        for move in decision.plan.moves:
            size = "unknown" if move.state_bytes is None else f"{move.state_bytes:,}"
            table.add_row(Text(str(move.key_group)), Text(move.source), Text(move.target), size)
        console.print(table)
