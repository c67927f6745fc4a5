"""`python -m tests.fuzz.fuzz [--records N] [--only NAME] [--seed N]`: mutants for every decoder, and a table."""

import argparse
import json
import logging
import multiprocessing
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.fuzz.fuzzed import spark
from tests.fuzz.fuzzed.registry import DECODERS, decoder_named
from tests.fuzz.fuzzed.run import Tally, fuzz

OUT = Path("out/fuzz")
NAMES = [*(decoder.name for decoder in DECODERS), spark.NAME]


def main() -> int:
    """0: every decoder kept its promise; 1: the faults are printed, and the records that show them are in out/fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="mutants per decoder")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    names = chosen.only or NAMES
    OUT.mkdir(parents=True, exist_ok=True)
    logging.disable()  # what is refused is said too
    print(HEAD, flush=True)
    sound = True
    for tally in mutated(names, chosen.records, chosen.seed):
        print(row(tally), flush=True)
        write(tally)
        sound &= not tally.faults
    return 0 if sound else 1


def mutated(names: list[str], records: int, seed: int) -> Iterator[Tally]:
    """A process for each decoder, one after the other: its peak of memory is then its own."""
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        yield from pool.imap(partial(run, records=records, seed=seed), names)


def run(name: str, *, records: int, seed: int) -> Tally:
    """One decoder."""
    if name == spark.NAME:
        return spark.fuzz_stream(records=records, seed=seed, large=True)
    return fuzz(decoder_named(name), records=records, seed=seed, large=True)


HEAD = f"{'decoder':27} {'records':>9} {'accepted':>9} {'CPU s':>6} {'worst ms':>8} {'grew MB':>7}  refused, by reason"


def row(tally: Tally) -> str:
    """A line of the table, and one for each fault."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in tally.refused.most_common())
    figures = f"{tally.cpu_s:6.0f} {tally.worst_s * 1000:8.1f} {tally.growth_bytes / 1e6:7.0f}"
    line = f"{tally.name:27} {tally.records:9} {tally.accepted:9} {figures}  {reasons}"
    return "\n".join([line, *(f"    FAULT {fault}: {record[:60]!r}" for fault, record in tally.faults.items())])


def write(tally: Tally) -> None:
    """The figures, and the whole of each record that shows a fault."""
    stem = tally.name.replace(" ", "-").replace(",", "")
    (OUT / f"{stem}.json").write_text(json.dumps(tally.document(), indent=1) + "\n")
    for number, record in enumerate(tally.faults.values()):
        (OUT / f"{stem}-fault-{number}.bin").write_bytes(record)


if __name__ == "__main__":
    sys.exit(main())
