"""Turns the rows of one window into the contents of its snapshot: rates per second and levels.

Only hosts that were seen in the whole window count; anything on other hosts is unknown, not idle.  Numbers beyond the
limits of the message become unknown too, since otherwise the reader would refuse the whole snapshot for one host.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab_controller.stream.measures import (
    ABSENCES,
    BASES,
    ENDED,
    FRESH,
    KNOWN,
    STATES,
    STEERS,
    SUMS,
    Kind,
)
from trimtab_controller.stream.rows import named, where
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.copies import Copy, largest
from trimtab_protocol.messages.decode import MAX_NUMBER
from trimtab_protocol.messages.key_group_table import LEVELS, KeyGroupBlock, KeyGroupTable
from trimtab_protocol.messages.names import MAX_PARTITIONS, AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import (
    MAX_APPS,
    MAX_COUNT,
    MAX_KEY_GROUPS,
    MAX_OPERATORS,
    MAX_PAIRS,
    MAX_WORKERS,
    WorkerState,
)
from trimtab_protocol.messages.snapshot import HostWindow, NodeWindow, PairWindow

DECIMALS = 9
"""Decimals of key groups' rates: billionths of a core, or of a tuple per second.  Exact quotients would take twice the
time and space, for digits without meaning."""

RATES_OF_KEY_GROUPS = {
    "cpu": "cpu_s",
    "tuples_in_s": "tuples_in",
    "tuples_out_s": "tuples_out",
    "bytes_in_s": "bytes_in",
    "bytes_out_s": "bytes_out",
}
"""Name in the snapshot -> the summed quantity of which it is the rate."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def of_hosts(rows: pa.Table, hosts: Collection[HostId]) -> pa.Table:
    """The rows from the given hosts."""
    return where(rows, pc.is_in(rows["host"], value_set=pa.array(list(hosts), pa.string())).to_numpy())


def hosts_that_name_too_much(sums: Mapping[Kind, pa.Table]) -> frozenset[HostId]:
    """The hosts that name too many apps, or more of anything than two reports of theirs may.

    A window adds up what many reports name, and nobody reads a snapshot of which one part is too large.  What restarts
    under a new name, or moves within its host, is in a window twice.
    """
    named = pa.concat_tables([sums[kind].select(["host", "worker", "app"]) for kind in (Kind.WORKER, Kind.KEY_GROUP)])
    named = named.group_by(named.column_names, use_threads=False).aggregate([])
    declared = sums[Kind.ABSENCE].select(["host", "operator"]).rename_columns(["host", "app"])
    apps = pa.concat_tables([named.select(["host", "app"]), sums[Kind.PAIR].select(["host", "app"]), declared])
    operators = sums[Kind.OPERATOR]
    return frozenset().union(
        _of_many(apps, ["host"], "app", MAX_APPS),
        _of_many(named, ["host"], "worker", 2 * MAX_WORKERS),
        _of_many(operators, ["host", "worker"], "operator", MAX_OPERATORS),
        _of_many_rows(sums[Kind.KEY_GROUP], 2 * MAX_KEY_GROUPS),
        _of_many_rows(sums[Kind.PAIR], 2 * MAX_PAIRS),
    )


def _of_many(rows: pa.Table, by: list[str], name: str, most: int) -> list[HostId]:
    """The hosts of those that have more than `most` different names."""
    found = rows.select([*by, name]).group_by([*by, name], use_threads=False).aggregate([])
    counted = found.group_by(by, use_threads=False).aggregate([(name, "count")])
    hosts: list[HostId] = where(counted, counted[f"{name}_count"].to_numpy() > most)["host"].to_pylist()
    return hosts


def _of_many_rows(rows: pa.Table, most: int) -> list[HostId]:
    counted = rows.select(["host"]).group_by("host", use_threads=False).aggregate([([], "count_all")])
    hosts: list[HostId] = where(counted, counted["count_all"].to_numpy() > most)["host"].to_pylist()
    return hosts


