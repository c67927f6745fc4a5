"""The options of `trimtab simulate`.

The names of policies and workloads stand here too: the models that define them need numpy.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

POLICIES = ("milp", "flux", "albic", "albic-paper", "cola", "elastic", "stay")
WORKLOADS = {
    "drift": "one operator, loads that drift, no flows",
    "uneven": "section 5.1: loads uneven from the start, that stay; no flows",
    "one-to-one": "section 5.3: pairs of operators, some keyed alike",
    "real-job-1": "section 5.2: three operators, each keyed differently",
    "real-job-2": "section 5.4: two operators, keyed alike",
    "real-job-3": "section 5.4: a third operator, keyed differently",
    "real-job-4": "section 5.4: nine operators, a reconstruction",
}
"""Workload -> what it is; sections are those of the ALBIC paper."""
DEFAULT_WORKLOAD, DEFAULT_NODES = "drift", 20
MOST_NODES, MOST_KEY_GROUPS, MOST_ROUNDS = 10_000, 1_000_000, 100_000

RoundCount = tuple[int, int]
"""In which round, how many nodes."""


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `simulate`."""
    parser.add_argument(
        "policies",
        nargs="+",
        choices=POLICIES,
        metavar="POLICY",
        help=f"{' | '.join(POLICIES)}; of several, a line each, for the same workload and seed",
    )
    parser.set_defaults(run="trimtab_controller.cli.simulate:run")
    workload = parser.add_argument_group("workload")
    names = "; ".join(f"{name}: {text}" for name, text in WORKLOADS.items())
    source = workload.add_mutually_exclusive_group()
    source.add_argument("--workload", choices=WORKLOADS, metavar="NAME", help=f"{names} ({DEFAULT_WORKLOAD})")
    source.add_argument(
        "--recorded",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="snapshot files, or directories of them, played in this order",
    )
    workload.add_argument(
        "--nodes", type=_count(1, MOST_NODES), default=DEFAULT_NODES, metavar="N", help="workers of the cluster (20)"
    )
    workload.add_argument(
        "--key-groups",
        type=_count(1, MOST_KEY_GROUPS),
        metavar="K",
        help="key groups of all operators together (20 per node)",
    )
    workload.add_argument(
        "--rounds", type=_count(1, MOST_ROUNDS), metavar="N", help="rounds to play (20; recorded: one per snapshot)"
    )
    workload.add_argument(
        "--seed", type=_count(0), default=0, metavar="N", help="the same seed gives the same rounds (0)"
    )
    workload.add_argument(
        "--change",
        type=_number(0, 100),
        default=50.0,
        metavar="PERCENT",
        help="by how much the loads of some nodes differ in `uneven` (50)",
    )
    workload.add_argument(
        "--alike",
        type=_number(0, 100),
        default=50.0,
        metavar="PERCENT",
        help="share of pairs keyed alike in `one-to-one` (50)",
    )
    _add_cluster_options(parser)
    seen = parser.add_argument_group("planning")
    seen.add_argument(
        "--max-migrations", type=_count(0), metavar="N", help="most moves per round (1 %% of the key groups)"
    )
    seen.add_argument(
        "--max-cost-bytes", type=_number(0), metavar="B", help="most bytes of state moved per round (no limit)"
    )
    seen.add_argument(
        "--noise", type=_number(0), default=0.0, metavar="SHARE", help="relative noise added to the measured loads (0)"
    )
    seen.add_argument(
        "--smoothing",
        type=_number(0, 1),
        default=1.0,
        metavar="W",
        help="weight of the newest measurement, above 0 (1)",
    )
    seen.add_argument("--thorough", action="store_true", help="search as long as `trimtab solve` does")
    seen.add_argument("--time-limit", type=_number(0), metavar="S", help="seconds for each plan; runs may then differ")
    output = parser.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write all rounds to FILE, or - for standard output")
    output.add_argument("--picture", type=Path, metavar="FILE", help="draw the rounds (needs matplotlib)")


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster", "nodes that come and go; ROUND:COUNT, as often as wanted")
    for name, text in (
        ("--join", "nodes that join"),
        ("--mark", "nodes that are drained; they leave when empty"),
        ("--lose", "nodes that are lost; their key groups have no owner then"),
    ):
        cluster.add_argument(name, type=_change, action="append", default=[], metavar="ROUND:COUNT", help=text)
    cluster.add_argument(
        "--churn",
        type=_number(0, 1),
        default=0.0,
        metavar="P",
        help="in each round a node joins with probability P, and one leaves with P",
    )


def _count(least: int, most: int | None = None) -> Callable[[str], int]:
    def count(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(
                f"a whole number from {least} on{f' to {most:,}' if most else ''} expected"
            )
        return value

    return count


def _number(least: float, most: float = sys.float_info.max) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"a number >= {least:g}{f' and <= {most:g}' if most < 1e9 else ''} expected"
            )
        return value

    return number


def _change(text: str) -> RoundCount:
    number, _, count = text.partition(":")
    try:
        change = int(number), int(count)
    except ValueError:
        change = 0, 0
    if min(change) < 1:
        raise argparse.ArgumentTypeError(f"ROUND:COUNT expected, such as 5:2, found {text!r}")
    return change
