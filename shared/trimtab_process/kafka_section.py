"""The section [kafka] of a configuration, with the secrets in the files that it names."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from trimtab_process.private_files import read_private
from trimtab_protocol.messages.codec import Wire, WrittenAs
from trimtab_protocol.settings.kafka import KafkaSettings, read_kafka

KafkaSection = Annotated[KafkaSettings, WrittenAs(Any, str, lambda found: read_kafka(found, read_private))]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFile:
    """A configuration of which nothing else is looked at."""

    WIRE: ClassVar = Wire(part=True)

    kafka: KafkaSection
