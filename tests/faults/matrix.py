"""`python -m tests.faults.matrix [--only FAULT:MOMENT ...]`: faults under load, judged by what was recorded."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from rich.console import Console

from flights.demo.view import View
from tests.faults.played.cells import all_cells, chosen
from tests.faults.played.halt import Halt
from tests.faults.played.runs import Result, run_matrix
from tests.faults.played.table import as_document, as_table, reasons
from trimtab_controller.jars.fetching import JarError
from trimtab_controller.jars.java import JavaMissingError

OUT = Path("out", "faults")
WIDTH = 190


def main() -> int:
    """0: in every cell the fault had its effect, and every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="FAULT:MOMENT", help="either part may be left out")
    parser.add_argument("--seed", type=int, default=1, help="chooses which worker is hit where any would do")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for matrix.json, histories and logs")
    parser.add_argument("--list", action="store_true", help="print the cells, and why the others are none")
    parser.add_argument("--in-place", action="store_true", help="workers rejoin their group in place")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        cells = chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        console.print("\n".join(map(str, all_cells())), reasons(), highlight=False)
        return 0
    out: Path = given.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    halt = Halt()
    halt.listen()
    results: list[Result] = []
    in_place = "on" if given.in_place else "off"
    try:
        with View(console) as view:
            for result in run_matrix(cells, out, view, seed=given.seed, halt=halt, in_place=in_place):
                results.append(result)
                document = json.dumps(as_document(results, given.seed), indent=1)
                (out / "matrix.json").write_text(document + "\n", encoding="utf-8")
    except (JarError, JavaMissingError) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    return tell(console, results, out)


def tell(console: Console, results: list[Result], out: Path) -> int:
    """Print what became of the cells; the exit code."""
    console.print(as_table(results))
    for result in results:
        for text in result.broken:
            console.print(f"NOT KEPT: {result.cell}: {text}\n  {result.logs}", style="bold red", markup=False)
        for text in result.not_played:
            console.print(f"NOT PLAYED: {result.cell}: {text}\n  {result.logs}", style="bold red", markup=False)
    kept = sum(1 for result in results if not result.broken and not result.not_played)
    console.print(f"{kept} of {len(results)} cells kept every promise; {out / 'matrix.json'}")
    return 0 if kept == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
