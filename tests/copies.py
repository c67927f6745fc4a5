"""Whether the copies of all partitions are in sync, as before the next broker of a cluster is restarted."""

from confluent_kafka.admin import AdminClient

from tests.waiting import wait_for
from trimtab_protocol.settings.kafka import for_librdkafka
from trimtab_sandbox.broker import Brokers


def until_in_sync(brokers: Brokers) -> None:
    admin = AdminClient({**for_librdkafka(brokers.kafka), "log_level": 0})
    count = len(brokers.members)
    wait_for(lambda: not behind(admin, count), log=lambda: f"not in sync: {', '.join(behind(admin, count))}")


def behind(admin: AdminClient, brokers: int) -> list[str]:
    """What is not in sync: brokers that are away, and partitions with too few copies."""
    metadata = admin.list_topics(timeout=5)
    away = [] if len(metadata.brokers) == brokers else [f"{brokers - len(metadata.brokers)} brokers"]
    return away + [
        f"{topic.topic}-{partition.id}"
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        if len(partition.isrs) < len(partition.replicas)
    ]
