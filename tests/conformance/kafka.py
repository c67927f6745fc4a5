"""The controller's end of Kafka, played, and the job's topics as the broker has them.

Everything here blocks: call it in a thread.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.names import AppId, Topics, topic_settings
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import SigningKey

LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Names:
    """Everything of one run that has a name at the broker."""

    cluster: str
    app: AppId

    @property
    def input(self) -> str:
        return f"{self.app}-input"

    @property
    def output(self) -> str:
        return f"{self.app}-output"


class PlayedController:
    """Writes placements, hand-over records and inputs; reads whole topics."""

    def __init__(self, bootstrap: str, names: Names, partitions: int) -> None:
        self.key = SigningKey.generate()
        self._names = names
        self._topics = Topics(names.cluster)
        self._client = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._producer = Producer({**self._client, "enable.idempotence": True, "linger.ms": 5})
        self._partitions = partitions

    def create_topics(self) -> None:
        """Trimtab's own, input and output; changelogs are the job's business."""
        own = [NewTopic(t.name, t.partitions, 1, config=t.configuration) for t in topic_settings(self._topics)]
        job = [NewTopic(name, self._partitions, 1) for name in (self._names.input, self._names.output)]
        admin = AdminClient(self._client)
        for created in admin.create_topics(own + job, operation_timeout=LIMIT_S).values():
            created.result(LIMIT_S)

    def place(self, placement: Placement, *, signed_as: Placement | None = None, sign: bool = True) -> None:
        """Publish a placement, with its signature; `signed_as`: with the signature of another one."""
        key = self._names.app.encode()
        covered = encoded(signed_as or placement)
        envelope = Envelope(topic=self._topics.placement, key=key, value=covered)
        headers = [self.key.sign(envelope)] if sign else []
        self._write(self._topics.placement, 0, key, encoded(placement), headers)

    def write_placement(self, value: bytes, *, key: bytes | None = None) -> None:
        """Publish any bytes, signed."""
        key = key or self._names.app.encode()
        envelope = Envelope(topic=self._topics.placement, key=key, value=value)
        self._write(self._topics.placement, 0, key, value, [self.key.sign(envelope)])

    def write_handover(self, value: bytes) -> None:
        """Write any bytes to the hand-over topic."""
        self._write(self._topics.handover, 0, self._names.app.encode(), value, [])

    def send_inputs(self, records: Mapping[int, list[tuple[str, bytes]]]) -> None:
        """Write inputs by partition: (key, value) each."""
        for partition, rows in records.items():
            for key, value in rows:
                self._producer.produce(self._names.input, key=key.encode(), value=value, partition=partition)
        self._flush()

    def outputs(self) -> list[Message]:
        """All outputs of the job so far, in the order of each partition."""
        return self.read(self._names.output, self._partitions)

    def handovers(self) -> list[Message]:
        """All hand-over records so far."""
        return self.read(self._topics.handover, 1)

    def read(self, topic: str, partitions: int) -> list[Message]:
        """All records of a topic that were there at the call."""
        consumer = self._consumer("reader")
        try:
            wanted = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), LIMIT_S) for p in range(partitions)}
            left = {p: high for p, (low, high) in wanted.items() if high > low}
            consumer.assign([TopicPartition(topic, p, wanted[p][0]) for p in left])
            found: list[Message] = []
            deadline = time.monotonic() + LIMIT_S
            while left:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} could not be read to its end: {left} missing")
                for message in consumer.consume(1000, timeout=0.1):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    found.append(message)
                    if message.offset() + 1 >= left.get(message.partition(), 0):
                        left.pop(message.partition(), None)
                for p, (position,) in ((p, consumer.position([TopicPartition(topic, p)])) for p in list(left)):
                    if position.offset >= left[p]:  # the end is the mark of a transaction
                        del left[p]
            return found
        finally:
            consumer.close()

    def committed(self) -> dict[int, int]:
        """The offsets of the input that the app's consumer group has committed, by partition."""
        consumer = self._consumer(self._names.app)
        try:
            asked = [TopicPartition(self._names.input, p) for p in range(self._partitions)]
            return {found.partition: found.offset for found in consumer.committed(asked, LIMIT_S)}
        finally:
            consumer.close()

    def members(self) -> int:
        """How many members the app's consumer group has."""
        admin = AdminClient(self._client)
        [found] = admin.describe_consumer_groups([self._names.app], request_timeout=LIMIT_S).values()
        return len(found.result().members)

    def end(self, topic: str, partition: int) -> int:
        """The end offset of a partition."""
        consumer = self._consumer("reader")
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), LIMIT_S)[1])
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer({**self._client, "group.id": group, "enable.auto.commit": False})

    def _write(self, topic: str, partition: int, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        self._producer.produce(topic, key=key, value=value, partition=partition, headers=headers)
        self._flush()

    def _flush(self) -> None:
        if left := self._producer.flush(LIMIT_S):
            raise TimeoutError(f"{left} records not written within {LIMIT_S:g} s")
