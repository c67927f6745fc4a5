"""Reads console.toml strictly into frozen values; an error names file, key, found value and expected value."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab_process.private_files import read_private
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.decode import NAME_PATTERN, BadMessage, Fault, Fields
from trimtab_protocol.settings.kafka import KafkaSettings, read_kafka
from trimtab_protocol.settings.listen import Listen
from trimtab_protocol.settings.paths import read_path

LISTEN = Listen(address="127.0.0.1", port=8750)
MAX_HOSTS = 20
"""Names under which browsers may ask for the console."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleTls:
    """PEM files; the certificate with its chain, the key not encrypted."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfiguration:
    """The configuration of the console.

    `hosts`: names, besides those of the loopback, that a request's Host header may have.  `trust_file`: the keys that
    may sign placements; None: they are not verified.  `tokens`: who may use the console; None: everybody who reaches it
    may read.
    """

    cluster: str
    kafka: KafkaSettings
    listen: Listen = LISTEN
    hosts: tuple[str, ...] = ()
    trust_file: Path | None = None
    tokens: Path | None = None
    tls: ConsoleTls | None = None

    @property
    def address(self) -> str:
        """Where browsers find the console."""
        return f"{'https' if self.tls else 'http'}://{literal(self.listen.address)}:{self.listen.port}/"


def literal(address: str) -> str:
    """An IP address as URLs and Host headers have it."""
    return f"[{address}]" if ":" in address else address


def load(path: Path) -> ConsoleConfiguration:
    """Read a configuration file; raises BadConfiguration."""
    return read_toml(path, decode)


def decode(document: Mapping[str, Any]) -> ConsoleConfiguration:
    """Decode a parsed document; raises BadMessage."""
    fields = Fields(dict(document), "")
    console = fields.fields("console")
    port = console.optional("port", lambda name: console.integer(name, low=1, high=65_535))
    tls = fields.optional("tls", lambda name: _read_tls(fields.fields(name)))
    tokens = fields.optional("access", lambda name: _read_access(fields.fields(name)))
    is_open = tls is None or tokens is None
    address = console.optional("address", lambda name: _read_address(console, name, loopback_only=is_open))
    configuration = ConsoleConfiguration(
        cluster=console.name("cluster"),
        kafka=read_kafka(fields.fields("kafka"), read_private),
        listen=Listen(address=address or LISTEN.address, port=port or LISTEN.port),
        hosts=_read_hosts(console, "hosts") if console.has("hosts") else (),
        trust_file=console.optional("trust_file", lambda name: read_path(console, name)),
        tokens=tokens,
        tls=tls,
    )
    console.done()
    fields.done()
    return configuration


def _read_access(fields: Fields) -> Path:
    path = read_path(fields, "tokens")
    fields.done()
    return path


def _read_tls(fields: Fields) -> ConsoleTls:
    tls = ConsoleTls(certificate=read_path(fields, "certificate"), key=read_path(fields, "key"))
    fields.done()
    return tls


def _read_address(fields: Fields, name: str, *, loopback_only: bool) -> str:
    """An address of this machine; one that others reach needs TLS and tokens."""
    text = fields.text(name, limit=100)
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        found = None
    if found is None:
        raise BadMessage(Fault.RANGE, fields.at(name), text, "an IP address")
    if loopback_only and not found.is_loopback:
        expected = "127.0.0.1 or ::1: any other address needs [tls] and [access]"
        raise BadMessage(Fault.RANGE, fields.at(name), text, expected)
    return text


def _read_hosts(fields: Fields, name: str) -> tuple[str, ...]:
    hosts = []
    for path, value in fields.items(name, limit=MAX_HOSTS):
        if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
            raise BadMessage(Fault.RANGE, path, value, "the name of a host, without a port")
        hosts.append(value.lower())
    return tuple(hosts)
