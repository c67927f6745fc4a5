"""The `[stream]` section of controller.toml, and the other settings that the stream needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from trimtab_process.kafka_section import KafkaSection
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.codec import (
    CONFIGURATION,
    Key,
    Most,
    Name,
    Needed,
    Range,
    Table,
    Text,
    Wire,
    WrittenAs,
    converted,
)
from trimtab_protocol.messages.decode import MAX_NAME, NAME_PATTERN, BadMessage, Fault
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.settings.paths import FilePath
from trimtab_protocol.signing.hosts import HostChecking

MAX_HOSTS = 20_000
"""Maximum number of `expected_hosts`.  They are part of each batch's query; Spark's default memory suffices for twice
as many.
"""


Time = Annotated[float, Range(0.1, 3600.0)]
"""Seconds."""
PATIENCE_MS, PATIENCE_SHARE = 300, 0.03
"""Reports of many hosts come over seconds, and each look costs a batch: so it waits for a share of a long window."""
LEAD, STAND_BY = b"lead", b"stand-by"
"""The lines by which a controller tells its stream whether to publish."""


def _read_hosts(found: tuple[HostId, ...]) -> frozenset[HostId]:
    if not found:
        raise BadMessage(Fault.RANGE, "", [], "at least one host, or no such key")
    return frozenset(found)


def _read_spark(found: Mapping[str, Any]) -> dict[str, str]:
    for key, value in found.items():
        if not key.startswith("spark."):
            raise BadMessage(Fault.RANGE, key, key, "a key that begins with spark.")
        if not isinstance(value, str | int | float):
            raise BadMessage(Fault.TYPE, key, value, "a text, a number, true or false")
    # Spark writes true, not True.
    return {key: value if isinstance(value, str) else str(value).lower() for key, value in found.items()}


Host = Annotated[HostId, Text(MAX_NAME, NAME_PATTERN, "the name of a host")]
Hosts = WrittenAs(Annotated[tuple[Host, ...], Most(MAX_HOSTS)], sorted, _read_hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How reports become snapshots.

    `window_s`: length of a window, a multiple of the agents' interval.  `watermark_s`: how long a window waits for a
    host that does not report.  `expected_hosts`: the only hosts whose reports count; None = all hosts count, and those
    seen in the last windows are awaited.  `checkpoint_dir`: a folder, or a URI that all Spark executors can reach.
    `embedded`: the controller runs the stream as a child process.  `warm_standby`: it does so while it stands by, too,
    and has snapshots as soon as it leads; this takes as much memory and CPU as the leader's stream.  `spark`: any keys
    of Spark's configuration.
    """

    checkpoint_dir: str
    window_s: Time = 10.0
    watermark_s: Time = 5.0
    expected_hosts: Annotated[frozenset[HostId] | None, Hosts] = None
    embedded: bool = True
    warm_standby: bool = True
    spark: Annotated[Mapping[str, str], WrittenAs(Annotated[Mapping[str, Any], Most(1000)], dict, _read_spark)] = field(
        default_factory=dict, repr=False
    )

    @property
    def window_ms(self) -> int:
        """`window_s` in milliseconds."""
        return round(self.window_s * 1000)

    @property
    def patience_ms(self) -> int:
        """How long after the last report of a window is due Spark looks for it, and how often from then on."""
        return max(PATIENCE_MS, round(PATIENCE_SHARE * self.window_ms))

    @property
    def watermark_ms(self) -> int:
        """`watermark_s` in milliseconds."""
        return round(self.watermark_s * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfiguration:
    """The settings that the stream needs to run.

    `host_signatures`: what becomes of reports that their host has not signed; `trust` = file with the controller's
    public keys, which sign those of the hosts; `key` = file with its private key.
    """

    WIRE: ClassVar = Wire(part=True)

    cluster: Annotated[Name, Table("controller")]
    kafka: KafkaSection
    stream: StreamSettings
    host_signatures: Annotated[HostChecking, Table("signing")] = HostChecking.OFF
    trust: Annotated[FilePath | None, Table("signing"), Key("trust_file"), Needed()] = None
    key: Annotated[FilePath | None, Table("signing"), Key("key_file"), Needed()] = None


def load(path: Path) -> StreamConfiguration:
    """Read the stream's settings from controller.toml, and ignore the rest.  Raises BadConfiguration."""
    return read_toml(path, lambda document: converted(document, StreamConfiguration, defaults=CONFIGURATION))
