"""What the plug-in counts inside real workers is what stands in the broker's topics."""

import asyncio
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flights.dataset import read_flights
from flights.producer import FlightProducer
from flights.readback import read_table, read_topic, read_totals
from flights.verify import compare, count_events, expected_sums, flights_sent
from flights.wire import APP, CHANGELOG, DELAYS, EXTRACT, SOURCE, SUMS, TOTALS, partitions
from tests.paths import EXAMPLES, ROOT, python_path
from tests.waiting import wait_for
from trimtab_protocol.messages.local import PROTOCOL, Hello, Statistics, Welcome, decode_frame, encode_frame
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, Topics, topic_settings
from trimtab_protocol.messages.report import WorkerState
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Child, Processes

pytestmark = pytest.mark.alone

KEY_GROUPS = 8
WORKERS = ("w0", "w1")
FLIGHTS = 2000
INTERVAL_S = 0.5
MANY = 6_000
"""Flights; more than the 4,096 events that a stream's queue holds."""
LIMIT_S = 90.0


class Listener:
    """An agent that only listens: keeps every frame of every worker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hellos: dict[str, Hello] = {}
        self.statistics: dict[str, list[Statistics]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Listener":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(asyncio.start_unix_server(self._connected, str(self.path), limit=1 << 23))
        self._loop.run_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = decode_frame((await reader.readline())[:-1])
        assert isinstance(hello, Hello)
        self.hellos[hello.worker] = hello
        writer.write(encode_frame(Welcome(cluster="c", host=HostId("h0"), interval_s=INTERVAL_S, protocol=PROTOCOL)))
        while line := await reader.readline():
            frame = decode_frame(line[:-1])
            assert isinstance(frame, Statistics)
            self.statistics.setdefault(hello.worker, []).append(frame)

    def newest(self) -> list[Statistics]:
        return [frames[-1] for frames in self.statistics.values()]

    def all(self) -> list[Statistics]:
        return [statistics for frames in self.statistics.values() for statistics in frames]


def until(condition: Callable[[], bool], what: str, logs: Path) -> None:
    def ends() -> str:
        return "\n".join(f"{log}: {log.read_text()[-1500:]}" for log in sorted(logs.glob("w*.log")))

    wait_for(condition, what, log=ends)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with tempfile.TemporaryDirectory() as folder, Listener(Path(folder) / "s") as listening:
        yield listening


@pytest.fixture
def own_broker(private_broker: Callable[[], Broker]) -> Iterator[Broker]:
    """The job's topics have fixed names, so it has a broker of its own."""
    broker = private_broker()
    job = [Topic(name=name, partitions=count) for name, count in partitions(KEY_GROUPS).items()]
    own = [Topic(name=topic.name, partitions=topic.partitions) for topic in topic_settings(Topics("c"))]
    broker.create_topics(job + own)
    yield broker
    broker.stop()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "logs") as processes:
        yield processes


def start_worker(
    processes: Processes, broker: Broker, listener: Listener, name: str, folder: Path, **more: str
) -> Child:
    folder.mkdir()
    environment = {
        **more,
        "PYTHONPATH": python_path(ROOT, EXAMPLES),
        "FLIGHTS_BROKER": broker.address,
        "FLIGHTS_DATA_DIR": str(folder),
        "FLIGHTS_WEB_PORT": str(free_ports(1)[0]),
        "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS),
        "TRIMTAB_CLUSTER": "c",
        "TRIMTAB_WORKER": name,
        "TRIMTAB_SOCKET": str(listener.path),
    }
    return processes.start(name, [sys.executable, "-m", "flights.app", "worker"], environment=environment)


def key_group(operator: str, partition: int) -> KeyGroup:
    return KeyGroup(AppId(APP), OperatorId(operator), partition)


def all_owned(statistics: list[Statistics]) -> bool:
    owned = Counter(sample.key_group for one in statistics for sample in one.key_groups)
    return (
        len(owned) == 2 * KEY_GROUPS
        and set(owned.values()) == {1}
        and all(one.complete and one.state is WorkerState.RUNNING for one in statistics)
    )


