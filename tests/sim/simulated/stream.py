"""The stream: what Spark does (sums per window and thing) as a model, everything after it the real assembler."""

from collections.abc import Iterator

from tests.sim.simulated.broker import Broker, Unsent
from tests.sim.simulated.timeline import Timeline
from trimtab_controller.kafka.chunks import split
from trimtab_controller.stream.assemble import Assembler
from trimtab_controller.stream.configuration import StreamSettings
from trimtab_controller.stream.measures import BASES, STATES, STEERS, Kind, Row
from trimtab_controller.stream.rows import table_of
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import HostId, Topics
from trimtab_protocol.messages.report import KeyGroupSample, Report, WorkerSample

Measures = tuple[list[float | None], list[float]]


class StreamModel:
    """One run of the stream; after a restart it begins with the windows that were not published.

    Reports of hosts `revoked` are dropped, as the real one does by their signatures.
    """

    def __init__(self, cluster: str, settings: StreamSettings, timeline: Timeline, broker: Broker) -> None:
        self._cluster = cluster
        self._settings = settings
        self._timeline = timeline
        self._broker = broker
        self._topics = Topics(cluster)
        self._published_ms = round(timeline.now * 1000)
        self._waits = False
        self._run = 0
        self.alive = False
        self.revoked: set[HostId] = set()
        broker.watch(self._topics.reports, self._stop_waiting)
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        self.alive = True
        self._read_from = self._broker.end(self._topics.reports)
        self._assembler = Assembler(
            cluster=self._cluster,
            window_ms=self._settings.window_ms,
            watermark_ms=self._settings.watermark_ms,
            from_ms=self._published_ms,
            expected_hosts=self._settings.expected_hosts,
        )
        self._run += 1
        self._look(self._run)

    def kill(self) -> None:
        """No more snapshots."""
        self.alive = False

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            run = self._run
            self._timeline.after(0.01, lambda: self._look(run))

    def _look(self, run: int) -> None:
        """One batch: all that came since the last one; then it waits as long as the assembler says."""
        if not self.alive or run != self._run:
            return
        if self._broker.end(self._topics.reports) == self._read_from:
            self._waits = True
            return
        rows: dict[tuple[object, ...], Row] = {}
        for record in self._broker.read(self._topics.reports, self._read_from):
            self._read_from = record.offset + 1
            if record.key.decode() in self.revoked:
                continue
            try:
                report = decoded(record.value, Report)
            except BadMessage as error:
                raise AssertionError(f"an agent sent a bad report: {error}") from error
            if report.at_ms - record.at * 1000 <= self._settings.window_ms:
                for row in rows_of(report, self._settings.window_ms):
                    rows[row.start_ms, row.thing] = row
        now_ms = int(self._timeline.now * 1000)
        for snapshot in self._assembler.on_rows(table_of(rows.values()), now_ms=now_ms):
            self._published_ms = snapshot.end_ms
            for chunk in split(snapshot):
                key = self._cluster.encode()
                self._broker.store(
                    Unsent(topic=self._topics.snapshots, key=key, value=chunk.payload, headers=chunk.headers)
                )
        next_ms = self._assembler.next_look_ms(now_ms, patience_ms=self._settings.patience_ms)
        self._timeline.at(next_ms / 1000, lambda: self._look(run))


def rows_of(report: Report, window_ms: int) -> Iterator[Row]:
    """The sums of a window in which this is the host's only report."""
    last_ms = report.at_ms - round(report.interval_s * 500)
    start_ms = last_ms // window_ms * window_ms
    interval_s = report.interval_s

    def row(
        kind: Kind,
        measures: Measures,
        worker: str | None,
        sample: KeyGroupSample | WorkerSample | None,
        declared: tuple[str | None, int | None] = (None, None),
        zone: str | None = None,
    ) -> Row:
        key_group = sample.key_group if isinstance(sample, KeyGroupSample) else None
        return Row(
            start_ms=start_ms,
            kind=kind,
            host=report.host,
            worker=worker,
            app=key_group.app if key_group else sample.app if isinstance(sample, WorkerSample) else None,
            operator=key_group.operator if key_group else declared[0],
            partition=key_group.partition if key_group else declared[1],
            target_operator=zone,
            target_partition=None,
            samples=1,
            last_ms=last_ms,
            covered_s=interval_s,
            sums=measures[0],
            known_s=[0.0 if value is None else interval_s for value in measures[0]],
            levels=list(measures[1]),
        )

    levels = [None, float(BASES.index(report.sample.basis))]
    yield row(Kind.HOST, ([None, None, None], levels), None, None, zone=report.sample.zone)
    for worker in report.workers:
        levels = [worker.capacity, float(STATES.index(worker.state)), float(STEERS * worker.steering), 0.0]
        epoch = [float(part) for part in worker.epoch] if worker.epoch else [0.0, 0.0]
        marked = float(bool(worker.marks))
        generation = float(worker.generation or 0)
        yield row(Kind.WORKER, ([worker.cpu_s, marked], [*levels, *epoch, generation]), worker.worker, worker)
        for operator, count in (worker.operators or {}).items():
            yield row(Kind.OPERATOR, ([], []), worker.worker, worker, (operator, count))
        if worker.standbys is not None:
            yield row(Kind.STANDBYS, ([], []), worker.worker, worker, (None, worker.standbys))
        if worker.unknown is not None:
            yield row(Kind.UNKNOWN, ([], []), worker.worker, worker, (worker.unknown, None))
        if worker.reason is not None:
            yield row(Kind.REASON, ([], []), worker.worker, worker, (worker.reason, None))
    for sample in report.key_groups:
        sums: list[float | None] = [sample.cpu_s, float(sample.tuples_in or 0), None, None, None]
        levels = [float(sample.state_bytes or 0), 0.0, float(sample.backlog or 0)]
        yield row(Kind.KEY_GROUP, (sums, levels), sample.worker, sample)