def host_windows(rows: pa.Table) -> tuple[HostWindow, ...]:
    """One window per host in rows of kind HOST, in order of the hosts' names; its last type and levels count."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(named(rows, Kind.HOST).to_pylist(), key=lambda row: (row["host"], row["last_ms"])):
        before = found.get(row["host"])  # under another type or zone: the agent was restarted
        found[row["host"]] = row if before is None else row | _added(before, row)
    return tuple(map(_host, found.values()))


def _added(before: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, float]:
    names = [column for name in SUMS[Kind.HOST] for column in (name, KNOWN.format(name))]
    return {name: (before[name] or 0.0) + (row[name] or 0.0) for name in ("covered_s", *names)}


def lost_claims(sums: Mapping[Kind, pa.Table], homes: Mapping[str, HostId]) -> dict[WorkerId, tuple[HostId, ...]]:
    """The hosts that speak for workers of others: `homes` = where each was.

    They say that they run a worker which its home reports as running at the same time, or what a worker does that only
    others report.  Names are bound to no host: without this, any host could stop all plans for an app, or speak for its
    workers.
    """
    by_time = _by_time(named(sums[Kind.WORKER], Kind.WORKER))
    at_home = {row["worker"]: row for row in by_time if row["host"] == homes.get(row["worker"]) and _runs(row)}
    found = {WorkerId(name): hosts for name, hosts in _also_on(by_time, at_home).items() if name in at_home}
    reported = {row["worker"] for row in by_time}
    spoken = sums[Kind.KEY_GROUP].select(["host", "worker"]).group_by(["host", "worker"], use_threads=False)
    said = set(_listed(spoken.aggregate([]))) - {(row["host"], row["worker"]) for row in by_time}
    for host, worker in sorted(said):
        if worker in reported:
            found[WorkerId(worker)] = (*found.get(WorkerId(worker), ()), HostId(host))
    return found


def without_claims(rows: pa.Table, lost: Mapping[WorkerId, tuple[HostId, ...]]) -> pa.Table:
    """The rows without what hosts say of workers that they have no claim to."""
    claims = pa.array([f"{host} {worker}" for worker, hosts in lost.items() for host in hosts], pa.string())
    return where(rows, ~pc.is_in(_claims(rows), value_set=claims).to_numpy())


def _claims(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(rows["host"], rows["worker"], " ")


def node_windows(sums: Mapping[Kind, pa.Table]) -> tuple[NodeWindow, ...]:
    """One window per worker in rows of kind WORKER; a worker that changed its host counts on the last one.

    Its declarations are in rows of the kinds OPERATOR, STANDBYS, REASON, ABSENCE and COPY; those of its last report
    count.
    """
    rows = _by_time(named(sums[Kind.WORKER], Kind.WORKER))
    newest = {row["worker"]: row for row in rows}
    also_on = _also_on(rows, newest)
    reports = {_report(row): row for row in newest.values()}
    operators: defaultdict[WorkerId, dict[OperatorId, int]] = defaultdict(dict)
    for row in _by_time(sums[Kind.OPERATOR]):
        if _report(row) in reports:
            operators[WorkerId(row["worker"])][OperatorId(row["operator"])] = row["partition"]
    standbys = {
        row["worker"]: row for row in _by_time(named(sums[Kind.STANDBYS], Kind.STANDBYS)) if _report(row) in reports
    }
    reasons = {row["worker"]: row["operator"] for row in _by_time(sums[Kind.REASON]) if _report(row) in reports}
    absent = {row["worker"]: row for row in _by_time(sums[Kind.ABSENCE]) if _report(row) in reports}
    copies = _copies(named(sums[Kind.COPY], Kind.COPY), reports)
    unknown = {(row["host"], row["worker"]): row["operator"] for row in _by_time(sums[Kind.UNKNOWN])}
    return tuple(
        replace(
            _node(newest[worker]),
            operators=operators.get(worker),
            standbys=asked["partition"] if (asked := standbys.get(worker)) else None,
            cold=_whole(asked["cold"]) if asked else None,
            unknown=unknown.get((newest[worker]["host"], worker)),
            reason=reasons.get(worker),
            also_on=also_on.get(worker, ()),
            copies=copies.get(worker, ()),
            **_absence(absent.get(worker)),
        )
        for worker in sorted(newest)
    )


def _copies(rows: pa.Table, reports: Container[tuple[str, str, int]]) -> dict[WorkerId, tuple[Copy, ...]]:
    found: defaultdict[WorkerId, list[Copy]] = defaultdict(list)
    for row in rows.to_pylist():
        if _report(row) in reports:
            found[WorkerId(row["worker"])].append(
                Copy(OperatorId(row["operator"]), row["partition"], int(row["records"]))
            )
    return {worker: largest(copies) for worker, copies in found.items()}


def _absence(row: Mapping[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {}
    why, app = row["partition"], row["operator"]
    return {"absence": None if why is None else ABSENCES[why], "declared": None if app is None else AppId(app)}


def _also_on(
    by_time: Iterable[Mapping[str, Any]], newest: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[HostId, ...]]:
    """The other hosts that reported a running worker of the same name at the same time.

    A worker that moves is never on both: when the new host begins to report it, the old one reports it as away or not
    at all.
    """
    at_host = {(row["worker"], row["host"]): row for row in by_time}
    found: defaultdict[str, tuple[HostId, ...]] = defaultdict(tuple)
    for (worker, host), row in sorted(at_host.items()):
        last = newest.get(worker)
        if last is None or host == last["host"] or not (_runs(row) and _runs(last)):
            continue
        if _overlap_ms(row, last) > _interval_ms(last) / 2:
            found[worker] += (HostId(host),)
    return found


def _runs(row: Mapping[str, Any]) -> bool:
    return STATES[int(row["state"] or 0)] is not WorkerState.AWAY


def _interval_ms(row: Mapping[str, Any]) -> float:
    return float(row["covered_s"]) * 1000 / int(row["samples"])


def _overlap_ms(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    ends = [row["last_ms"] + _interval_ms(row) / 2 for row in (one, other)]
    starts = [end - row["covered_s"] * 1000 for end, row in zip(ends, (one, other), strict=True)]
    return float(min(ends) - max(starts))


def _by_time(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: (int(row["last_ms"]), str(row["host"])))


def _report(row: Mapping[str, Any]) -> tuple[str, str, int]:
    """A key shared by all rows of one worker in one report, however many reports were added up."""
    return row["host"], row["worker"], row["last_ms"]


def key_group_windows(rows: pa.Table) -> KeyGroupTable:
    """One row per key group in rows of kind KEY_GROUP; samples of several owners are summed."""
    if not rows.num_rows:
        return KeyGroupTable(())
    rows = named(rows, Kind.KEY_GROUP)
    app, operator, worker = (_names(rows, name) for name in ("app", "operator", "worker"))
    partition, last_ms, samples = (rows[name].to_numpy() for name in ("partition", "last_ms", "samples"))
    operators = app.codes * len(operator.names) + operator.codes
    key_groups = operators * (MAX_PARTITIONS + 1) + partition
    # One report may name two owners after a hand-over between workers of one host; the new one has fewer samples.
    order = np.lexsort((worker.codes, -samples, last_ms, key_groups))
    first = _beginnings(key_groups[order])
    owner = order[np.append(first[1:], len(order)) - 1]

    def total(name: str) -> Floats:
        return np.add.reduceat(_floats(rows, name, 0.0)[order], first)

    columns = {rate: _rates(total(name), total(KNOWN.format(name))) for rate, name in RATES_OF_KEY_GROUPS.items()}
    columns |= {"covered_s": total("covered_s"), "partition": partition[owner]}
    columns |= {name: _levels(rows, name)[owner] for name in LEVELS}
    begin = _beginnings(operators[owner])
    return KeyGroupTable(
        _block(
            AppId(app.names[app.codes[owner[start]]]),
            OperatorId(operator.names[operator.codes[owner[start]]]),
            worker,
            {"worker": worker.codes[owner[start:end]]} | {name: column[start:end] for name, column in columns.items()},
        )
        for start, end in zip(begin, [*begin[1:], len(owner)], strict=True)
    )


def pair_windows(rows: pa.Table, *, covered_s: Mapping[HostId, float]) -> tuple[PairWindow, ...]:
    """One window per pair and topic in rows of kind PAIR.

    A pair without traffic is not reported, so the rate is taken over the covered seconds of its host, not of the pair.
    What skipped the broker is unknown if one report that names the pair does not say it.
    """
    if not rows.num_rows:
        return ()
    rows = named(rows, Kind.PAIR)
    host = _names(rows, "host")
    seconds = np.array([covered_s[name] for name in host.names])[host.codes]
    ends = ["app", "operator", "partition", "target_operator", "target_partition", "worker"]  # the last is the topic
    rates = {name: pa.array(_floats(rows, name, 0.0) / seconds) for name in ("tuples", "bytes")}
    known = rows[KNOWN.format("direct")].to_numpy() >= rows[KNOWN.format("tuples")].to_numpy()
    rates["direct"] = pa.array(np.where(known, _floats(rows, "direct", 0.0) / seconds, np.nan))
    summed = pa.table({name: rows[name] for name in ends} | rates).group_by(ends).aggregate([(n, "sum") for n in rates])
    return tuple(
        PairWindow(
            source=KeyGroup(app, operator, partition),
            target=KeyGroup(app, target_operator, target_partition),
            tuples_s=min(tuples_s, MAX_NUMBER),
            bytes_s=min(bytes_s, MAX_NUMBER),
            direct_s=None if math.isnan(direct_s) else min(direct_s, tuples_s, MAX_NUMBER),
            topic=topic,
        )
        for app, operator, partition, target_operator, target_partition, topic, tuples_s, bytes_s, direct_s in sorted(
            _listed(summed.select([*ends, *(f"{name}_sum" for name in rates)])),
            key=lambda row: (*row[:5], row[5] or ""),
        )
    )


def _listed(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


class _Names(NamedTuple):
    """Encode a column of texts as indices of its distinct texts, which are sorted."""

    names: NDArray[np.object_]
    codes: Integers


def _names(rows: pa.Table, name: str) -> _Names:
    coded = rows[name].combine_chunks().dictionary_encode()
    names = np.array(coded.dictionary.to_pylist(), object)
    order = np.argsort(names)
    places = np.empty(len(names), np.int64)
    places[order] = np.arange(len(names))
    return _Names(names[order], places[coded.indices.to_numpy()])


def _beginnings(values: Integers) -> Integers:
    """The start of each run of equal values."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1]))


