"""Measures how long the controller takes from the arrival of a snapshot to a plan that agents can read.

    python benchmarks/decision_latency.py [--key-groups 1000] [--workers 20] [--rounds 10]

It uses a real broker and a real controller process.  Each round sends an unbalanced snapshot.  The time runs from the
acknowledgement of its last chunk to the first `prepare` that a read_committed consumer sees.  This includes reading,
decoding, observing, solving, and journal, placement and commands in one transaction.  The agents refuse every prepare,
so that the next round starts from the same placement.  The controller itself reports the solver's share.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from trimtab_controller.kafka.chunks import split
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal, decode_command, encode_ack
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, Topics, WorkerId, topic_settings
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, Snapshot
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Processes

CLUSTER, APP, OPERATOR = "latency", AppId("app"), OperatorId("sums")
WINDOW_S = 0.2
LIMIT_S = 60.0
SEED = 7
CONFIGURATION = """
[controller]
cluster = "{cluster}"
[kafka]
bootstrap_servers = "{address}"
[stream]
window_s = {window_s}
watermark_s = 60.0
checkpoint_dir = "unused"
embedded = false
[balance]
min_interval_s = 0.0
min_windows = 1
[execution]
handovers_in_flight = 100
restores_at_first = 100
[metrics]
listen = "127.0.0.1:{port}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Key groups evenly distributed; the first fifth of the workers has twice the load."""

    workers: int
    key_groups: int

    def snapshot(self) -> Snapshot:
        """A window that ends now."""
        draw = random.Random(SEED)
        names = [WorkerId(f"w{index}") for index in range(self.workers)]
        hosts = {name: HostId(f"h{name[1:]}") for name in names}
        end_ms = round(time.time() * 1000)
        hot = set(names[: max(1, self.workers // 5)])
        even = 0.4 * self.workers / self.key_groups
        owners = [names[index % self.workers] for index in range(self.key_groups)]
        return Snapshot(
            cluster=CLUSTER,
            start_ms=end_ms - round(WINDOW_S * 1000),
            end_ms=end_ms,
            published_ms=end_ms,
            hosts_seen=self.workers,
            hosts_expected=self.workers,
            watermark_ms=None,
            late_rows=0,
            hosts=tuple(
                HostWindow(host=host, covered_s=WINDOW_S, cpu=2.0, cores=4.0, basis=Basis.HOST)
                for host in hosts.values()
            ),
            nodes=tuple(
                NodeWindow(
                    worker=name,
                    host=hosts[name],
                    app=APP,
                    state=WorkerState.RUNNING,
                    capacity=1.0,
                    covered_s=WINDOW_S,
                    cpu=0.5,
                    complete=True,
                    steering=True,
                )
                for name in names
            ),
            key_groups=tuple(
                KeyGroupWindow(
                    key_group=KeyGroup(APP, OPERATOR, partition),
                    worker=owner,
                    covered_s=WINDOW_S,
                    cpu=even * draw.uniform(0.8, 1.2) * (2 if owner in hot else 1),
                    tuples_in_s=1.0,
                    state_bytes=100_000,
                )
                for partition, owner in enumerate(owners)
            ),
        )


class Cluster:
    """Simulates stream and agents through Kafka."""

    def __init__(self, broker: Broker, topics: Topics) -> None:
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "latency",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topics.commands, 0, 0)])

    def send(self, snapshot: Snapshot) -> float:
        """Publish a snapshot; returns the time at which it was stored."""
        for chunk in split(snapshot):
            self._producer.produce(
                self._topics.snapshots, key=CLUSTER.encode(), value=chunk.payload, headers=chunk.headers
            )
        self._producer.flush(LIMIT_S)
        return time.monotonic()

    def wait_for_plan(self, limit_s: float) -> tuple[float, list[Command]] | None:
        """Time of the first commands, and all commands of that publication; None if none came."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.01)
            if message is not None and message.error() is None:
                at, commands = time.monotonic(), [decode_command(message.value())]
                while (further := self._consumer.poll(0.3)) is not None:
                    commands.append(decode_command(further.value()))
                return at, [command for command in commands if command.kind is CommandKind.PREPARE]
        return None

    def refuse(self, commands: list[Command]) -> None:
        """Refuse the commands, which ends the round."""
        for command in commands:
            ack = Ack.to(command, Phase.REFUSED, at=time.time(), refusal=Refusal.GUARD)
            self._producer.produce(self._topics.acks, key=command.host.encode(), value=encode_ack(ack))
        self._producer.flush(LIMIT_S)
        while self.wait_for_plan(1.0) is not None:  # the abandons
            pass

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def measure(cluster: Cluster, size: Size, rounds: int) -> list[float]:
    """Seconds of each round; the first snapshots only create the placement and do not count."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        cluster.send(size.snapshot())
        found = cluster.wait_for_plan(2.0)
        if found is not None:
            break
        if time.monotonic() > deadline:
            sys.exit(f"no plan within {LIMIT_S:g} s")
    seconds = []
    for _ in range(rounds):
        cluster.refuse(found[1])
        time.sleep(2 * WINDOW_S)
        sent = cluster.send(size.snapshot())
        found = cluster.wait_for_plan(LIMIT_S)
        if found is None:
            sys.exit(f"no plan within {LIMIT_S:g} s")
        seconds.append(found[0] - sent)
    return seconds


def solver_seconds(port: int) -> float:
    """Mean solver time in the metrics of the controller."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    values = {sample.name: sample.value for family in families for sample in family.samples}
    return values["trimtab_controller_solver_seconds_sum"] / values["trimtab_controller_solver_seconds_count"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-groups", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    size, topics = Size(workers=options.workers, key_groups=options.key_groups), Topics(CLUSTER)
    with tempfile.TemporaryDirectory() as name, Processes(Path(name) / "logs") as processes:
        folder, [port] = Path(name), free_ports(1)
        with Broker(folder / "broker", processes) as broker:
            broker.create_topics([Topic(name=row.name, partitions=row.partitions) for row in topic_settings(topics)])
            config = folder / "controller.toml"
            config.write_text(
                CONFIGURATION.format(cluster=CLUSTER, address=broker.address, window_s=WINDOW_S, port=port)
            )
            program = "from trimtab_controller.cli import main; raise SystemExit(main())"
            command = [sys.executable, "-c", program, "controller", "run", "--config", str(config), "--act"]
            processes.start("controller", command)
            cluster = Cluster(broker, topics)
            seconds = sorted(measure(cluster, size, options.rounds))
            solving_s = solver_seconds(port)
            cluster.close()
    print(
        f"{size.key_groups} key groups on {size.workers} workers, {options.rounds} rounds: snapshot stored -> plan "
        f"readable: median {statistics.median(seconds):.2f} s, longest {seconds[-1]:.2f} s; of it the solver "
        f"{solving_s:.2f} s on average"
    )


if __name__ == "__main__":
    main()
