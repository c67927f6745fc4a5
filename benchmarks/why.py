"""How long it takes to say why a key group is where it is, in a large cluster: in the terminal and in the console.

    python -m benchmarks.why [--workers 10000] [--key-groups 1000000] [--rounds 5]

The messages are those of a made-up cluster, on a real broker: the last window, the placement, the journal and the
status.  `trimtab why` reads them anew each time.  The console keeps what it has read for some seconds, so its first
answer is printed apart from the next ones.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from confluent_kafka import Producer

from tests.console.fleet import APP, CLUSTER, Fleet
from tests.kafka_record import Record
from trimtab_client import Access, Client, ConsoleError
from trimtab_controller.kafka.publisher import headers_of
from trimtab_controller.loop.publications import placement_records
from trimtab_process.credential_files import load_signing_key
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES
from trimtab_protocol.messages.names import MAX_PARTITIONS, OperatorId
from trimtab_protocol.messages.owner_rows import PART_SIZE
from trimtab_sandbox.cluster import ConsoleAccess, SandboxCluster, program
from trimtab_sandbox.configuration import CONSOLE, SandboxSettings

LIMIT_S = 300.0
PROGRAM = tuple(program("trimtab_controller.cli"))


def main() -> int:
    """Print the figures of a small cluster, for comparison, and of the large one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--key-groups", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for workers, key_groups in ((4, 64), (given.workers, given.key_groups)):
        print(f"{workers:,} workers, {key_groups:,} key groups", flush=True)
        count = -(-key_groups // MAX_PARTITIONS)
        operators = tuple(OperatorId(f"o{number}") for number in range(count))
        fleet = Fleet(workers=workers, key_groups=key_groups, operators=operators, now=time.time())
        settings = SandboxSettings(app="flights.app:app", app_folder=Path(), cluster=CLUSTER)
        with tempfile.TemporaryDirectory() as folder, SandboxCluster(settings, Path(folder)) as cluster:
            cluster.start_broker()
            publish(fleet, cluster)
            measure(cluster, f"{APP}/o0/17", given.rounds)
    return 0


def publish(fleet: Fleet, cluster: SandboxCluster) -> None:
    """Put the messages of the fleet on the topics, the placement signed by the controller's key."""
    key = load_signing_key(cluster.keys.key)
    placed = placement_records(fleet.placement(PART_SIZE), None, cluster.topics)
    records = [Record(each.topic, each.value, each.key, headers_of(each, key)) for each in placed]
    producer = Producer(
        {
            "bootstrap.servers": cluster.broker.address,
            "message.max.bytes": 2 * MAX_MESSAGE_BYTES,
            "compression.type": "gzip",
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for each in [*records, *fleet.records()]:
        producer.produce(each.topic(), each.value(), each.key(), headers=each.headers())
    assert producer.flush(LIMIT_S) == 0, "the broker has not taken all records"


def measure(cluster: SandboxCluster, key_group: str, rounds: int) -> None:
    """Ask for one key group, in the terminal and at the console."""
    config = str(cluster.write_controller_toml())
    command = [*PROGRAM, "why", key_group, "--json", "--config", config]
    print(f"  trimtab why: {seconds(rounds, lambda: in_terminal(command)):.2f} s in the median of {rounds}")
    help_s = seconds(rounds, lambda: in_terminal([*PROGRAM, "why", "--help"]))
    print(f"  of which start of the program: {help_s:.2f} s", flush=True)
    access = cluster.start_console()
    with connected(access) as console:
        app, operator, partition = key_group.split("/")

        def ask() -> None:
            assert console.why(app, operator, int(partition)).owner

        print(f"  console, first answer: {seconds(1, ask):.2f} s")
        print(f"  console, next answers: {seconds(rounds, ask):.3f} s in the median of {rounds}")
        memory = psutil.Process(cluster.pids[CONSOLE]).memory_info().rss
        print(f"  memory of the console: {memory / 1e6:.0f} MB", flush=True)


def connected(access: ConsoleAccess) -> Client:
    """A client of the console, once that has read the topics."""
    client = Client(Access(address=access.address.rstrip("/"), token=access.token), patience_s=LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if client.cluster().read:
                return client
        except ConsoleError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def in_terminal(command: Sequence[str]) -> None:
    """Run the command, and pass over what it prints."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)


def seconds(rounds: int, work: Callable[[], None]) -> float:
    """Seconds of this work, the median of so many rounds."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    raise SystemExit(main())
