"""`trimtab replay`: what the controller would have done with the recorded windows, under these and other settings."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab_controller.cli.operator import (
    CommandError,
    Target,
    console,
    events_of,
    print_json,
    read_document,
    read_intents,
)
from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.kafka.reader import passing, reading, since
from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.replay.alternatives import AS_CONFIGURED, alternatives
from trimtab_controller.replay.cluster import Pace
from trimtab_controller.replay.outcome import Outcome, Tally, count_events, measured_pauses
from trimtab_controller.replay.placed import evenness_of
from trimtab_controller.replay.replay import Replay
from trimtab_controller.replay.rules import recorded_rules
from trimtab_process.exit_codes import DONE
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.wording import local_time, what_there_is

AS_DONE = "as done"
TOLD_EVERY_S = 5.0
SHOWN_REASONS = 3
MEBIBYTE = 1024.0 * 1024.0

Row = tuple[str, Callable[[Outcome], str]]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


ROWS: tuple[Row, ...] = (
    ("load distance, mean (pp)", lambda row: f"{row.load_distance_mean:.2f}"),
    ("load distance, 95 % of windows below (pp)", lambda row: f"{row.load_distance_p95:.2f}"),
    ("busiest worker, 95 % of windows below (%)", lambda row: f"{row.highest_p95:.1f}"),
    ("plans", lambda row: _count(row.plans)),
    ("key groups moved", lambda row: _count(row.moved)),
    ("paused (key-group seconds)", lambda row: "-" if row.paused_s is None else f"{row.paused_s:,.1f}"),
    (
        "state restored (MiB)",
        lambda row: "-" if row.restored_bytes is None else f"{row.restored_bytes / MEBIBYTE:,.1f}",
    ),
    ("workers, mean", lambda row: "-" if row.workers_mean is None else f"{row.workers_mean:.2f}"),
    ("workers, most", lambda row: _count(row.workers_most)),
    ("changes of their number", lambda row: _count(row.resized)),
)


def run_replay(args: argparse.Namespace, target: Target) -> int:
    """Replay and print."""
    from trimtab_controller.solver.balance import answer  # loads the solvers, which the console's host may lack

    tried, now = alternatives(read_document(args), args.set), time.time()
    told = events_of(target, now)
    events = [event for event in told if event.at >= now - args.last]
    rules = recorded_rules(told, read_intents(target).values())
    pace = Pace(pause_s=measured_pauses(events))
    replays = {each.name: Replay(each.configuration, answer, pace, rules) for each in tried}
    done, first, last = _replayed(recorded(target, now - args.last), replays)
    if first is None or last is None:
        raise CommandError(f"{target.topics.snapshots} has no window of the last {args.last:g} s")
    begun = first.start_ms / 1000.0
    for app, tally in done.items():
        count_events(tally, app, [event for event in events if event.at >= begun])
    columns = {AS_DONE: _outcomes(done), **{name: each.outcomes() for name, each in replays.items()}}
    apps = [app for app in sorted(done) if args.app in (None, app)]
    if not apps:
        raise CommandError(f"found no app {args.app!r} in the windows, {what_there_is(sorted(done))}")
    if args.json:
        found = {name: {app: asdict(rows[app]) for app in apps if app in rows} for name, rows in columns.items()}
        end = last.end_ms / 1000.0
        print_json({"start": begun, "end": end, "columns": found, "rules_unknown": rules.untold})
    else:
        show(apps, columns, f"{local_time(begun)} to {local_time(last.end_ms / 1000.0)}", console())
        if rules.untold:
            print(f"{rules.untold} rules of operators are not kept: the events of this time do not say what they are")
    return DONE


def recorded(target: Target, at: float) -> Iterator[Snapshot]:
    """The windows that the topic has from `at` on, one by one.  Raises ReadError, KafkaException."""
    inbox = Inbox(target.topics)
    end_ms = 0
    with reading(target.connection, "replay") as consumer:
        for message in passing(consumer, since(consumer, target.topics.snapshots, at)):
            event = inbox.take(message)
            if isinstance(event, SnapshotArrived) and event.snapshot.end_ms > end_ms:
                end_ms = event.snapshot.end_ms  # a stream that was restarted publishes a window twice
                yield event.snapshot


def _replayed(
    snapshots: Iterator[Snapshot], replays: Mapping[str, Replay]
) -> tuple[dict[AppId, Tally], Snapshot | None, Snapshot | None]:
    """Show the windows to all replays; what was recorded, and the first and the last window."""
    done: dict[AppId, Tally] = {}
    first = last = None
    told_at = time.monotonic()
    for count, snapshot in enumerate(snapshots, 1):
        first, last = first or snapshot, snapshot
        for name, evenness in evenness_of(snapshot).items():
            done.setdefault(name, Tally()).see(evenness)
        for each in replays.values():
            each.see(snapshot)
        if sys.stderr.isatty() and time.monotonic() - told_at > TOLD_EVERY_S:
            told_at = time.monotonic()
            print(f"{count:,} windows, up to {local_time(snapshot.end_ms / 1000.0)}", file=sys.stderr)
    return done, first, last


def _outcomes(tallies: Mapping[AppId, Tally]) -> dict[AppId, Outcome]:
    found = {app: tally.outcome() for app, tally in tallies.items()}
    return {app: outcome for app, outcome in found.items() if outcome is not None}


def show(apps: Sequence[AppId], columns: Mapping[str, Mapping[AppId, Outcome]], period: str, out: Console) -> None:
    """Print one table per app.  Other settings have numbers for headings, as their names are as long as they like."""
    others = [name for name in columns if name not in (AS_DONE, AS_CONFIGURED)]
    headings = {name: f"set {number}" for number, name in enumerate(others, 1)}
    for app in apps:
        rows = {headings.get(name, name): found[app] for name, found in columns.items() if app in found}
        out.print(f"{app}: {next(iter(rows.values())).windows:,} windows, {period}")
        for name, heading in headings.items():
            out.print(Text(f"{heading}: {name}"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("")
        for name in rows:
            table.add_column(name, justify="right")
        for label, cell in ROWS:
            table.add_row(label, *(cell(row) for row in rows.values()))
        out.print(table)
        for name, row in rows.items():
            if row.reasons:
                most = list(row.reasons.items())[:SHOWN_REASONS]
                out.print(Text(f"{name}: nothing was done for {', '.join(f'{why} ({n:,})' for why, n in most)}"))
    out.print(
        "Loads are those that were recorded. So is the number of workers, unless [scaling] mode is act: then it is the "
        "replay's own. What a job would have done with more or fewer workers than it had is not known: demand follows "
        "the size, so look at the workers, and not only at the loads. Of what operators asked for, only rules are kept."
    )
