"""Identifiers that all messages share: key groups, epochs, topics of a cluster."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, NamedTuple, NewType

from trimtab_protocol.messages.codec import Range, Text, WrittenAs
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES, MAX_NAME, NAME_PATTERN, BadMessage, Fault, check_integer

HostId = NewType("HostId", str)
WorkerId = NewType("WorkerId", str)
AppId = NewType("AppId", str)
OperatorId = NewType("OperatorId", str)
CommandId = NewType("CommandId", str)

TOPIC_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Kafka's rule for names of topics."""
Topic = Annotated[str, Text(249, TOPIC_PATTERN, "the name of a topic")]

MAX_PARTITIONS = 100_000
"""Highest partition index of a key group."""
MAX_KEY_GROUP_NAME = 2 * MAX_NAME + len(f"//{MAX_PARTITIONS}")
"""Characters of `app/operator/partition`."""
SNAPSHOTS_BYTES = 1024 * 1024 * 1024
"""Size at which the oldest snapshots are deleted."""
PROVIDERS_LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "segment.bytes": str(50 * 1024 * 1024),
        "compression.type": "producer",
    }
)
"""The most, and the least, that managed Kafka services take.

No message is larger; a reader that starts reads more, and what it unpacks has no limit.
"""
EVENTS_BYTES = 256 * 1024 * 1024
"""Size at which the oldest events are deleted."""


class Epoch(NamedTuple):
    """Version of a publication, (leader generation, number of the publication).  A later one compares as greater."""

    generation: Annotated[int, Range(0, 2**53)]
    number: Annotated[int, Range(0, 2**53)]

    def __str__(self) -> str:
        return f"{self.generation}.{self.number}"


NO_EPOCH = Epoch(0, 0)


class KeyGroup(NamedTuple):
    """One partition index of one operator (a co-partitioned group of topics) of one app."""

    app: AppId
    operator: OperatorId
    partition: int

    def __str__(self) -> str:
        return f"{self.app}/{self.operator}/{self.partition}"


def parse_key_group(text: str, path: str = "") -> KeyGroup:
    """The key group in `app/operator/partition`, the inverse of `str`; raises BadMessage."""
    found = _key_group(text) if len(text) <= MAX_KEY_GROUP_NAME else None
    if found is None:
        raise BadMessage(Fault.RANGE, path, text, "app/operator/partition")
    check_integer(found.partition, path, 0, MAX_PARTITIONS)
    return found


KeyGroupName = Annotated[KeyGroup, WrittenAs(Annotated[str, Text(MAX_KEY_GROUP_NAME)], str, parse_key_group)]
"""A key group, in messages as `app/operator/partition`."""


@lru_cache(maxsize=2**16)
def _key_group(text: str) -> KeyGroup | None:
    """The key group of a name; the names of a cluster come again with every report, placement and journal entry."""
    parts = text.split("/")
    if len(parts) != 3 or not all(NAME_PATTERN.fullmatch(part) for part in parts[:2]) or not _is_index(parts[2]):
        return None
    return KeyGroup(AppId(parts[0]), OperatorId(parts[1]), int(parts[2]))


def _is_index(text: str) -> bool:
    """Whether these are ASCII digits, and few enough to convert."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PARTITIONS))


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one Trimtab cluster."""

    cluster: str

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.cluster):
            raise ValueError(f"cluster name: found {self.cluster!r}, expected letters, digits, '.', '_', '-'")

    @property
    def reports(self) -> str:
        """Agents -> stream. Key: host. One report per host and interval."""
        return f"trimtab.{self.cluster}.reports"

    @property
    def snapshots(self) -> str:
        """Stream -> controller. Key: cluster. One window of the whole cluster, zstd-compressed, in chunks."""
        return f"trimtab.{self.cluster}.snapshots"

    @property
    def placement(self) -> str:
        """Controller -> workers. Key: app, or app/operator/part. Who owns each key group, who keeps a standby of it."""
        return f"trimtab.{self.cluster}.placement"

    @property
    def commands(self) -> str:
        """Controller -> agents. Key: host. The steps of a plan, one per record."""
        return f"trimtab.{self.cluster}.commands"

    @property
    def acks(self) -> str:
        """Agents -> controller. Key: host. Answers to commands, notices of refused records, requests to be enrolled."""
        return f"trimtab.{self.cluster}.acks"

    @property
    def handover(self) -> str:
        """Workers -> workers. Key: app. The steps of running hand-overs, in one order for all."""
        return f"trimtab.{self.cluster}.handover"

    @property
    def journal(self) -> str:
        """Controller -> controller. Key: `execution`, `demand/APP/DAY`. For a successor."""
        return f"trimtab.{self.cluster}.journal"

    @property
    def intents(self) -> str:
        """Operator commands -> controller. Key: intent. What operators want: workers drained, the controller paused."""
        return f"trimtab.{self.cluster}.intents"

    @property
    def status(self) -> str:
        """Controller -> `trimtab status`. Key: `controller` or `dry-run`. What the controller sees and did."""
        return f"trimtab.{self.cluster}.status"

    @property
    def events(self) -> str:
        """Controller -> operator commands, console. Key: app. What was decided and done, and why."""
        return f"trimtab.{self.cluster}.events"

    @property
    def keys(self) -> str:
        """`trimtab keys` -> controller, stream. Key: host. The public keys of the hosts, signed by the controller."""
        return f"trimtab.{self.cluster}.keys"


