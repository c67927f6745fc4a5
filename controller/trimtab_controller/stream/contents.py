"""What is in a snapshot: the rows of one window, turned into rates per second and levels.

Only rows of hosts that were seen in the whole window are used.  What a host that stopped had reported before is
unknown, not idle.  So is what is beyond every measure: a snapshot that its reader must refuse, for the numbers of one
host, would take the others' with it.
"""

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence

from trimtab_controller.stream.measures import BASES, STATES, Kind, Row
from trimtab_models.messages.decode import MAX_NUMBER
from trimtab_models.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_models.messages.report import MAX_COUNT
from trimtab_models.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, PairWindow


def of_kind(rows: Iterable[Row], kind: Kind, hosts: Container[HostId]) -> list[Row]:
    """The rows of one kind that come from the given hosts."""
    return [row for row in rows if row.kind == kind and row.host in hosts]


def host_windows(rows: Iterable[Row]) -> tuple[HostWindow, ...]:
    """One per row of kind HOST, in order of their names."""
    return tuple(sorted((_host(row) for row in rows), key=lambda window: window.host))


def node_windows(rows: Iterable[Row]) -> tuple[NodeWindow, ...]:
    """One per worker in rows of kind WORKER; a worker that changed its host is where it was last."""
    newest: dict[str | None, Row] = {}
    for row in sorted(rows, key=lambda row: row.last_ms):
        newest[row.worker] = row
    return tuple(sorted((_node(row) for row in newest.values()), key=lambda window: window.worker))


def key_group_windows(rows: Iterable[Row]) -> tuple[KeyGroupWindow, ...]:
    """One per key group in rows of kind KEY_GROUP; several owners' samples are summed."""
    owners: defaultdict[KeyGroup, list[Row]] = defaultdict(list)
    for row in rows:
        owners[_key_group(row)].append(row)
    return tuple(_key_group_window(key_group, owners[key_group]) for key_group in sorted(owners))


def pair_windows(rows: Iterable[Row], *, covered_s: dict[HostId, float]) -> tuple[PairWindow, ...]:
    """One per pair in rows of kind PAIR.

    A pair without traffic is not reported, so its rate is over the seconds that its host was covered, not over its own.
    """
    rates: defaultdict[tuple[KeyGroup, KeyGroup], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        target = KeyGroup(AppId(_text(row.app)), OperatorId(_text(row.target_operator)), row.target_partition or 0)
        rate = rates[_key_group(row), target]
        tuples, transferred = row.sums[:2]
        rate[0] += (tuples or 0.0) / covered_s[HostId(_text(row.host))]
        rate[1] += (transferred or 0.0) / covered_s[HostId(_text(row.host))]
    return tuple(
        PairWindow(source=source, target=target, tuples_s=min(rate[0], MAX_NUMBER), bytes_s=min(rate[1], MAX_NUMBER))
        for (source, target), rate in sorted(rates.items())
    )


def _host(row: Row) -> HostWindow:
    cpu, received, sent = _rates([row], 3)
    cores, basis, memory, limit = row.levels[:4]
    return HostWindow(
        host=HostId(_text(row.host)),
        covered_s=row.covered_s,
        cpu=cpu,
        cores=cores,
        basis=BASES[int(basis or 0)],
        received_bytes_s=received,
        sent_bytes_s=sent,
        memory_bytes=_whole(memory),
        memory_limit_bytes=_whole(limit),
    )


def _node(row: Row) -> NodeWindow:
    marked = row.sums[1]
    capacity, state, steering, memory, epoch_generation, epoch_number, generation = row.levels[:7]
    epoch = (_whole(epoch_generation), _whole(epoch_number))
    return NodeWindow(
        worker=WorkerId(_text(row.worker)),
        host=HostId(_text(row.host)),
        app=AppId(row.app) if row.app else None,
        state=STATES[int(state or 0)],
        capacity=capacity or 0.0,
        covered_s=row.covered_s,
        cpu=_rates([row], 1)[0],
        complete=not marked,
        steering=bool(steering),
        memory_bytes=_whole(memory),
        epoch=None if epoch[0] is None or epoch[1] is None else Epoch(epoch[0], epoch[1]),
        generation=_whole(generation),
    )


def _key_group_window(key_group: KeyGroup, rows: Sequence[Row]) -> KeyGroupWindow:
    # Two owners in one report, at a hand-over between workers of one host: the new one has fewer samples.
    owner = rows[0] if len(rows) == 1 else max(rows, key=lambda row: (row.last_ms, -row.samples, row.worker))
    cpu, tuples_in, tuples_out, bytes_in, bytes_out = _rates(rows, 5)
    state, lag, backlog = owner.levels[:3]
    return KeyGroupWindow(
        key_group=key_group,
        worker=WorkerId(_text(owner.worker)),
        covered_s=sum(row.covered_s for row in rows),
        cpu=cpu,
        tuples_in_s=tuples_in,
        tuples_out_s=tuples_out,
        bytes_in_s=bytes_in,
        bytes_out_s=bytes_out,
        state_bytes=_whole(state),
        lag_records=_whole(lag),
        backlog=_whole(backlog),
    )


def _rates(rows: Sequence[Row], count: int) -> list[float | None]:
    """Per second of the time in which the quantity was known; None when it never was."""
    known = (
        rows[0].known_s if len(rows) == 1 else [sum(each) for each in zip(*(row.known_s for row in rows), strict=True)]
    )
    sums = rows[0].sums if len(rows) == 1 else [_sum(each) for each in zip(*(row.sums for row in rows), strict=True)]
    pairs = zip(sums[:count], known[:count], strict=True)
    rates = [(amount or 0.0) / known_s if known_s > 0 else math.inf for amount, known_s in pairs]
    return [rate if rate <= MAX_NUMBER else None for rate in rates]


def _sum(amounts: Iterable[float | None]) -> float:
    return sum(amount or 0.0 for amount in amounts)


def _key_group(row: Row) -> KeyGroup:
    return KeyGroup(AppId(_text(row.app)), OperatorId(_text(row.operator)), row.partition or 0)


def _text(value: str | None) -> str:
    assert value is not None, "validation lets no sample through without its names"
    return value


def _whole(value: float | None) -> int | None:
    return None if value is None or value > MAX_COUNT else int(value)