def sizes(broker: Broker, topic: str) -> tuple[Counter[int], Counter[int]]:
    """(records, bytes of keys and values) of each partition of a topic."""
    records, volume = Counter[int](), Counter[int]()
    for record in read_topic(broker.address, topic):
        records[record.partition] += 1
        volume[record.partition] += len(record.key or b"") + len(record.value or b"")
    return records, volume


def test_two_workers_count_what_the_topics_hold_cell_by_cell(
    own_broker: Broker, processes: Processes, listener: Listener, tmp_path: Path
) -> None:
    workers = [start_worker(processes, own_broker, listener, name, tmp_path / name) for name in WORKERS]
    until(lambda: len(listener.statistics) == 2 and all_owned(listener.newest()), "all owned", processes.logs)
    flights = list(read_flights(limit=FLIGHTS))

    with FlightProducer(own_broker.address, flights, key_groups=KEY_GROUPS, rate=500.0) as producer:
        until(lambda: producer.finished, "all flights sent", processes.logs)
        sent = producer.stop()
    until(lambda: len(read_totals(own_broker.address)) >= FLIGHTS, "all flights counted", processes.logs)
    before = len(listener.all())
    until(lambda: len(listener.all()) >= before + 8, "two more intervals of each", processes.logs)
    assert [worker.stop() for worker in workers] == [0, 0]

    events = count_events(flights_sent(flights, sent), read_totals(own_broker.address))
    assert (events.sent, events.lost, events.duplicated, events.foreign) == (FLIGHTS, 0, 0, 0)
    answers = compare(expected_sums(flights), read_table(own_broker.address))
    assert (answers.wrong, answers.stepped_back) == (0, 0)
    assert {name: dict(hello.operators) for name, hello in listener.hellos.items()} == {
        name: {EXTRACT: KEY_GROUPS, SUMS: KEY_GROUPS} for name in WORKERS
    }
    check_counts(own_broker, listener.all())
    check_cpu(listener.all())


def test_what_skipped_the_broker_is_what_its_log_lacks_cell_by_cell(
    own_broker: Broker, processes: Processes, listener: Listener, tmp_path: Path
) -> None:
    worker = start_worker(processes, own_broker, listener, "w0", tmp_path / "w0", FLIGHTS_LOCAL="1")
    until(lambda: listener.statistics != {} and all_owned(listener.newest()), "all owned", processes.logs)
    flights = list(read_flights(limit=FLIGHTS))
    with FlightProducer(own_broker.address, flights, key_groups=KEY_GROUPS, rate=500.0) as producer:
        until(lambda: len(read_totals(own_broker.address)) >= FLIGHTS, "all flights counted", processes.logs)
        sent = producer.stop()
    before = len(listener.all())
    until(lambda: len(listener.all()) >= before + 4, "two more intervals", processes.logs)
    assert worker.stop() == 0

    events = count_events(flights_sent(flights, sent), read_totals(own_broker.address))
    assert (events.sent, events.lost, events.duplicated, events.foreign) == (FLIGHTS, 0, 0, 0)
    caused, logged = sizes(own_broker, SOURCE)[0], sizes(own_broker, DELAYS)[0]
    told, direct, arrived = Counter[int](), Counter[int](), Counter[int]()
    for one in listener.all():
        for pair in one.pairs:
            assert pair.source == key_group(EXTRACT, pair.target.partition)
            assert pair.direct is not None
            told[pair.target.partition] += pair.tuples
            direct[pair.target.partition] += pair.direct
        for sample in one.key_groups:
            if sample.key_group.operator == SUMS:
                arrived[sample.key_group.partition] += sample.tuples_in or 0
    assert told == arrived == caused
    assert {p: told[p] - direct[p] for p in caused} == {p: logged[p] for p in caused}
    assert sum(direct.values()) > FLIGHTS / 2


