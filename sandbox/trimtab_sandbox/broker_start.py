"""`python -m trimtab_sandbox.broker_start`: prepares, once per machine, what makes starts of the broker faster.

A class archive spares the JVM a third of its work.  A kept bootstrap record spares each new cluster a JVM that formats
its data folder.  Without either, starts are slower and nothing else changes.
"""

import signal
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, KafkaException, Producer

from trimtab_controller.jars import class_archive
from trimtab_controller.jars.fetching import JarError, Tell, cache_folder, jars_of, locked
from trimtab_controller.jars.java import JavaMissingError
from trimtab_protocol.settings.kafka import for_librdkafka
from trimtab_sandbox.broker import BOOTSTRAP, Broker, BrokerError, Topic, broker_archive
from trimtab_sandbox.processes import Processes

MAKE_LIMIT_S = 120.0
"""How long the JVM may take to end and to write the archive: 3 s on an idle machine."""
ANSWER_LIMIT_S = 60.0


def prepare(tell: Tell) -> None:
    """Make the class archive and keep the bootstrap record, unless both are there; one process at a time.

    Raises BrokerError, JarError, JavaMissingError, KafkaException.
    """
    archive = broker_archive(jars_of("broker"))
    with locked(cache_folder() / "broker-archive.lock"):
        if not archive.is_file() or not archive.with_suffix(BOOTSTRAP).is_file():
            tell(f"preparing the broker for faster starts, 53 MB, about 10 s: {archive}")
            with TemporaryDirectory(prefix="broker-archive-", dir=archive.parent) as folder:
                _prepare_in(Path(folder), archive)
        class_archive.delete_old("broker", archive.parent)


def _prepare_in(folder: Path, archive: Path) -> None:
    made = folder / archive.name
    with Processes(folder / "logs") as processes:
        broker = Broker(folder / "broker", processes, java_options=class_archive.make(made))
        broker.start()
        _use(broker)
        broker.process.send(signal.SIGTERM)
        broker.process.wait(MAKE_LIMIT_S)
    if not made.is_file():
        raise JarError("Java made no class archive: it may lack the archive of its own classes")
    (broker.data / f"bootstrap{BOOTSTRAP}").replace(archive.with_suffix(BOOTSTRAP))
    made.replace(archive)


def _use(broker: Broker) -> None:
    """What clients do, so that the archive has the classes that they need: a transaction, and a group that reads it."""
    broker.create_topics([Topic(name="t", partitions=1, settings={"cleanup.policy": "compact"})])
    settings = {**for_librdkafka(broker.kafka), "log_level": 3}  # only errors: its coordinator has just started
    producer = Producer({**settings, "transactional.id": "t"})
    producer.init_transactions(ANSWER_LIMIT_S)
    producer.begin_transaction()
    producer.produce("t", key=b"k", value=b"v")
    producer.commit_transaction(ANSWER_LIMIT_S)
    consumer = Consumer({**settings, "group.id": "t", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        if consumer.poll(ANSWER_LIMIT_S) is None:
            raise BrokerError(f"a record did not come back within {ANSWER_LIMIT_S:g} s")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def main() -> int:
    """Prepare; return the exit code."""
    try:
        prepare(partial(print, flush=True))
    except (BrokerError, JarError, JavaMissingError, KafkaException, TimeoutError) as error:
        print(f"the broker's starts stay slower: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