def _floats(rows: pa.Table, name: str, unknown: float) -> Floats:
    found: Floats = pc.fill_null(rows[name], unknown).to_numpy()
    return found


def _rates(amounts: Floats, known_s: Floats) -> Floats:
    """Rates over the seconds in which the quantity was known; UNKNOWN if it never was, or beyond the limits."""
    rates = np.divide(amounts, known_s, out=np.full(len(amounts), np.inf), where=known_s > 0)
    return np.where(rates <= MAX_NUMBER, np.round(rates, DECIMALS), UNKNOWN)


def _levels(rows: pa.Table, name: str) -> Integers:
    levels = _floats(rows, name, UNKNOWN)
    return np.where(levels <= MAX_COUNT, levels, UNKNOWN).astype(np.int64)


def _block(app: AppId, operator: OperatorId, owners: _Names, columns: Mapping[str, NDArray[Any]]) -> KeyGroupBlock:
    workers, places = np.unique(columns["worker"], return_inverse=True)
    arrays: dict[str, array[Any]] = {
        name: array("d" if column.dtype == np.float64 else "q", column.tobytes())
        for name, column in {**columns, "worker": places.astype(np.int64)}.items()
    }
    return KeyGroupBlock(
        app=app, operator=operator, workers=tuple(WorkerId(name) for name in owners.names[workers]), **arrays
    )