THE_PARTITION = 0
"""Every topic but that of reports is written here, whatever the key: readers need one order, and workers read no other
partition, also where somebody has added some."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings with which a topic is created."""

    name: str
    partitions: int
    compacted: bool = False
    retention_hours: int | None = None
    stamped_by_broker: bool = False
    """The broker sets record times, so that a sender with a fast clock cannot date its records ahead."""
    retention_bytes: int | None = None
    """The oldest segments are deleted beyond this size, even if they are younger than `retention_hours`."""
    unpacked: bool = False
    """The broker unpacks what senders compress, so that `max.message.bytes` holds for what a reader gets.  Kafka's
    clients unpack a batch whole, and gzip makes it a thousand times smaller."""

    @property
    def configuration(self) -> dict[str, str]:
        """The settings as configuration keys of Kafka."""
        keys = {"max.message.bytes": str(2 * MAX_MESSAGE_BYTES)}
        if self.compacted:
            keys["cleanup.policy"] = "compact"
            # A reader that starts reads everything not yet compacted, at least the active segment.  Kafka's default
            # for a segment is a gigabyte or a week.  A segment must hold the largest message.
            keys["segment.bytes"] = keys["max.message.bytes"]
        if self.retention_hours is not None:
            keys["retention.ms"] = str(self.retention_hours * 3_600_000)
        if self.retention_bytes is not None:
            keys["retention.bytes"] = str(self.retention_bytes)
            keys["segment.bytes"] = keys["max.message.bytes"]  # only whole segments are deleted
        if self.stamped_by_broker:
            keys["message.timestamp.type"] = "LogAppendTime"
        if self.unpacked:
            keys["compression.type"] = "uncompressed"
        return keys

    @property
    def otherwise(self) -> dict[str, str]:
        """What serves as well, for brokers of a provider that refuses a setting."""
        return {key: value for key, value in PROVIDERS_LIMITS.items() if key in self.configuration}

    def serves(self, key: str, found: str | None) -> bool:
        """Whether a setting is as required; more space or a longer time does no harm."""
        wanted = self.configuration[key]
        if found is None:
            return False
        if key == "max.message.bytes":
            return int(found) >= MAX_MESSAGE_BYTES
        if key in ("retention.ms", "retention.bytes"):
            return int(found) == -1 or int(found) >= int(wanted)
        if key == "segment.bytes":
            return int(found) <= 4 * int(wanted)
        if key == "compression.type":
            return found in (wanted, PROVIDERS_LIMITS[key])
        return found == wanted


def topic_settings(topics: Topics) -> tuple[TopicSettings, ...]:
    """The settings of all topics of a cluster."""
    return (
        TopicSettings(topics.reports, 4, retention_hours=24, stamped_by_broker=True),
        TopicSettings(topics.snapshots, 1, retention_hours=7 * 24, retention_bytes=SNAPSHOTS_BYTES),
        TopicSettings(topics.placement, 1, compacted=True),
        TopicSettings(topics.commands, 1, retention_hours=24),
        TopicSettings(topics.acks, 1, retention_hours=24, unpacked=True),
        TopicSettings(topics.handover, 1, retention_hours=24, unpacked=True),
        TopicSettings(topics.journal, 1, compacted=True),
        TopicSettings(topics.intents, 1, compacted=True, unpacked=True),
        TopicSettings(topics.status, 1, compacted=True),
        TopicSettings(topics.events, 1, retention_hours=30 * 24, retention_bytes=EVENTS_BYTES),
        TopicSettings(topics.keys, 1, compacted=True),
    )


def transactional_id(cluster: str, *, acting: bool) -> str:
    """The transactional id under which the acting controller of a cluster publishes; a dry run has another one."""
    return f"trimtab.{cluster}.{'controller' if acting else 'dry-run'}"


def stream_transactional_id(cluster: str) -> str:
    """The transactional id under which the stream of a cluster publishes its snapshots."""
    return f"trimtab.{cluster}.stream"


def keys_transactional_id(cluster: str) -> str:
    """The transactional id under which `trimtab keys` changes the keys of hosts: one change at a time."""
    return f"trimtab.{cluster}.keys"


def controllers_group(cluster: str) -> str:
    """The consumer group in which the acting controllers of a cluster elect their leader."""
    return f"trimtab.{cluster}.controllers"
