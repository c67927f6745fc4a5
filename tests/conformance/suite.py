"""Runs the clauses, and says which are kept."""

import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tests.conformance.bench import Bench, Breach, Run
from tests.conformance.clauses import CLAUSES


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Of one clause; `fault` None = it is kept."""

    clause: str
    seconds: float
    fault: str | None = None


async def play(run: Run, say: Callable[[str], None], only: Collection[str] = ()) -> list[Verdict]:
    """The verdicts of all clauses, or only of some; each is said at once."""
    verdicts = []
    async with Bench(run) as bench:
        for clause in CLAUSES:
            if only and clause.name not in only:
                continue
            began, fault = time.monotonic(), None
            try:
                await clause.check(bench)
            except Breach as breach:
                fault = str(breach)
            except Exception:  # of the suite itself, or of the broker: no clause is kept by it
                fault = traceback.format_exc()
            verdict = Verdict(clause=clause.name, seconds=time.monotonic() - began, fault=fault)
            verdicts.append(verdict)
            say(f"{'kept' if fault is None else 'BROKEN':7}{verdict.seconds:5.1f} s  {clause.name}: {clause.text}")
            if fault is not None:
                say(f"        {fault}")
    return verdicts
