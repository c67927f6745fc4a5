"""Simulated agents: sends the reports of a fleet from one process, with as little CPU as possible.

The real encoder encodes the report of each host once.  It is then split at the parts that change: the time, the number,
and the CPU seconds of its key groups, which come from prepared columns.  Like real agents, all hosts report at the end
of each interval of the wall clock, in the order of their numbers.

    python -m benchmarks.fleet.agents BOOTSTRAP --hosts 10000 --key-groups 100 --interval 10

prints a JSON line per interval: reports handed to Kafka, seconds that took, CPU seconds so far, failed deliveries.
"""

import argparse
import json
import random
import signal
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.reports import busy_key_groups, host_report, running_worker
from trimtab_protocol.messages.names import AppId, Epoch, OperatorId, Topics, WorkerId

CLUSTER = "fleet"
HOSTS_PER_APP = 100
STOCK, HOT_SHARE = 64, 0.1
"""Number of prepared columns; one host in ten of an app has twice the load of the others."""
AT_MS, SEQUENCE, CPU_S = 111_111_111_111_111, 222_222_222_222_222, 333.25
SEED = 11


@dataclass(frozen=True, slots=True)
class Template:
    """The constant parts of one host's report."""

    key: bytes
    parts: tuple[bytes, bytes, bytes, bytes]
    hot: bool

    def filled(self, at_ms: int, sequence: int, cpu: bytes) -> bytes:
        """The report of one interval."""
        head, to_sequence, to_cpu, tail = self.parts
        return b"".join((head, b"%d" % at_ms, to_sequence, b"%d" % sequence, to_cpu, cpu, tail))


def template(host: int, key_groups: int, interval_s: float) -> Template:
    """The template of a host with one worker; the key groups of an app are distributed over its hosts in order."""
    app, place = AppId(f"app{host // HOSTS_PER_APP}"), host % HOSTS_PER_APP
    worker = WorkerId(f"w{host}")
    partitions = range(place * key_groups, (place + 1) * key_groups)
    samples = busy_key_groups(app, OperatorId("sums"), worker, partitions, [CPU_S] * key_groups, interval_s)
    running = running_worker(
        worker, app, 0.5 * interval_s, memory_bytes=200_000_000, steering=True, epoch=Epoch(1, 1), generation=1
    )
    payload = host_report(
        CLUSTER, host, AT_MS, running, samples, cpu_s=0.6 * interval_s, interval_s=interval_s, sequence=SEQUENCE
    )
    column = b"[" + b",".join([str(CPU_S).encode()] * key_groups) + b"]"
    head, rest = payload.split(str(AT_MS).encode())
    to_sequence, rest = rest.split(str(SEQUENCE).encode())
    to_cpu, tail = rest.split(column)
    return Template(
        key=f"h{host}".encode(), parts=(head, to_sequence, to_cpu, tail), hot=place < HOT_SHARE * HOSTS_PER_APP
    )


def stock(key_groups: int, interval_s: float, draw: random.Random, *, hot: bool) -> list[bytes]:
    """Prepared columns of CPU seconds: a worker uses half a core on average, a hot one almost a whole core."""
    each = interval_s * (0.9 if hot else 0.45) / key_groups
    rows = ([round(each * draw.uniform(0.8, 1.2), 6) for _ in range(key_groups)] for _ in range(STOCK))
    return [json.dumps(row, separators=(",", ":")).encode() for row in rows]


class Fleet:
    """All hosts, with one shared producer."""

    def __init__(self, bootstrap: str, hosts: int, key_groups: int, interval_s: float) -> None:
        draw = random.Random(SEED)
        self._topic = Topics(CLUSTER).reports
        self._templates = [template(host, key_groups, interval_s) for host in range(hosts)]
        self._stocks = {hot: stock(key_groups, interval_s, draw, hot=hot) for hot in (False, True)}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 2 * hosts,
                "queue.buffering.max.kbytes": 1_000_000,
                "on_delivery": self._delivered,
            }
        )
        self.failed = 0

    def report(self, at_ms: int, sequence: int) -> None:
        """Every host's report of the interval that ends at `at_ms`; returns when Kafka has them."""
        for host, each in enumerate(self._templates):
            cpu = self._stocks[each.hot][(host + 7 * sequence) % STOCK]
            self._producer.produce(self._topic, each.filled(at_ms, sequence, cpu), each.key)
            if host % 500 == 0:
                self._producer.poll(0)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self.failed += error is not None


def main() -> None:
    """Report until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--key-groups", type=int, default=100, help="per host (100)")
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two reports of a host (10)")
    options = parser.parse_args()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    fleet = Fleet(options.bootstrap, options.hosts, options.key_groups, options.interval)
    due, sequence = (time.time() // options.interval + 1) * options.interval, 0
    while not ended:
        time.sleep(max(0.0, due + 0.05 - time.time()))
        began = time.monotonic()
        fleet.report(round(due * 1000), sequence)
        figures = {"at": due, "reports": options.hosts, "seconds": round(time.monotonic() - began, 2)}
        print(json.dumps({**figures, "cpu_s": round(time.process_time(), 2), "failed": fleet.failed}), flush=True)
        due, sequence = due + options.interval, sequence + 1
        if time.time() > due + options.interval:  # too slow: leave a gap, and do not report for the past
            due = (time.time() // options.interval + 1) * options.interval


if __name__ == "__main__":
    main()
