"""Reads console.toml strictly into frozen values; an error names file, key, found value and expected value."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from trimtab_process.kafka_section import KafkaSection
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.codec import CONFIGURATION, Most, Name, Needed, Range, Table, Text, WrittenAs, converted
from trimtab_protocol.messages.decode import MAX_NAME, NAME_PATTERN, BadMessage, Fault
from trimtab_protocol.settings.paths import FilePath

MAX_HOSTS = 20
"""Names under which browsers may ask for the console."""
Console = Table("console")


def _read_address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise BadMessage(Fault.RANGE, "", text, "an IP address") from None
    return text


HostName = Annotated[str, Text(MAX_NAME, NAME_PATTERN, "the name of a host, without a port")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleTls:
    """PEM files; the certificate with its chain, the key not encrypted."""

    certificate: FilePath
    key: FilePath


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfiguration:
    """The configuration of the console.

    `hosts`: names, besides those of the loopback, that a request's Host header may have.  `trust_file`: the keys that
    may sign placements; None: they are not verified.  `tokens`: who may use the console; None: everybody who reaches it
    may read.
    """

    cluster: Annotated[Name, Console]
    kafka: KafkaSection
    address: Annotated[str, WrittenAs(Annotated[str, Text(100)], str, _read_address), Console] = "127.0.0.1"
    """One that others reach needs TLS and tokens."""
    port: Annotated[int, Range(1, 65_535), Console] = 8750
    hosts: Annotated[tuple[Annotated[str, WrittenAs(HostName, str, str.lower)], ...], Most(MAX_HOSTS), Console] = ()
    trust_file: Annotated[FilePath | None, Console] = None
    tokens: Annotated[FilePath | None, Table("access"), Needed()] = None
    tls: ConsoleTls | None = None

    def __post_init__(self) -> None:
        is_open = self.tls is None or self.tokens is None
        if is_open and not ipaddress.ip_address(self.address).is_loopback:
            expected = "127.0.0.1 or ::1: any other address needs [tls] and [access]"
            raise BadMessage(Fault.RANGE, "address", self.address, expected)

    @property
    def url(self) -> str:
        """Where browsers find the console."""
        return f"{'https' if self.tls else 'http'}://{literal(self.address)}:{self.port}/"


def literal(address: str) -> str:
    """An IP address as URLs and Host headers have it."""
    return f"[{address}]" if ":" in address else address


def load(path: Path) -> ConsoleConfiguration:
    """Read a configuration file; raises BadConfiguration."""
    return read_toml(path, decode)


def decode(document: Mapping[str, Any]) -> ConsoleConfiguration:
    """Decode a parsed document; raises BadMessage."""
    return converted(dict(document), ConsoleConfiguration, defaults=CONFIGURATION)
