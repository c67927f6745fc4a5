"""The options of `trimtab solve`."""

import argparse
from pathlib import Path

from trimtab_models.solving import FAMILIES


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `solve`."""
    parser.epilog = "Exit code 0: a plan; 2: wrong usage or file; 3: proven infeasible."
    parser.add_argument("method", choices=sorted(FAMILIES), metavar="METHOD", help=" | ".join(FAMILIES))
    text = "a JSON file: for milp, flux, albic, cola, elastic as `trimtab snapshot` writes it"
    parser.add_argument("instance", type=Path, metavar="INSTANCE", help=text)
    parser.add_argument(
        "--time-limit", type=_seconds, metavar="S", help="answer with the best plan after S seconds of solving"
    )
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="the same seed gives the same plan (0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the plan to FILE, not to standard output")
    parser.set_defaults(run="trimtab_controller.cli.solve:run")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError("seconds >= 0 expected")
    return seconds


def _seed(text: str) -> int:
    seed = int(text)
    if seed < 0:
        raise argparse.ArgumentTypeError("a whole number >= 0 expected")
    return seed
