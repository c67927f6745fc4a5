"""Sums the reports of a small batch as `pipeline` does, without a query.  No Spark, no I/O.

Spark takes most of a second of CPU to plan its query for the sums, however few reports there are; this takes some ten
microseconds per sample.  It reads good reports only: if one is not, the batch goes to Spark, which says what is wrong.
"""

from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from trimtab_controller.stream.measures import ABSENCES, BASES, ENDED, FRESH, LEVELS, STATES, STEERS, SUMS, Kind, Row
from trimtab_controller.stream.rows import table_of
from trimtab_controller.stream.signatures import Verdict
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import MAX_CORES, HostSample, Report, WorkerSample

Values = Sequence[float | None]
_NOWHERE: tuple[Any, ...] = (None,) * 6
_LOADS, _SIZES, _TRAFFIC = (
    attrgetter(*names) for names in (SUMS[Kind.KEY_GROUP], LEVELS[Kind.KEY_GROUP], SUMS[Kind.PAIR])
)


def kept(batch: pa.Table, verdict: Verdict, hosts: Collection[HostId] | None) -> pa.Table:
    """As `pipeline.kept`, of a batch with the columns of `pipeline.small`; `hosts` None: all are."""
    flooding = {bytes.fromhex(key) for key in verdict.flooding}
    names = None if hosts is None else {host.encode() for host in hosts}
    wanted = [
        (names is None or key in names) and (key or b"") not in flooding and (partition, offset) not in verdict.dropped
        for key, partition, offset in zip(
            *(batch[name].to_pylist() for name in ("key", "partition", "offset")), strict=True
        )
    ]
    return batch.filter(pa.array(wanted, pa.bool_()))


def sums_of(batch: pa.Table, *, cluster: str, window_ms: int) -> pa.Table | None:
    """The sums of reports by window and thing, with the columns of `rows.SCHEMA`.  None: not every report is good.

    `batch` has the columns `key`, `value` and `arrival_ms` of each record.
    """
    found: dict[tuple[object, ...], Row] = {}
    for key, value, arrival_ms in zip(
        *(batch[name].to_pylist() for name in ("key", "value", "arrival_ms")), strict=True
    ):
        try:
            report = decoded(value, Report)
        except BadMessage:
            return None
        foreign = report.cluster != cluster or report.host.encode() != key
        if foreign or report.at_ms - arrival_ms > window_ms or _is_impossible(report):
            return None
        for row in rows_of(report, arrival_ms=arrival_ms, window_ms=window_ms):
            place = row.start_ms, *row.thing
            found[place] = _added(found[place], row) if place in found else row
    return table_of(found.values())


def rows_of(report: Report, *, arrival_ms: int, window_ms: int) -> Iterator[Row]:
    """What a good report says, a row per sample.  One dated after its arrival gets the time of its arrival."""
    interval_s = report.interval_s
    at_ms = int(min(report.at_ms, arrival_ms) - interval_s * 500)
    for kind, place, sums, levels in _samples(report):
        worker, app, operator, partition, target, target_partition = place + _NOWHERE[len(place) :]
        yield Row(
            start_ms=at_ms - at_ms % window_ms,
            kind=kind,
            host=report.host,
            worker=worker,
            app=app,
            operator=operator,
            partition=partition,
            target_operator=target,
            target_partition=target_partition,
            samples=1,
            last_ms=at_ms,
            covered_s=interval_s,
            sums=[None if value is None else float(value) for value in sums],
            known_s=[0.0 if value is None else interval_s for value in sums],
            levels=[None if value is None else float(value) for value in levels],
        )


def _samples(report: Report) -> Iterator[tuple[Kind, tuple[Any, ...], Values, Values]]:
    """Kind; worker, app, operator, partition, target operator and partition, as far as there are any; sums, levels."""
    host = report.sample
    yield _measured(host, Kind.HOST, (None, None, host.type, None, host.zone))
    for worker in report.workers:
        name = worker.worker, worker.app
        yield _measured(worker, Kind.WORKER, name)
        for operator, partitions in (worker.operators or {}).items():
            yield Kind.OPERATOR, (*name, operator, partitions), (), ()
        if worker.standbys is not None:
            yield Kind.STANDBYS, (*name, None, worker.standbys), (), (worker.cold,)
        if worker.unknown is not None:
            yield Kind.UNKNOWN, (*name, worker.unknown), (), ()
        if worker.reason is not None:
            yield Kind.REASON, (*name, worker.reason), (), ()
        if worker.absence is not None or worker.declared is not None:
            why = None if worker.absence is None else ABSENCES.index(worker.absence)
            yield Kind.ABSENCE, (*name, worker.declared, why), (), ()
        for copy in worker.copies:
            yield Kind.COPY, (*name, copy.operator, copy.partition), (), (copy.records,)
    for row in report.key_groups:
        yield Kind.KEY_GROUP, (row.worker, *row.key_group), _LOADS(row), _SIZES(row)
    for pair in report.pairs:
        yield Kind.PAIR, (pair.topic, *pair.source, *pair.target[1:]), _TRAFFIC(pair), ()


def _measured(
    sample: HostSample | WorkerSample, kind: Kind, place: tuple[Any, ...]
) -> tuple[Kind, tuple[Any, ...], Values, Values]:
    sums, levels = ([_value(sample, name) for name in measures[kind]] for measures in (SUMS, LEVELS))
    return kind, place, sums, levels


def _value(sample: Any, name: str) -> Any:
    match name:
        case "marked":
            return len(sample.marks) > 0
        case "epoch_generation" | "epoch_number":
            return sample.epoch and sample.epoch[name == "epoch_number"]
        case "abilities":
            return STEERS * sample.steering + FRESH * sample.fresh
        case "state":
            return STATES.index(sample.state)
        case "basis":
            return BASES.index(sample.basis) + ENDED * sample.ended
        case _:
            return getattr(sample, name)


def _is_impossible(report: Report) -> bool:
    """Whether it tells of more CPU time than a host can have."""
    spent = [report.sample.cpu_s, *(row.cpu_s for row in report.key_groups)]
    spent += [cpu_s for row in report.workers for cpu_s in (row.cpu_s, row.following_s)]
    return max(cpu_s or 0.0 for cpu_s in spent) > MAX_CORES * report.interval_s


def _added(before: Row, later: Row) -> Row:
    """Both rows of a thing; the newer one's levels."""
    sums = [a if b is None else b if a is None else a + b for a, b in zip(before.sums, later.sums, strict=True)]
    newer = before if before.last_ms > later.last_ms else later
    return newer._replace(
        samples=before.samples + later.samples,
        covered_s=before.covered_s + later.covered_s,
        sums=sums,
        known_s=[a + b for a, b in zip(before.known_s, later.known_s, strict=True)],
    )
