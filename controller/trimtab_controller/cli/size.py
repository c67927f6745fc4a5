"""`trimtab size`: how many workers an app needs for a multiple of its present input."""

import argparse
import math
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab_controller.cli.known import CommandError, Target, read_known, view_of
from trimtab_controller.cli.operator import BAD_USAGE, DONE, console, print_json, refuse, run_with
from trimtab_controller.decider.sizing import CannotSizeError, Sizing, size_of


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 something is not known, 2 wrong usage or configuration."""
    if not (math.isfinite(args.rate) and args.rate > 0):
        return refuse(f"--rate: found {args.rate:g}, expected a number above 0", BAD_USAGE)
    if not 0 < args.target <= 1:
        return refuse(f"--target: found {args.target:g}, expected a share above 0 and up to 1", BAD_USAGE)
    return run_with(args, run_size)


def run_size(args: argparse.Namespace, target: Target) -> int:
    """Print how many workers of which type are needed."""
    known = read_known(target)
    view = view_of(known, args.app, "APP")
    try:
        found = size_of(view, known.capacity, known.pool.get(view.app, ()), rate=args.rate, target=args.target)
    except CannotSizeError as error:
        raise CommandError(f"no size can be given: {error}") from error
    if args.json:
        print_json(asdict(found))
    else:
        show(found, console())
    return DONE


def show(found: Sizing, out: Console) -> None:
    """Print the answer, a line for each type of worker."""
    out.print(
        f"{found.app}: workers for {found.rate:g} times the present input, each used up to {found.target:.0%}; "
        f"{found.present} run now"
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("if all are of type", "needed", "run", "in pool", "used", ""):
        table.add_column(name, justify="left" if name in ("if all are of type", "") else "right", overflow="fold")
    for need in found.needs:
        workers, used = ("-", "-") if need.workers is None else (str(need.workers), f"{need.utilisation:.0%}")
        cells = (str(need.type), workers, str(need.present), str(need.pool), used, need.why)
        table.add_row(*map(Text, cells))
    out.print(table)
