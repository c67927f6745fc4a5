"""The matrix as a table and as JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from tests.faults.played.cells import meaning_of
from tests.faults.played.faults import FAULTS
from tests.faults.played.moments import MOMENTS
from tests.faults.played.runs import Result

VERSION = 3
SAID = 3
"""So many of the things that were said are in the table; all are in the JSON."""


def as_table(results: Sequence[Result]) -> Table:
    """One row per cell; times in seconds."""
    table = Table(title="Faults under load", title_justify="left")
    for name in ("fault", "moment", "hit"):
        table.add_column(name)
    for name in ("lost", "repeated", "allowed", "unowned", "held up", "steered again"):
        table.add_column(name, justify="right")
    table.add_column("refused, held")
    table.add_column("verdict")
    for result in results:
        table.add_row(*_cells(result), style="red" if result.broken or result.not_played else "")
    return table


def _cells(result: Result) -> list[str]:
    cell, cost, played = result.cell, result.cost, result.played
    measured = ["-"] * 6
    if cost is not None:
        counts = [str(number) for number in (cost.lost, cost.repeated, cost.allowed)]
        measured = [*counts, *(f"{span:.1f} s" for span in (cost.unowned_s, cost.held_up_s, cost.unsteered_s))]
    hit = played.target.worker if played and played.target else ""
    said = ", ".join(text for text, _ in played.said.most_common(SAID)) if played else ""
    verdict = "not played" if result.not_played else "kept"
    if result.broken:
        verdict = f"{len(result.broken)} broken"
    return [cell.fault.name, cell.moment.name, hit, *measured, said, "not here" if result.impossible else verdict]


def reasons() -> Table:
    """Which moments are not tried, and why."""
    table = Table(title="Not tried", title_justify="left")
    for name in ("fault", "moments", "why not"):
        table.add_column(name)
    for fault in FAULTS:
        tried, why_not = meaning_of(fault)
        if others := [moment for moment in MOMENTS if moment not in tried]:
            table.add_row(fault, ", ".join(others), why_not)
    return table


def as_document(results: Iterable[Result], seed: int) -> dict[str, Any]:
    """The same as JSON."""
    return {"version": VERSION, "seed": seed, "cells": [_document(result) for result in results]}


def _document(result: Result) -> dict[str, Any]:
    cost, played = result.cost, result.played
    return {
        "fault": result.cell.fault.name,
        "moment": result.cell.moment.name,
        "worker": played.target.worker if played and played.target else None,
        "at": played.strike.at if played else None,
        "over_after_seconds": round(played.strike.over_at - played.strike.at, 2) if played else None,
        "lost": cost.lost if cost else None,
        "repeated": cost.repeated if cost else None,
        "repeats_allowed": cost.allowed if cost else None,
        "unowned_seconds": round(cost.unowned_s, 2) if cost else None,
        "held_up_seconds": round(cost.held_up_s, 2) if cost else None,
        "steered_again_after_seconds": round(cost.unsteered_s, 2) if cost else None,
        "waited_seconds": {what: round(span, 1) for what, span in played.took.items()} if played else {},
        "said": dict(played.said if played else Counter()),
        "possible_here": not result.impossible,
        "not_played": result.not_played,
        "broken": result.broken,
        "logs": str(result.logs),
    }
