"""Has the windowed table of the day counted each flight once?  Its changelog says which flight each record counts."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.faults.recorded import counting
from tests.faults.recorded.facts import WRITER, Facts, Written
from tests.faults.recorded.history import History, Row, Strike
from tests.faults.recorded.verdict import Bounds, Broken, Violation

NOTED, CHANGELOG = "flights-noted", "flights-daily-changelog"


def wrong_windows(history: History, facts: Facts, strikes: Sequence[Strike], bounds: Bounds) -> Iterator[Violation]:
    """Flights that no window has, or more than one time without a death that explains it, and counts that step back."""
    written = [_written(row) for row in history.of(CHANGELOG)]
    if not written:
        yield Violation(broken=Broken.NO_RECORD, text=f"{CHANGELOG}: not one row")
        return
    extracted, counted = counting.copies(facts.extracted), counting.copies(written)
    again = counting.repeats({}, counted, counting.Deaths(strikes=strikes, bounds=bounds))
    for repeat in again:
        # What was read again was noted again, perhaps by a worker that lives.
        if repeat.death is None and len(extracted.get(repeat.output.sequence, ())) < 2:
            text = f"flight {repeat.output.sequence} once more in a window by {repeat.output.process}"
            yield Violation(broken=Broken.REPEATED, at=repeat.output.at, text=text)
    for sent in facts.inputs:
        if sent.sequence not in counted:
            text = f"flight {sent.sequence} of key group {sent.partition} in no window"
            yield Violation(broken=Broken.LOST, at=sent.at, text=text)
    last: dict[tuple[int, str], int] = defaultdict(int)
    for row in written:
        place = row.partition, row.table_key
        if row.flights <= last[place]:
            text = f"{row.process} wrote {row.flights} flights of {row.table_key} after {last[place]}"
            yield Violation(broken=Broken.STALE_STATE, at=row.at, text=text)
        last[place] = row.flights
    yield from _wrong_sums(facts, last, counted)


def _wrong_sums(facts: Facts, last: dict[tuple[int, str], int], counted: counting.Copies) -> Iterator[Violation]:
    """The windows of an airplane together, against its flights: too few never, too many only where some are repeats."""
    right = Counter(sent.table_key.partition("/")[0] for sent in facts.inputs)
    repeats: Counter[str] = Counter()
    for sent in facts.inputs:
        repeats[sent.table_key.partition("/")[0]] += max(0, len(counted.get(sent.sequence, ())) - 1)
    found: Counter[str] = Counter()
    for (_, key), count in last.items():
        found[json.loads(key)[0]] += count
    for airplane in sorted(found.keys() | right.keys()):
        if not 0 <= found[airplane] - right[airplane] <= repeats[airplane]:
            text = f"windows of {airplane}: found {found[airplane]}, expected {right[airplane]}"
            yield Violation(broken=Broken.WRONG_SUM, text=f"{text}, {repeats[airplane]} repeats")


def _written(row: Row) -> Written:
    if row.key is None or row.value is None or (writer := row.headers[WRITER]) is None:
        raise ValueError(f"{CHANGELOG} {row.partition}:{row.offset} is empty")
    sequence, count = json.loads(row.value)
    return Written(
        row.partition,
        row.offset,
        row.at,
        writer.decode(),
        sequence=int(sequence),
        table_key=row.key.decode(),
        flights=int(count),
    )
