"""How far the job is behind."""

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

REQUEST_LIMIT_S = 10.0


class Backlog:
    """The backlog of a consumer group."""

    def __init__(self, bootstrap: str, group: str, topics: dict[str, int]) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._places = [
            TopicPartition(topic, partition) for topic, count in topics.items() for partition in range(count)
        ]

    def records(self) -> int:
        """Number of records that are produced but not committed.  Raises KafkaException."""
        # A new client each time: one that has lost its broker may time out for ever.
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        ends = admin.list_offsets(
            {place: OffsetSpec.latest() for place in self._places}, request_timeout=REQUEST_LIMIT_S
        )
        [answer] = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group)], request_timeout=REQUEST_LIMIT_S
        ).values()
        try:
            rows = answer.result(REQUEST_LIMIT_S).topic_partitions
            committed = {(row.topic, row.partition): max(0, row.offset) for row in rows}
            return sum(
                future.result(REQUEST_LIMIT_S).offset - committed.get((place.topic, place.partition), 0)
                for place, future in ends.items()
            )
        except TimeoutError as error:  # the broker has died: the client itself may wait for ever
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, "the broker did not answer with its offsets")
            ) from error
