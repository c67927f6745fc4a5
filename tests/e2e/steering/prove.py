"""Prove steering on a real broker: `python -m tests.e2e.steering.prove [SET | SCENARIO ...]`.

Without names it plays all moves, restarts and faults; `changes` changes the job itself; `local`
plays them with local topics, `in-place` and `changes-in-place` with workers that rejoin in place.  Exit 1 when a
scenario fails.
"""

import asyncio
import logging
import sys
import tempfile
import traceback
from pathlib import Path

from tests.e2e.steering.changes import CHANGES
from tests.e2e.steering.in_place import CHANGES_IN_PLACE, IN_PLACE
from tests.e2e.steering.local_hop import LOCAL_SCENARIOS
from tests.e2e.steering.runs import Outcome, run
from tests.e2e.steering.scenarios import SCENARIOS, Scenario
from tests.e2e.steering.verdict import Pauses


def main(names: list[str]) -> int:
    """Run the scenarios, print what came of them and the table of pauses."""
    sets = {
        (): SCENARIOS,
        ("changes",): CHANGES,
        ("local",): LOCAL_SCENARIOS,
        ("in-place",): IN_PLACE,
        ("changes-in-place",): CHANGES_IN_PLACE,
    }
    known = {scenario.name: scenario for scenarios in sets.values() for scenario in scenarios}
    chosen = sets.get(tuple(names))
    if chosen is None and (unknown := set(names) - known.keys()):
        print(f"unknown: {sorted(unknown)}; known: {', '.join([*(each for names in sets for each in names), *known])}")
        return 2
    chosen = tuple(known[name] for name in names) if chosen is None else chosen
    logging.basicConfig(level=logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="prove-steering-"))
    print(f"logs: {folder}", flush=True)
    table: dict[str, dict[str, Pauses]] = {}
    results: list[tuple[Scenario, Outcome | None]] = []
    for scenario in chosen:
        outcome = _run(scenario, folder / scenario.name.replace(" ", "-").replace(",", ""))
        results.append((scenario, outcome))
        if outcome is not None:
            table[scenario.name] = outcome.pauses
    _print_pauses(table)
    _print_results(results)
    failed = sum(outcome is None or bool(outcome.complaints) for _, outcome in results)
    print(f"{len(chosen) - failed} of {len(chosen)} scenarios as promised")
    return 1 if failed else 0


def _run(scenario: Scenario, folder: Path) -> Outcome | None:
    print(f"== {scenario.name}", flush=True)
    try:
        outcome = asyncio.run(run(scenario, folder))
    except (AssertionError, TimeoutError):
        traceback.print_exc(limit=-3)
        return None
    v = outcome.verdict
    print(
        f"   {outcome.seconds:.0f} s, {v.sent} sent; lost {sum(v.lost.values())}, "
        f"duplicated {sum(v.duplicated.values())}"
        + (f" (done up to {v.repeated_s:.2f} s before the fault, " if v.repeated_s is not None else "")
        + (f"{outcome.again_s:.2f} s are allowed)" if v.repeated_s is not None else "")
        + f", wrong keys {sum(v.wrong_keys.values())}, "
        f"not committed {sum(v.not_committed.values())}: "
        + ("as promised" if not outcome.complaints else "; ".join(outcome.complaints)),
        flush=True,
    )
    if outcome.retired is not None:
        old = outcome.retired
        print(f"   the app of before has done {old.sent} of them; lost {sum(old.lost.values())}", flush=True)
    return outcome


def _print_results(results: list[tuple[Scenario, Outcome | None]]) -> None:
    print("\nwhat was done | sent | lost | repeated | set back | result | what must happen")
    for scenario, outcome in results:
        if outcome is None:
            print(f"  {scenario.name} | | | | | did not end | {scenario.promise}")
            continue
        v = outcome.verdict
        counts = (v.sent, sum(v.lost.values()), sum(v.duplicated.values()), sum(v.stepped_back.values()))
        result = "NOT as promised" if outcome.complaints else "as promised"
        print(f"  {scenario.name} | {' | '.join(map(str, counts))} | {result} | {scenario.promise}")


def _print_pauses(table: dict[str, dict[str, Pauses]]) -> None:
    print("\npauses: longest time without a processed event of a key group, within 2 s of a move")
    for name, rows in table.items():
        for row, found in rows.items():
            print(f"  {name:20s} {row:22s} {found}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
