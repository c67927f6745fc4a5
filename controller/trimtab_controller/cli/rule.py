"""`trimtab rule add`, `remove` and `list`: operators' rules about where key groups may be."""

import argparse
import time
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from trimtab_controller.cli import operator
from trimtab_controller.cli.known import CommandError, Target
from trimtab_controller.cli.operator import (
    DONE,
    asked_now,
    carry_out,
    console,
    print_json,
    read_status,
)
from trimtab_controller.cli.plans import look
from trimtab_controller.intents import rules
from trimtab_protocol.messages.codec import converted, document
from trimtab_protocol.messages.rules import LATEST_END, Rule
from trimtab_protocol.messages.status import RuleStatus


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return operator.run_with(args, {"add": run_add, "remove": run_remove, "list": run_list}[args.function])


def run_add(args: argparse.Namespace, target: Target) -> int:
    """Add a rule, or only say what would follow."""
    given: dict[str, Any] = {
        name: value
        for name in ("name", "kind", "app", "operator", "key_groups", "workers", "hosts", "zones", "priority")
        if (value := getattr(args, name)) is not None
    }
    if args.until is not None:
        seconds, from_now = args.until
        given["until"] = time.time() + seconds if from_now else seconds
    rule = converted({**given, "reason": args.reason}, Rule)  # before anybody waits for a broker
    known = asked_now(args, target)
    return carry_out(args, target, rules.add(known, rule, look(target)), dry_run=args.dry_run)


def run_remove(args: argparse.Namespace, target: Target) -> int:
    """Take a rule back."""
    known = asked_now(args, target)
    return carry_out(args, target, rules.remove(known, args.name))


def run_list(args: argparse.Namespace, target: Target) -> int:
    """Print the rules that the controller knows."""
    status = read_status(target)
    if status is None or status.rules is None:
        raise CommandError("no controller has told its rules yet: one of 0.2.0 or newer must lead")
    if args.json:
        print_json({"rules": [document(row) for row in status.rules]})
    elif status.rules:
        console().print(_table(status.rules))
    else:
        print("there are no rules")
    return DONE


def _end(until: float) -> str:
    """The time; one that another version has let pass may be beyond what can be shown."""
    return datetime.fromtimestamp(min(until, LATEST_END), UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _table(rows: tuple[RuleStatus, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("rule", "kind", "about", "workers", "until", "by", "reason"):
        table.add_column(name, overflow="fold")
    for row in rows:
        rule, said = row.rule, document(row.rule)
        about = " ".join(said[name] for name in ("app", "operator", "key_groups") if name in said) or "all"
        where = [each for name in ("workers", "hosts", "zones") for each in said.get(name, ())]
        where += [f"priority {rule.priority}"] if rule.priority else []
        until = "" if rule.until is None else _end(rule.until)
        reason = rule.reason if row.ignored is None else f"{rule.reason}; not kept: {row.ignored}"
        cells = (rule.name, rule.kind, about, ", ".join(where), until, row.by or "controller.toml", reason)
        table.add_row(*(Text(cell, "yellow" if row.ignored else "") for cell in cells))
    return table
