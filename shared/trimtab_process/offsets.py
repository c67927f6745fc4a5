"""Finds the offsets at which a reader without a consumer group begins."""

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition


def first_since(
    consumer: Consumer, topic: str, partitions: Iterable[int], at: float, *, limit_s: float
) -> list[TopicPartition]:
    """Each partition with the offset of its first record at or after `at` (epoch seconds), or its end if there is none.

    Ends are the current ones, as numbers.  A consumer would look up OFFSET_END only when it has connected, and skip
    the records written meanwhile.  Ends are requested first, so a record committed between the two requests comes
    after them.  `limit_s` applies to each request.  Raises KafkaException.
    """
    wanted = [TopicPartition(topic, partition, max(0, round(at * 1000))) for partition in partitions]
    ends = [consumer.get_watermark_offsets(place, timeout=limit_s)[1] for place in wanted]
    found: list[TopicPartition] = consumer.offsets_for_times(wanted, timeout=limit_s)
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return [
        TopicPartition(topic, place.partition, place.offset if place.offset >= 0 else end)
        for place, end in zip(found, ends, strict=True)
    ]
