"""`cover.py NAME RECORDS SEED FILE`: one decoder under atheris, which keeps the mutants that reach new code.

Needs atheris (libFuzzer for Python), which `fuzz.py --atheris` installs in an environment of its own.
"""

import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import atheris

# Modules are instrumented as they are imported: what stands below must come after this.
with atheris.instrument_imports(include=["trimtab_models", "trimtab_agent", "trimtab_controller"]):
    from tests.fuzz.fuzzed.files import FOLDER
    from tests.fuzz.fuzzed.registry import decoder_named

from tests.fuzz.fuzzed.mutants import Mutants
from tests.fuzz.fuzzed.run import Tally, give

OWN_SHARE = 0.5
"""So many mutants are ours, which know the form; the others are libFuzzer's."""


def main(name: str, records: int, seed: int, out: Path) -> None:
    """Runs until libFuzzer has given so many records."""
    logging.disable()
    corpus = Path(tempfile.mkdtemp(prefix="trimtab-corpus-"))
    decoder, tally, dice = decoder_named(name), Tally(name=name), random.Random(seed)
    mutants = Mutants(decoder, seed)

    def take(record: bytes) -> None:
        give(decoder, record, tally)
        if tally.records >= records:
            tally.cpu_s = time.process_time()
            out.write_text(json.dumps(tally.document(), indent=1) + "\n")
            shutil.rmtree(corpus)
            shutil.rmtree(FOLDER)
            os._exit(0)  # libFuzzer's own end waits for threads of other libraries for ever

    def change(record: bytes, most: int, _: int) -> bytes:
        mutant = mutants.of(record) if dice.random() < OWN_SHARE else bytes(atheris.Mutate(record, most))
        return mutant[:most]

    for number, sample in enumerate(decoder.samples):
        (corpus / str(number)).write_bytes(sample)
    longest = max(4 * max(map(len, decoder.samples)), 8_192)
    # No limits of libFuzzer's own: our tally has them, by CPU time.
    options = [f"-seed={seed + 1}", f"-max_len={longest}", "-timeout=3600", "-rss_limit_mb=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], take, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
