"""Runs jobs of the papers on a sandbox, balanced and collocated: `python -m jobs [--only job2] [--methods albic]`.

Prints the papers' figures beside those measured.  Exit code 1 if a result differs from the recomputation.  `python -m
jobs rounds` compares methods on job 1 over rounds.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jobs.catalogue import JOBS
from jobs.outcome import Outcome, Scale, add_scale, scale_of
from jobs.report import report
from jobs.rounds import main as compare_methods
from jobs.run import JobRun
from jobs.windows import WINDOWS, keep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["rounds"]:
        return compare_methods(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m jobs", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--methods", nargs="+", choices=("milp", "albic"), default=["milp", "albic"])
    parser.add_argument("--logs", type=Path, help="folder that keeps the sandboxes' files and the windows")
    add_scale(parser, Scale())
    given = parser.parse_args(arguments)
    scale = scale_of(given)
    good = True

    def say(text: str) -> None:
        print(f"  {text}", flush=True)

    for name in given.only:
        outcomes: dict[str, Outcome] = {}
        for method in given.methods:
            print(f"{name}, {method}", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                place = given.logs / f"{name}-{method}" if given.logs else Path(folder)
                with JobRun(job=JOBS[name], method=method, scale=scale, folder=place, say=say) as run:
                    try:
                        outcomes[method] = run.play()
                    finally:
                        if given.logs:
                            keep(run.windows(), place / WINDOWS)
            good &= outcomes[method].verdict.right
        print(report(JOBS[name], outcomes), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
