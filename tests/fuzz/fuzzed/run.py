"""Feeding a decoder: what it accepts, refuses and why, and each way in which it breaks its promise."""

import resource
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tests.fuzz.fuzzed.decoder import Decoder, reason_of
from tests.fuzz.fuzzed.mutants import Mutants, giants

MOST_SECONDS = 10.0
"""CPU time that one record of 8 MB may take."""
MOST_BYTES = 2_000_000_000
"""By which the process may grow: 8 MB of JSON are up to a hundred times as much as values."""
SHOWN = 3


@dataclass(slots=True)
class Tally:
    """What became of the records; `faults` maps each distinct fault to the first record that shows it."""

    name: str
    records: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    worst_s: float = 0.0
    cpu_s: float = 0.0
    growth_bytes: int = 0
    faults: dict[str, bytes] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For a file."""
        return {
            "decoder": self.name,
            "records": self.records,
            "accepted": self.accepted,
            "refused": dict(self.refused.most_common()),
            "worst_ms": round(self.worst_s * 1000, 3),
            "cpu_s": round(self.cpu_s, 1),
            "growth_mb": round(self.growth_bytes / 1e6, 1),
            "faults": {fault: record[:2000].hex() for fault, record in self.faults.items()},
        }


def fuzz(decoder: Decoder, *, records: int, seed: int, large: bool = False) -> Tally:
    """Give the decoder so many mutants, `large`: before them the giants; every true sample must be accepted."""
    tally = Tally(name=decoder.name)
    for sample in decoder.samples:
        give(decoder, sample, tally)
    began, grown = time.process_time(), forget_peak()
    mutants = islice(Mutants(decoder, seed), records)
    for record in chain(giants(decoder), mutants) if large else mutants:
        give(decoder, record, tally)
    tally.cpu_s = time.process_time() - began
    tally.growth_bytes = peak_bytes() - grown
    if large and tally.growth_bytes > MOST_BYTES:
        tally.faults.setdefault(f"grew by {tally.growth_bytes} bytes", b"")
    return tally


def give(decoder: Decoder, record: bytes, tally: Tally) -> None:
    """One record; what becomes of it goes into the tally."""
    tally.records += 1
    began = time.process_time()
    try:
        value = decoder.decode(record)
    except decoder.refusals as refusal:
        tally.refused[reason_of(refusal)] += 1
    except Exception as fault:  # the fault that is looked for
        tally.faults.setdefault(told(fault), record)
    else:
        tally.accepted += 1
        if decoder.encode is not None:
            _check_return(decoder, value, record, tally)
    seconds = time.process_time() - began
    if seconds > tally.worst_s:
        tally.worst_s = seconds
        if seconds > MOST_SECONDS:
            tally.faults.setdefault(f"took {seconds:.1f} s", record)


def _check_return(decoder: Decoder, value: Any, record: bytes, tally: Tally) -> None:
    assert decoder.encode is not None
    try:
        again = decoder.decode(decoder.encode(value))
    except Exception as fault:  # also a refusal: we must not write what we refuse
        tally.faults.setdefault(f"written again: {told(fault)}", record)
    else:
        if again != value:
            tally.faults.setdefault("written and read again it is another value", record)


def told(fault: Exception) -> str:
    """The kind of a fault and where it is: equal for equal faults."""
    frames: Iterable[traceback.FrameSummary] = traceback.extract_tb(fault.__traceback__)
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames]
    return f"{type(fault).__name__} ({str(fault)[:80]!r}) at {' < '.join(places[: -1 - SHOWN : -1])}"


def peak_bytes() -> int:
    """The most memory that this process has had, since it forgot what it had before."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> int:
    """Begin to look for the peak anew, where Linux lets us; returns where it begins."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()
