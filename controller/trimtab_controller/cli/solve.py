"""`trimtab solve METHOD INSTANCE`: one instance file in, one plan out (the file contract)."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from trimtab_models.instances.reading import BadInstance
from trimtab_models.solving import Deadline, Infeasible, Never, method_named
from trimtab_process.exit_codes import BAD_USAGE, DONE, INFEASIBLE, refuse

SOLVE_SECONDS = {"solve_seconds": "How long solving took (s)."}
"""Fields that the command adds to the plan of a timed method -> their description."""


def run(args: argparse.Namespace) -> int:
    """Return the exit code of the contract: 0 a plan, 2 bad input, 3 proven infeasible; errors go to standard error."""
    method = method_named(args.method)
    try:
        instance = method.read(args.instance.read_bytes())
    except OSError as error:
        return refuse("trimtab solve", f"{args.instance}: {error.strerror or error}", BAD_USAGE)
    except BadInstance as error:
        return refuse("trimtab solve", f"{args.instance}: {error}", BAD_USAGE)
    started = time.monotonic()  # the limit is for solving only, not for reading a large file
    stop = Never() if args.time_limit is None else Deadline(time.monotonic, started + args.time_limit)
    answer = method.solve(instance, stop, args.seed)
    seconds = time.monotonic() - started
    if isinstance(answer, Infeasible):
        return refuse("trimtab solve", answer.reason, INFEASIBLE)
    for warning in answer.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return _write(answer.document | (dict.fromkeys(SOLVE_SECONDS, seconds) if method.timed else {}), args.out)


def _write(plan: dict[str, Any], out: Path | None) -> int:
    text = json.dumps(plan, allow_nan=False) + "\n"
    if out is None:
        sys.stdout.write(text)
        return DONE
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        return refuse("trimtab solve", f"{out}: {error.strerror or error}", BAD_USAGE)
    return DONE
