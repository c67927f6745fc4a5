"""Rows as Spark's windows give them, and the assembler fed with single rows."""

from collections.abc import Iterable, Sequence

from trimtab_controller.stream.assemble import Assembler
from trimtab_controller.stream.measures import ENDED, Kind, Row
from trimtab_controller.stream.rows import table_of
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId
from trimtab_protocol.messages.snapshot import Snapshot

WINDOW_MS = 10_000
APP = AppId("app")


def host(
    name: str,
    start_ms: int,
    seconds: float,
    *,
    samples: int | None = None,
    last_ms: int | None = None,
    ended: bool = False,
) -> Row:
    return Row(
        start_ms=start_ms,
        kind=Kind.HOST,
        host=name,
        worker=None,
        app=None,
        operator=None,
        partition=None,
        target_operator=None,
        target_partition=None,
        samples=round(seconds) if samples is None else samples,
        last_ms=start_ms + round(seconds * 1000) - 500 if last_ms is None else last_ms,
        covered_s=seconds,
        sums=[0.5 * seconds, 1000 * seconds, None, None, None],
        known_s=[seconds, seconds, 0.0, 0.0, 0.0],
        levels=[2.0, 1.0 + (ENDED if ended else 0), 4e9, None, None, None, None, None],
    )


def worker(name: str, on: Row, *, state: int = 0, marked: int = 0) -> Row:
    levels = [0.25, float(state), 1.0, 5e7, 3.0, 8.0, 12.0, None]
    return on._replace(
        kind=Kind.WORKER, worker=name, app="app", sums=[0.1, float(marked), None, None, None], levels=levels
    )


def key_group(partition: int, on: Row, *, owner: str = "w0", seconds: float | None = None) -> Row:
    known = on.covered_s if seconds is None else seconds
    return on._replace(
        kind=Kind.KEY_GROUP,
        worker=owner,
        app="app",
        operator="count",
        partition=partition,
        samples=round(known),
        covered_s=known,
        sums=[0.02 * known, 30 * known, 30 * known, None, 900 * known],
        known_s=[known, known, known, 0.0, known],
        levels=[4096.0, 7.0, None, None, None, None, None, None],
    )


def pair(source: int, target: int, on: Row, *, tuples: float, direct: float | None = None) -> Row:
    return on._replace(
        kind=Kind.PAIR,
        app="app",
        operator="count",
        partition=source,
        target_operator="sum",
        target_partition=target,
        samples=1,
        covered_s=1.0,
        sums=[tuples, 8 * tuples, direct, None, None],
        known_s=[1.0, 1.0, 0.0 if direct is None else 1.0, 0.0, 0.0],
        levels=[None] * 8,
    )


def rejected(fault: str, start_ms: int, count: int) -> Row:
    row = host("", start_ms, 0.0, samples=count, last_ms=start_ms + 1)
    return row._replace(kind=Kind.REJECTED, host=None, operator=fault)


class Machine:
    """The assembler, fed with single rows."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self.next_look_ms = assembler.next_look_ms
        self.doubt = assembler.doubt
        self.refuse = assembler.refuse

    def on_rows(self, rows: Iterable[Row], *, now_ms: int) -> list[Snapshot]:
        return list(self._assembler.on_rows(table_of(rows), now_ms=now_ms))


def assembler(expected: Sequence[str] | None = ("h0", "h1"), from_ms: int = 0, watermark_ms: int = 5_000) -> Machine:
    hosts = None if expected is None else frozenset(map(HostId, expected))
    return Machine(
        Assembler(cluster="c", window_ms=WINDOW_MS, watermark_ms=watermark_ms, from_ms=from_ms, expected_hosts=hosts)
    )


def declared(name: str, on: Row, kind: Kind, text: str | None, number: int | None) -> Row:
    known = {"sums": [None] * 5, "known_s": [0.0] * 5, "levels": [None] * 8}
    return on._replace(kind=kind, worker=name, app="app", operator=text, partition=number, **known)


def published(snapshots: Sequence[Snapshot]) -> list[tuple[int, int, int]]:
    return [(snapshot.end_ms, snapshot.hosts_seen, snapshot.hosts_expected) for snapshot in snapshots]


def kg(partition: int) -> KeyGroup:
    return KeyGroup(APP, OperatorId("count"), partition)
