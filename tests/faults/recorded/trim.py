"""Cut a history down to some key groups: `python -m tests.faults.recorded.trim FOLDER ZIP PARTITION ...`."""

import json
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tests.faults.recorded.facts import APP, CHANGELOG, DELAYS, SOURCE, TOTALS
from tests.faults.recorded.groups import place_of_commit
from tests.faults.recorded.history import (
    OFFSETS,
    STRIKES,
    History,
    Row,
    read_history,
    write_files,
    write_rows,
    write_strikes,
)

JUDGED = ("placement", "commands", "acks", "handover", "journal")


def trim(history: History, partitions: Collection[int]) -> dict[str, list[Row]]:
    """The rows by topic of these key groups alone; Trimtab's own are kept whole, of the status the last."""
    kept = {
        topic: [row for row in history.of(topic) if row.partition in partitions]
        for topic in (SOURCE, DELAYS, CHANGELOG)
    }
    sequences = {_sequence(row) for row in kept[DELAYS]}
    kept[TOTALS] = list(_renumbered(row for row in history.of(TOTALS) if _sequence(row) in sequences))
    kept[OFFSETS] = [row for row in history.of(OFFSETS) if _about(row, partitions)]
    kept |= {f"trimtab.{history.cluster}.{part}": list(history.own(part)) for part in JUDGED}
    return kept | {f"trimtab.{history.cluster}.status": list(history.own("status")[-1:])}


def _sequence(row: Row) -> int:
    return int(json.loads(row.value or b"[-1]")[0])


def _renumbered(rows: Iterable[Row]) -> Iterator[Row]:
    next_offset: Counter[int] = Counter()
    for row in rows:
        yield row._replace(offset=next_offset[row.partition])
        next_offset[row.partition] += 1


def _about(row: Row, partitions: Collection[int]) -> bool:
    group, place = place_of_commit(row)
    return group == APP and (place is None or (place[0] in (SOURCE, DELAYS) and place[1] in partitions))


def main() -> None:
    """Trim one folder into one archive."""
    source, archive, *partitions = sys.argv[1:]
    history = read_history("faults", Path(source))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for topic, rows in trim(history, set(map(int, partitions))).items():
            write_rows(folder, topic, rows)
        write_strikes(folder, history.strikes)
        write_files(folder, history.trusted, history.journals)
        assert (folder / STRIKES).exists()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            for path in sorted(folder.iterdir()):
                file.write(path, path.name)


if __name__ == "__main__":
    main()