def check_counts(broker: Broker, statistics: list[Statistics]) -> None:
    counted: dict[str, Counter[KeyGroup]] = {
        name: Counter() for name in ("tuples_in", "tuples_out", "bytes_in", "bytes_out")
    }
    pairs, pair_bytes = Counter[tuple[KeyGroup, KeyGroup]](), Counter[tuple[KeyGroup, KeyGroup]]()
    for one in statistics:
        for sample in one.key_groups:
            for name, counter in counted.items():
                counter[sample.key_group] += getattr(sample, name)
        for pair in one.pairs:
            pairs[pair.source, pair.target] += pair.tuples
            pair_bytes[pair.source, pair.target] += pair.bytes
    source, source_bytes = sizes(broker, SOURCE)
    delays, delays_bytes = sizes(broker, DELAYS)
    # Both topics are keyed by the airplane, so partition p sends to partition p alone.
    cells = {partition: (key_group(EXTRACT, partition), key_group(SUMS, partition)) for partition in range(KEY_GROUPS)}
    assert pairs == Counter({cells[partition]: count for partition, count in delays.items()})
    assert pair_bytes == Counter({cells[partition]: count for partition, count in delays_bytes.items()})
    extract, sums = ({p: cells[p][side] for p in cells} for side in (0, 1))
    for name, per_partition in (
        ("tuples_in", (source, delays)),
        ("bytes_in", (source_bytes, delays_bytes)),
        ("tuples_out", (delays, None)),
        ("bytes_out", (delays_bytes, None)),
    ):
        for groups, expected in zip((extract, sums), per_partition, strict=True):
            if expected is not None:
                assert {p: counted[name][group] for p, group in groups.items()} == dict(expected), name
    totals, totals_bytes = sizes(broker, TOTALS)
    assert sum(counted["tuples_out"][group] for group in sums.values()) == sum(totals.values())
    assert sum(counted["bytes_out"][group] for group in sums.values()) == sum(totals_bytes.values())
    assert sum(sizes(broker, CHANGELOG)[0].values()) == FLIGHTS  # so nothing else was written by these workers


def check_cpu(statistics: list[Statistics]) -> None:
    """Every busy key group has its part, all together have no more than the processes used, idle intervals none."""
    spent: defaultdict[KeyGroup, float] = defaultdict(float)
    for one in statistics:
        assert one.cpu_s is not None
        shares = [sample.cpu_s for sample in one.key_groups if sample.cpu_s is not None]
        assert len(shares) == len(one.key_groups)
        assert sum(shares) <= one.cpu_s + 1e-9
        for sample in one.key_groups:
            assert sample.cpu_s is not None
            spent[sample.key_group] += sample.cpu_s
            if (sample.tuples_in, sample.tuples_out) == (0, 0):
                assert sample.cpu_s < 0.05 * one.cpu_s + 0.001
    process_s = sum(one.cpu_s or 0.0 for one in statistics)
    assert sum(cpu_s > 0 for cpu_s in spent.values()) == 2 * KEY_GROUPS
    assert 0.1 * process_s < sum(spent.values()) < process_s


def test_a_backlog_counts_what_does_not_fit_into_the_queues_to_the_last_event(
    own_broker: Broker, processes: Processes, listener: Listener, tmp_path: Path
) -> None:
    worker = start_worker(processes, own_broker, listener, "w0", tmp_path / "w0", FLIGHTS_WORK="20000")
    until(lambda: listener.statistics != {} and all_owned(listener.newest()), "all owned", processes.logs)
    flights = list(read_flights(limit=MANY))

    def waiting() -> int:
        return sum(
            sample.backlog or 0 for sample in listener.newest()[0].key_groups if sample.key_group.operator == EXTRACT
        )

    def begun() -> int:
        samples = (sample for one in listener.all() for sample in one.key_groups)
        return sum(sample.tuples_in or 0 for sample in samples if sample.key_group.operator == EXTRACT)

    for sent in (MANY, 2 * MANY):
        with FlightProducer(own_broker.address, flights, key_groups=KEY_GROUPS, rate=2000.0) as producer:
            until(lambda: producer.finished, "all flights sent", processes.logs)
            producer.stop()
        until(lambda: abs(begun() + waiting() - sent) <= 1, f"{sent} flights begun or waiting", processes.logs)  # noqa: B023
    assert waiting() > MANY
    assert worker.stop() == 0
