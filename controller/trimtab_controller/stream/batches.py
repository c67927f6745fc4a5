"""Reads batches of the stream: which of their records count, and the sums of these."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from trimtab_controller.stream import pipeline
from trimtab_controller.stream.arrivals import SMALL_BYTES, SMALL_RECORDS, BatchSizes, strangers_of, too_many
from trimtab_controller.stream.claims import claims_of
from trimtab_controller.stream.configuration import StreamSettings
from trimtab_controller.stream.rows import SCHEMA, left_out_row, table_of
from trimtab_controller.stream.signatures import Refused, Verdict, flood_claims
from trimtab_controller.stream.small import kept, sums_of
from trimtab_protocol.messages.decode import Fault

Judge = Callable[[pa.Table], Verdict]
"""Decides by signatures which records of a batch count; it sees each batch once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The sums of a batch with the columns of `rows.SCHEMA`, and what of it was not read."""

    rows: pa.Table
    verdict: Verdict


class BatchReader:
    """Reads one batch after the other.  `signatures`: None = they are not looked at.  `small`: the fleet is."""

    def __init__(
        self, cluster: str, settings: StreamSettings, signatures: Judge | None = None, *, small: bool = False
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._signatures = signatures
        self._beside = ThreadPoolExecutor(1, "planning")
        self._sizes = BatchSizes(small=small)

    def read(self, records: DataFrame) -> Batch:
        """Read a batch."""
        verdict, found = (self._small(records) if self._sizes.small else None) or self._large(records)
        self._sizes.see(pc.sum(found["samples"]).as_py() or 0, flooded=bool(verdict.flooding))
        refused = table_of(
            left_out_row(row.host, row.fault, row.start_ms, row.reports, row.last_ms) for row in verdict.refused
        )
        return Batch(rows=pa.concat_tables([refused, found.select(SCHEMA.names).cast(SCHEMA)]), verdict=verdict)

    def close(self) -> None:
        """Wait for what is being planned."""
        self._beside.shutdown()

    def _small(self, records: DataFrame) -> tuple[Verdict, pa.Table] | None:
        """The verdict and the sums of a batch that is small indeed."""
        settings = self._settings
        batch = pipeline.small(records, most=SMALL_RECORDS + 1, most_bytes=SMALL_BYTES).toArrow()
        if batch.num_rows > SMALL_RECORDS:
            return None
        verdict = (
            self._signatures(batch)
            if self._signatures is not None
            else too_many(
                batch,
                window_ms=settings.window_ms,
                most_reports=pipeline.MAX_REPORTS_S * settings.window_s,
                most_bytes=pipeline.most_bytes_of(settings.window_ms),
                expected=settings.expected_hosts,
            )
        )
        batch = kept(batch, verdict, settings.expected_hosts)
        sums = sums_of(batch, cluster=self._cluster, window_ms=settings.window_ms)
        return verdict, self._sums(records, verdict).toArrow() if sums is None else sums

    def _large(self, records: DataFrame) -> tuple[Verdict, pa.Table]:
        """The same of any batch.  Spark plans its query while it counts what is left out, mostly nothing."""
        planned = self._beside.submit(self._sums, records, Verdict())
        verdict = self._judge(records)
        sums = planned.result()
        if verdict.flooding or verdict.dropped:
            sums = self._sums(records, verdict)
        return verdict, sums.toArrow()

    def _judge(self, records: DataFrame) -> Verdict:
        """What of a batch is not parsed."""
        if self._signatures is not None:
            return self._signatures(pipeline.signatures(records).toArrow())
        settings = self._settings
        rows = pipeline.left_out(records, window_ms=settings.window_ms, hosts=settings.expected_hosts).collect()
        refused = tuple(Refused(**{**row.asDict(), "fault": Fault(row.fault)}) for row in rows)
        claimed = [*flood_claims(refused)]
        if settings.expected_hosts is not None and any(row.fault is Fault.UNKNOWN_HOST for row in refused):
            claimed += strangers_of(pipeline.strangers(records, settings.expected_hosts).toArrow())
        return Verdict(refused=refused, claims=claims_of(claimed))

    def _sums(self, records: DataFrame, verdict: Verdict) -> DataFrame:
        """The query for the sums, planned but not run."""
        records = pipeline.kept(
            records,
            hosts=self._settings.expected_hosts,
            flooding=verdict.flooding,
            dropped=verdict.dropped,
            good=verdict.good,
        )
        samples = pipeline.samples(records, cluster=self._cluster, max_ahead_ms=self._settings.window_ms)
        sums = pipeline.windows(samples, window_ms=self._settings.window_ms)
        cast(Any, sums)._jdf.queryExecution().executedPlan()  # Spark keeps it for the query's run
        return sums
