"""`trimtab why 3.17`: why a plan makes each of its moves, what one more would bring, and what came of them."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab_protocol.event_documents import PlanExplanation, PlannedLoad, PlannedMove
from trimtab_protocol.wording import local_time

SHOWN_MOVES, SHOWN_LOADS = 20, 12
PAID = {True: "it paid", False: "it did not pay"}


def show_plan(found: PlanExplanation, out: Console) -> None:
    """Print it as text."""
    out.print(f"plan {found.plan}: {found.text}", soft_wrap=True)
    mean = "" if found.mean_load is None else f", mean load {found.mean_load:.1f} %"
    then = "" if found.proposed_at is None else f" when it was proposed ({local_time(found.proposed_at)})"
    told = f"  load distance {_pp(found.planned)} predicted{then}, {_pp(found.measured)} measured{mean}"
    out.print(told, soft_wrap=True)
    if found.next is not None:
        out.print(f"  {found.next}", soft_wrap=True)
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
    table = _table("key group", "from", "to", "load", "", "why")
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


def _loads(rows: Sequence[PlannedLoad]) -> Table:
    table = _table("worker", "load before", "predicted", "measured")
    for row in rows:
        each = ["-" if value is None else f"{value:.1f} %" for value in (row.before, row.planned, row.measured)]
        table.add_row(*map(Text, (row.worker, *each)))
    return table


def _change(row: PlannedLoad) -> float:
    return -1.0 if row.before is None or row.planned is None else abs(row.planned - row.before)


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _pp(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} pp"