def _host(row: Mapping[str, Any]) -> HostWindow:
    return HostWindow(
        host=HostId(row["host"]),
        covered_s=row["covered_s"],
        cpu=_rate(row, "cpu_s"),
        cores=row["cores"],
        basis=BASES[int(row["basis"] or 0) % ENDED],
        received_bytes_s=_rate(row, "received_bytes"),
        sent_bytes_s=_rate(row, "sent_bytes"),
        memory_bytes=_whole(row["memory_bytes"]),
        memory_limit_bytes=_whole(row["memory_limit_bytes"]),
        link_bytes_s=row["link_bytes_s"],
        type=row["operator"],
        zone=row["target_operator"],
        speed=row["speed"],
        disk_total_bytes=_whole(row["disk_total_bytes"]),
        disk_free_bytes=_whole(row["disk_free_bytes"]),
    )


def _node(row: Mapping[str, Any]) -> NodeWindow:
    epoch = (_whole(row["epoch_generation"]), _whole(row["epoch_number"]))
    abilities = int(row["abilities"] or 0)
    return NodeWindow(
        worker=WorkerId(row["worker"]),
        host=HostId(row["host"]),
        app=AppId(row["app"]) if row["app"] else None,
        state=STATES[int(row["state"] or 0)],
        capacity=row["capacity"] or 0.0,
        covered_s=row["covered_s"],
        cpu=_rate(row, "cpu_s"),
        complete=not row["marked"],
        steering=bool(abilities & STEERS),
        fresh=bool(abilities & FRESH),
        memory_bytes=_whole(row["memory_bytes"]),
        epoch=None if epoch[0] is None or epoch[1] is None else Epoch(epoch[0], epoch[1]),
        generation=_whole(row["generation"]),
        following=_rate(row, "following_s"),
        paused_s=_amount(row, "paused_s"),
        paused=_whole(_amount(row, "paused")),
        waiting=None if (waiting := row["waiting"]) is None or waiting > 1.0 else waiting,
    )


def _rate(row: Mapping[str, Any], name: str) -> float | None:
    """Like `_rates`, for one row."""
    amount, known_s = row[name], row[KNOWN.format(name)]
    rate = (amount or 0.0) / known_s if known_s > 0 else MAX_NUMBER * 2
    return rate if rate <= MAX_NUMBER else None


def _amount(row: Mapping[str, Any], name: str) -> float | None:
    """The sum of what was told in the window; None where nothing was."""
    amount = float(row[name] or 0.0)
    return amount if row[KNOWN.format(name)] > 0 and amount <= MAX_NUMBER else None


def _whole(value: float | None) -> int | None:
    return None if value is None or value > MAX_COUNT else int(value)
