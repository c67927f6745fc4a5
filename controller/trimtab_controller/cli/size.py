"""`trimtab size`: how many workers an app needs for a multiple of its present input."""

import argparse
import math
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from trimtab_controller.cli.operator import (
    CommandError,
    Target,
    console,
    new_table,
    print_json,
    refuse,
)
from trimtab_controller.cli.preview import read_decider, view_of
from trimtab_controller.cli.sizing import CannotSizeError, Sizing, Wanted, WorkerNeed, size_of
from trimtab_process.exit_codes import BAD_USAGE, DONE
from trimtab_protocol.wording import counted, first_few


def run_size(args: argparse.Namespace, target: Target) -> int:
    """Print how many workers of which type are needed; exit code 1: something is not known."""
    if not (math.isfinite(args.rate) and args.rate > 0):
        return refuse(f"--rate: found {args.rate:g}, expected a number above 0", BAD_USAGE)
    if not (math.isfinite(args.state) and args.state > 0):
        return refuse(f"--state: found {args.state:g}, expected a number above 0", BAD_USAGE)
    if not 0 < args.target <= 1:
        return refuse(f"--target: found {args.target:g}, expected a share above 0 and up to 1", BAD_USAGE)
    decider, _ = read_decider(target)
    known = decider.known
    view = view_of(known, args.app, "APP")
    limits = target.configuration.balance
    wanted = Wanted(
        rate=args.rate, state=args.state, target=args.target, max_disk=limits.max_disk, max_link=limits.max_link
    )
    try:
        found = size_of(view, known.capacity, known.pool.get(view.app, ()), wanted, decider.followed(view))
    except CannotSizeError as error:
        raise CommandError(f"no size can be given: {error}") from error
    if args.json:
        print_json(asdict(found))
    else:
        show(found, console())
    return DONE


def show(found: Sizing, out: Console) -> None:
    """Print the answer, a line for each type of worker, then what has not been measured."""
    out.print(
        f"{found.app}: workers for {found.rate:g} times the present input, each used up to {found.target:.0%}; "
        f"{found.present} run now"
    )
    count = found.standbys
    standbys = "an unknown number of standbys" if count is None else counted(count, "standby")
    out.print(
        f"CPU and traffic grow with the input; state is {found.state:g} times the present one (--state), and each key "
        f"group has {standbys}",
        style="dim",
    )
    if found.fixed:
        workers = first_few(found.fixed)
        out.print(f"with what is known last of workers that take no part in plans: {workers}", style="yellow")
    numbers = ("needed", "run", "in pool", "used", "CPU", "memory", "disk", "link")
    names = ("if all are of type", numbers[0], "bottleneck", *numbers[1:], "")
    table = new_table(names, right=numbers, narrow=True)
    for need in found.needs:
        workers, used = ("-", "-") if need.workers is None else (_at_least(need), f"{need.utilisation:.0%}")
        each = [_number(row.workers, known=not row.missing, refused=bool(row.why)) for row in need.resources]
        cells = (str(need.type), workers, need.bottleneck, str(need.present), str(need.pool), used, *each, need.why)
        table.add_row(*map(Text, cells))
    out.print(table)
    for need in found.needs:
        for row in need.resources:
            if row.missing:
                unknown = "unknown" if row.workers is None else f"at least {row.workers}"
                out.print(Text(f"{need.type}: {row.resource}: {unknown}, {row.missing}"))


def _at_least(need: WorkerNeed) -> str:
    return f"{need.workers}+" if need.at_least else str(need.workers)


def _number(workers: int | None, *, known: bool, refused: bool) -> str:
    """What a resource needs by itself; `?` = unknown, `-` = no number is enough."""
    if workers is None:
        return "-" if refused else "?"
    return str(workers) if known else f"{workers}+"
