"""The `[stream]` section of controller.toml, and the other settings that the stream needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from trimtab_process.private_files import read_private
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.codec import Range, section
from trimtab_protocol.messages.decode import NAME_PATTERN, BadMessage, Fault, Fields
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.settings.kafka import KafkaSettings, read_kafka
from trimtab_protocol.settings.paths import read_path
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
    expected_hosts: frozenset[HostId] | None = None
    embedded: bool = True
    warm_standby: bool = True
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spark", MappingProxyType(dict(self.spark)))

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

    cluster: str
    kafka: KafkaSettings
    stream: StreamSettings
    host_signatures: HostChecking = HostChecking.OFF
    trust: Path | None = None
    key: Path | None = None


def load(path: Path) -> StreamConfiguration:
    """Read the stream's settings from controller.toml, and ignore the rest.  Raises BadConfiguration."""
    return read_toml(path, _decode)


def _decode(document: Mapping[str, Any]) -> StreamConfiguration:
    fields = Fields(document, "")
    checking, trust, key = HostChecking.OFF, None, None
    if fields.has("signing"):
        signing = fields.fields("signing")
        checking, trust = read_checking(signing), read_path(signing, "trust_file")
        key = read_path(signing, "key_file")
    return StreamConfiguration(
        cluster=fields.fields("controller").name("cluster"),
        kafka=read_kafka(fields.fields("kafka"), read_private),
        stream=read_stream_settings(document.get("stream", {}), "stream"),
        host_signatures=checking,
        trust=trust,
        key=key,
    )


def read_checking(signing: Fields) -> HostChecking:
    """The key `host_signatures` of [signing].  Raises BadMessage."""
    found = signing.optional("host_signatures", lambda name: signing.choice(name, HostChecking))
    return HostChecking.OFF if found is None else found


def read_stream_settings(document: Mapping[str, Any], path: str) -> StreamSettings:
    """Read the settings from a parsed section; `path` is its name in error messages.  Raises BadMessage."""
    fields = Fields(document, path)
    settings = StreamSettings(
        checkpoint_dir=fields.text("checkpoint_dir"),
        expected_hosts=fields.optional("expected_hosts", lambda name: _read_hosts(fields, name)),
        spark=fields.optional("spark", lambda name: _read_spark(fields, name)) or {},
    )
    return section(settings, fields)


def _read_hosts(fields: Fields, name: str) -> frozenset[HostId]:
    hosts = []
    for path, value in fields.items(name, limit=MAX_HOSTS):
        if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
            raise BadMessage(Fault.RANGE, path, value, "the name of a host")
        hosts.append(HostId(value))
    if not hosts:
        raise BadMessage(Fault.RANGE, fields.at(name), [], "at least one host, or no such key")
    return frozenset(hosts)


def _read_spark(fields: Fields, name: str) -> dict[str, str]:
    keys = {}
    for key, path, value in fields.members(name, limit=1000):
        if not key.startswith("spark."):
            raise BadMessage(Fault.RANGE, path, key, "a key that begins with spark.")
        if not isinstance(value, str | int | float):
            raise BadMessage(Fault.TYPE, path, value, "a text, a number, true or false")
        # Spark writes true, not True.
        keys[key] = value if isinstance(value, str) else str(value).lower()
    return keys
