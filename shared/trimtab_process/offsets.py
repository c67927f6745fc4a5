"""Where to begin to read a topic, for who has no offsets of a consumer group."""

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition


def first_since(
    consumer: Consumer, topic: str, partitions: Iterable[int], at: float, *, limit_s: float
) -> list[TopicPartition]:
    """The partitions at their first record from `at` (epoch seconds) on; at their ends if there is none.

    These are the ends of now, as numbers: a consumer looks up OFFSET_END when it has connected, and would pass over
    what came meanwhile.  They are asked for first: what is committed between the two requests comes after them.
    `limit_s` is that of each request.  Raises KafkaException.
    """
    wanted = [TopicPartition(topic, partition, round(at * 1000)) for partition in partitions]
    ends = [consumer.get_watermark_offsets(place, timeout=limit_s)[1] for place in wanted]
    found: list[TopicPartition] = consumer.offsets_for_times(wanted, timeout=limit_s)
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return [
        TopicPartition(topic, place.partition, place.offset if place.offset >= 0 else end)
        for place, end in zip(found, ends, strict=True)
    ]
