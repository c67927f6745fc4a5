"""`trimtab why orders/sums/17`: where a key group is, since when and by which plan, and what moving it would do.

`trimtab why 3.17`: why a plan makes each of its moves, what one more would bring, and what came of them.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab_controller.cli.operator import CommandError, Target, console, events_of, new_table, print_json
from trimtab_controller.loop.events.explanation import explain_plan
from trimtab_controller.loop.preview import informed, read_cluster_state
from trimtab_controller.loop.why import UnknownKeyGroupError, why_here
from trimtab_process.exit_codes import DONE
from trimtab_protocol.console_documents import (
    KeyGroupWhy,
    PlanExplanation,
    PlannedMove,
    WhyMove,
    WhyTarget,
)
from trimtab_protocol.messages.decode import check_name
from trimtab_protocol.messages.events import EventLoad
from trimtab_protocol.messages.names import parse_key_group
from trimtab_protocol.wording import local_time

SHOWN_TARGETS, SHOWN_EARLIER_MOVES = 12, 5
SHOWN_MOVES, SHOWN_LOADS = 20, 12
PAID = {True: "it paid", False: "it did not pay"}


def run_why(args: argparse.Namespace, target: Target) -> int:
    """Print what is known of a key group, or of a plan."""
    if "/" not in args.about:
        return run_plan(args, target)
    key_group, now = parse_key_group(args.about, "APP/OPERATOR/KEYGROUP"), time.time()
    state = read_cluster_state(target.connection, target.configuration, now)
    known = informed(state, target.configuration, now).known
    try:
        found = why_here(key_group, known, state.found.execution, events_of(target, now), state.found.acted)
    except UnknownKeyGroupError as error:
        raise CommandError(str(error)) from error
    if args.json:
        print_json(asdict(found))
    else:
        show(found, console())
    return DONE


def run_plan(args: argparse.Namespace, target: Target) -> int:
    """Print what the events tell of a plan."""
    plan = check_name(args.about, "APP/OPERATOR/KEYGROUP or PLAN")
    found = explain_plan(plan, events_of(target, time.time()))
    if found is None:
        text = f"no event of the last 30 days is about a plan {plan!r}: `trimtab events --kind plan` lists the plans"
        raise CommandError(text)
    if args.json:
        print_json(asdict(found))
    else:
        show_plan(found, console())
    return DONE


def show(found: KeyGroupWhy, out: Console) -> None:
    """Print it as text."""
    since = "" if found.since is None else f" since {local_time(found.since)}"
    out.print(f"{found.key_group} is on {found.owner or found.reported or 'no worker that is known'}{since}")
    out.print(f"  {found.story}")
    if found.reported is not None and found.reported != found.owner and found.owner is not None:
        out.print(f"  but {found.reported} reports it: the placement is not followed yet")
    if found.standbys:
        out.print(f"  standby: {', '.join(found.standbys)}")
    load = "unknown" if found.load_pct is None else f"{found.load_pct:.2f} % of a core"
    size = "unknown" if found.state_bytes is None else f"{found.state_bytes:,} bytes"
    out.print(f"  load {load}, state {size}")
    for rule in found.rules:
        out.print(f"  {rule}", markup=False)
    if found.stays is not None:
        out.print(f"  it is not moved now: {found.stays}")
    if found.targets:
        out.print()
        out.print(_targets(found))
        if found.targets_total > SHOWN_TARGETS:
            out.print(f"and {found.targets_total - SHOWN_TARGETS} more (--json has {len(found.targets)})")
    if found.moves:
        out.print()
        out.print(_earlier_moves(found))


def _targets(found: KeyGroupWhy) -> Table:
    now = "unknown" if found.load_distance is None else f"{found.load_distance:.2f} pp"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("if it were on", overflow="fold")
    table.add_column(f"load distance (now {now})", justify="right")
    table.add_column("its load", justify="right")
    table.add_column("", overflow="fold")
    for row in found.targets[:SHOWN_TARGETS]:
        far = "-" if row.load_distance is None else f"{row.load_distance:.2f}"
        if row.change is not None and not row.owner:
            far += f" ({row.change:+.2f})"
        load = "-" if row.load_pct is None else f"{row.load_pct:.1f} %"
        named = f"{row.worker} on {row.host}" if row.host else row.worker
        table.add_row(Text(named), far, load, Text("; ".join(_remarks(row))))
    return table


def _remarks(row: WhyTarget) -> Iterator[str]:
    if row.owner:
        yield "it is here"
    elif row.forbidden is not None:
        yield row.forbidden
    if row.standby:
        yield "standby"


def _what_it_brought(row: WhyMove) -> str:
    """Its load as planned and as measured, and whether that paid."""
    loads = ((row.load_pct, "planned"), (row.measured_pct, "measured"))
    known = ", ".join(f"{load:.2f} % {name}" for load, name in loads if load is not None)
    paid = "" if row.paid is None else "; it paid" if row.paid else "; it did not pay"
    return f"; load {known}{paid}" if row.measured_pct is not None else ""


def _earlier_moves(found: KeyGroupWhy) -> Table:
    table = new_table(("moved", "plan", "from", "to", "", "why"))
    for row in found.moves[:SHOWN_EARLIER_MOVES]:
        why = f"{row.why or '-'}{_what_it_brought(row)}"
        cells = (local_time(row.at), row.plan or "-", row.source, row.target, row.outcome or "begun", why)
        table.add_row(*map(Text, cells))
    return table


def show_plan(found: PlanExplanation, out: Console) -> None:
    """Print it as text."""
    out.print(f"plan {found.plan}: {found.text}", soft_wrap=True)
    mean = "" if found.mean_load is None else f", mean load {found.mean_load:.1f} %"
    then = "" if found.proposed_at is None else f" when it was proposed ({local_time(found.proposed_at)})"
    told = f"  load distance {_pp(found.planned)} predicted{then}, {_pp(found.measured)} measured{mean}"
    out.print(told, soft_wrap=True)
    if found.moves:
        out.print()
        out.print(_moves(found.moves[:SHOWN_MOVES]))
        shown = min(SHOWN_MOVES, len(found.moves))
        if found.moves_total > shown:
            out.print(f"and {found.moves_total - shown} more (--json has {len(found.moves)})")
    if found.loads:
        out.print()
        out.print(_loads(sorted(found.loads, key=_change, reverse=True)[:SHOWN_LOADS]))
        if len(found.loads) > SHOWN_LOADS:
            out.print(f"and {len(found.loads) - SHOWN_LOADS} more workers (--json has them)")


def _moves(rows: Sequence[PlannedMove]) -> Table:
    table = new_table(("key group", "from", "to", "load", "", "why"))
    for row in rows:
        load = "-" if row.load_pct is None else f"{row.load_pct:.2f} %"
        why = row.why or "-"
        table.add_row(*map(Text, (row.key_group, row.source, row.target, load, "; ".join(_outcome(row)), why)))
    return table


def _outcome(row: PlannedMove) -> Iterator[str]:
    """How the move ended, and what it brought."""
    yield row.outcome or "begun"
    if row.pause_s is not None:
        yield f"paused {row.pause_s:.2f} s"
    if row.measured_pct is not None:
        yield f"{row.measured_pct:.2f} % measured"
    if row.paid is not None:
        yield PAID[row.paid]


def _loads(rows: Sequence[EventLoad]) -> Table:
    table = new_table(("worker", "load before", "predicted", "measured"))
    for row in rows:
        each = ["-" if value is None else f"{value:.1f} %" for value in (row.before, row.planned, row.measured)]
        table.add_row(*map(Text, (row.worker, *each)))
    return table


def _change(row: EventLoad) -> float:
    return -1.0 if row.before is None or row.planned is None else abs(row.planned - row.before)


def _pp(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} pp"
