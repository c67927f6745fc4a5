"""The recorded history of a run: rows of Kafka's topics, byte by byte, and what was struck when.

A history is a folder: `<topic>.jsonl` with one row per line, `strikes.jsonl` with one fault per line, the keys that are
trusted, and the journal of each agent as it lies on its disk.  Times are epoch seconds.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

OFFSETS = "__consumer_offsets"
"""Kafka's own: every commit and every generation of every group, as the broker wrote them down."""
STRIKES = "strikes.jsonl"
TRUSTED = "trusted.keys"
JOURNAL = ".journal"
PLANTED = "planted"
"""Header of records that the matrix itself wrote into Trimtab's topics (forged, doubled, torn): not the product's."""


class Row(NamedTuple):
    """One record of a topic; `at` = its timestamp."""

    partition: int
    offset: int
    at: float
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]

    @property
    def planted(self) -> bool:
        """Whether the matrix wrote it."""
        return PLANTED in self.headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault: it began at `at`, its cause was gone at `over_at`, and the cluster was steered again at `steered_at`.

    `dead` = the workers that were killed, stopped or cut off beyond their session: only they may repeat anything, and
    only what they did since their last commit.  `none_left` = that is all of them: nobody takes over before its cause
    is gone.  `lacking` = the workers that lacked a broker and could stay in the group: their key groups may stand still
    meanwhile, and nobody else's.  `spares_job` = broker and workers were left alone: the job must go on.
    """

    case: str
    at: float
    over_at: float
    steered_at: float
    dead: tuple[str, ...] = ()
    none_left: bool = False
    lacking: tuple[str, ...] = ()
    spares_job: bool = False

    def __post_init__(self) -> None:
        if not self.at <= self.over_at <= self.steered_at:
            raise ValueError(f"{self.case}: expected at <= over_at <= steered_at, found {self}")
        if (hit := self.dead + self.lacking) and self.spares_job:
            raise ValueError(f"{self.case}: a job whose workers {hit} are hit is not spared")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`rows[topic]` in the order of partition and offset; `strikes` in the order of time.

    `trusted` = the text of the trust file, `journals` = those of the agents, by host.
    """

    cluster: str
    rows: Mapping[str, tuple[Row, ...]]
    strikes: tuple[Strike, ...] = ()
    trusted: str = ""
    journals: Mapping[str, str] = field(default_factory=dict)

    def of(self, topic: str) -> tuple[Row, ...]:
        """The rows of a topic of the job, or of Kafka's own."""
        return self.rows.get(topic, ())

    def own(self, part: str) -> tuple[Row, ...]:
        """The rows of Trimtab's topic of that name."""
        return self.of(f"trimtab.{self.cluster}.{part}")


def write_rows(folder: Path, topic: str, rows: Iterable[Row]) -> int:
    """Write the rows of one topic; how many."""
    count = 0
    with (folder / f"{topic}.jsonl").open("w", encoding="utf-8") as file:
        for row in rows:
            headers = {name: _text(value) for name, value in row.headers.items()}
            cells = [row.partition, row.offset, row.at, _text(row.key), _text(row.value), headers]
            file.write(json.dumps(cells, separators=(",", ":"), ensure_ascii=False) + "\n")
            count += 1
    return count


def write_strikes(folder: Path, strikes: Iterable[Strike]) -> None:
    """Write what was struck."""
    lines = (json.dumps(asdict(strike)) + "\n" for strike in strikes)
    (folder / STRIKES).write_text("".join(lines), encoding="utf-8")


def write_files(folder: Path, trusted: str, journals: Mapping[str, str]) -> None:
    """Write what lies on disks, not in Kafka."""
    (folder / TRUSTED).write_text(trusted, encoding="utf-8")
    for host, text in journals.items():
        (folder / f"{host}{JOURNAL}").write_text(text, encoding="utf-8")


def read_history(cluster: str, *folders: Path) -> History:
    """The history in one folder; or in several, dumped one after the other while topics were made anew."""
    rows: dict[str, dict[tuple[int, int, float], tuple[int, Row]]] = {}
    strikes: set[Strike] = set()
    trusted = ""
    journals: dict[str, str] = {}
    for life, folder in enumerate(folders):
        for path in sorted(folder.glob("*.jsonl")):
            with path.open(encoding="utf-8") as file:
                if path.name == STRIKES:
                    strikes.update(_strike(json.loads(line)) for line in file)
                    continue
                found = rows.setdefault(path.stem, {})
                for row in map(_row, file):
                    found.setdefault((row.partition, row.offset, row.at), (life, row))
        journals |= {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"*{JOURNAL}"))}
        if (folder / TRUSTED).exists():
            trusted = (folder / TRUSTED).read_text(encoding="utf-8")
    return History(
        cluster=cluster,
        rows={topic: tuple(row for _, row in sorted(found.values(), key=_order)) for topic, found in rows.items()},
        strikes=tuple(sorted(strikes, key=lambda strike: strike.at)),
        trusted=trusted,
        journals=journals,
    )


def _order(found: tuple[int, Row]) -> tuple[int, int, int]:
    life, row = found
    return row.partition, life, row.offset


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _bytes(cell: Any) -> bytes | None:
    if cell is None:
        return None
    return base64.b64decode(cell["b64"]) if isinstance(cell, dict) else str(cell).encode()


def _row(line: str) -> Row:
    partition, offset, at, key, value, headers = json.loads(line)
    return Row(
        partition, offset, at, _bytes(key), _bytes(value), {name: _bytes(cell) for name, cell in headers.items()}
    )


def _strike(document: dict[str, Any]) -> Strike:
    workers = {name: tuple(document.get(name, ())) for name in ("dead", "lacking")}
    return Strike(**{**document, **workers})
