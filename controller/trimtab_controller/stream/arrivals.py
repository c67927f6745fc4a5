"""Foresees which batches are small, and decides what of those is not parsed.  No Spark, no I/O.

`pipeline.left_out` decides the same in Spark, for batches of any size.
"""

from collections import deque
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_controller.stream.claims import claims_of
from trimtab_controller.stream.signatures import Refused, Verdict, flood_claims
from trimtab_protocol.messages.decode import Fault

SMALL_SAMPLES = 20_000
"""Samples in each of the last SEEN batches up to which the next one is taken to be small.

Samples, not the rows of their sums: a long window has many samples per row.  So many cost Spark four times the CPU that
they cost here (`benchmarks.small_batches`).
"""
SMALL_RECORDS, SMALL_BYTES = 1_000, 64 * 1024
"""Records of a small batch, and bytes of the largest: as much as the driver may get, whoever floods the topic."""
SEEN = 10
"""A fleet's windows are large, but what comes late for one is a small batch."""
SMALL_HOSTS = 20
"""Hosts up to which a fleet is small."""


def is_small(hosts: Collection[str] | None) -> bool:
    """Whether a fleet of these hosts is small.  One whose hosts are not known (None) may have any size: it is not."""
    return hosts is not None and len(hosts) <= SMALL_HOSTS


class BatchSizes:
    """Foresees whether the next batch is `small`, from the last ones, and at first from whether the fleet is.

    Not after a flood.  A wrong guess costs time, and nothing else.
    """

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self._samples: deque[int] = deque(maxlen=SEEN)

    def see(self, samples: int, *, flooded: bool) -> None:
        """A batch had so many samples."""
        self._samples.append(samples)
        self.small = max(self._samples) <= SMALL_SAMPLES and not flooded


def too_many(
    batch: pa.Table, *, window_ms: int, most_reports: float, most_bytes: float, expected: Collection[str] | None
) -> Verdict:
    """What is refused of a batch with the columns of `pipeline.small`; `expected` None: all hosts are.

    `most_reports`, `most_bytes`: of one host in a window of arrival; more is a flood.
    """
    if not batch.num_rows:
        return Verdict()
    keys = claimed = pc.fill_null(batch["key"].cast(pa.binary()), b"")
    arrival_ms = batch["arrival_ms"].to_numpy()
    if expected is not None:
        hosts = pa.array([host.encode() for host in expected], pa.binary())
        keys = pc.if_else(pc.is_in(keys, value_set=hosts), keys, pa.scalar(None, pa.binary()))
    strangers = pa.table({"key": claimed, "arrival_ms": arrival_ms}).filter(pc.is_null(keys))
    counted = pa.table(
        {
            "key": keys,
            "start_ms": arrival_ms - np.mod(arrival_ms, window_ms),
            "arrival_ms": arrival_ms,
            "size": pc.fill_null(batch["size"].cast(pa.int64()), 0),
        }
    )
    sums = counted.group_by(["key", "start_ms"], use_threads=False).aggregate(
        [("arrival_ms", "count"), ("size", "sum"), ("arrival_ms", "max")]
    )
    refused = []
    for row in sums.to_pylist():
        key, reports = row["key"], row["arrival_ms_count"]
        flooding = reports > most_reports or row["size_sum"] > most_bytes
        if key is not None and not flooding:
            continue
        refused.append(
            Refused(
                host=None if key is None else key.decode(errors="replace"),
                fault=Fault.UNKNOWN_HOST if key is None else Fault.FLOODING,
                start_ms=row["start_ms"],
                reports=reports,
                last_ms=row["arrival_ms_max"],
                key=None if key is None else key.hex().upper(),
            )
        )
    return Verdict(refused=tuple(refused), claims=claims_of((*strangers_of(strangers), *flood_claims(refused))))


def strangers_of(records: pa.Table) -> Iterator[tuple[bytes, Fault, int, int]]:
    """In whose name hosts that nobody expects have sent, for `claims_of`; of records with `key` and `arrival_ms`."""
    sums = records.group_by("key", use_threads=False).aggregate([("arrival_ms", "count"), ("arrival_ms", "max")])
    for row in sums.to_pylist():
        yield row["key"] or b"", Fault.UNKNOWN_HOST, row["arrival_ms_count"], row["arrival_ms_max"]
