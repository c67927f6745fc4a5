"""The topic with the public keys of the hosts: reading it, and following it while its records change."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from confluent_kafka import KafkaException, Message

from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.follower import Follower
from trimtab_controller.kafka.reader import drain, reading, starts
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.host_keys import decode_host_keys
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.envelope import Envelope, headers_in, signatures_in
from trimtab_protocol.signing.keys import SigningKey
from trimtab_protocol.signing.known_hosts import MAX_HOSTS, KnownHosts

log = logging.getLogger(__name__)


class Trust(Protocol):
    """The controller's keys."""

    def check(self, envelope: Envelope) -> None:
        """Raises BadMessage unless one of them has signed the record."""


def take_keys(known: KnownHosts, trust: Trust, message: Message) -> None:
    """Note the keys of a host.  Raises BadMessage, also unless the controller's key has signed the record."""
    if message.value() is None:
        return  # nobody writes tombstones: a host is revoked by a record without keys, which can be signed
    key, value = message.key() or b"", message.value()
    signatures = signatures_in(headers_in(message))
    trust.check(Envelope(topic=message.topic(), key=key, value=value, signatures=signatures))
    known.take(decode_host_keys(key, value))


def take_all(known: KnownHosts, trust: Trust, messages: Iterable[Message]) -> dict[bytes, BadMessage]:
    """Note the keys of hosts; why records do not count, by key.

    Until Kafka has compacted the topic, there may be older records by a key of the controller that is trusted no more.
    A later one by a trusted key makes up for them.
    """
    refused: dict[bytes, BadMessage] = {}
    for message in messages:
        key = message.key() or b""
        try:
            take_keys(known, trust, message)
        except BadMessage as error:
            refused[key] = error
        else:
            refused.pop(key, None)
    return refused


def read_keys(connection: Connection, topics: Topics, trust: Trust) -> tuple[KnownHosts, dict[bytes, BadMessage]]:
    """The keys on the topic now, and why records do not count, by key.  Raises ReadError, KafkaException."""
    known = KnownHosts(topics.cluster)
    with reading(connection, "keys") as consumer:
        found = drain(consumer, starts(consumer, [topics.keys]))
    return known, take_all(known, trust, found.messages)


class HostKeysFollower:
    """The keys of the hosts, followed while the stream runs.

    A record whose signature is not trusted is tried again later: the trust file may be copied after the record.
    `own`: the controller's private key, if this process has it.
    """

    def __init__(self, connection: Connection, topics: Topics, trust: Trust, own: SigningKey | None) -> None:
        """Read the topic.  Raises ReadError, KafkaException."""
        self.known = KnownHosts(topics.cluster, own)
        self._trust = trust
        self._refused: dict[bytes, Message] = {}
        with reading(connection, "host-keys") as consumer:
            found = drain(consumer, starts(consumer, [topics.keys]))
        for message in found.messages:
            self._take(message, told=False)
        for key in self._refused:
            log.warning("the keys of host %r do not count: no key that is trusted has signed them", key)
        self._follower = Follower(connection, "host-keys", found.positions(topics.keys))
        log.info("%d hosts have keys", len(self.known.enrolled))

    def refresh(self) -> None:
        """Read what is new; does not wait."""
        for message in [*self._refused.values()]:
            self._take(message)
        while messages := self._follower.consume(1000, 0.0):
            for message in messages:
                if message.error() is None:
                    self._take(message)
                else:
                    log.warning("cannot read the keys of hosts: %s", message.error().str())

    def close(self) -> None:
        """Stop following."""
        with suppress(KafkaException):
            self._follower.close()

    def _take(self, message: Message, *, told: bool = True) -> None:
        key = message.key() or b""
        before = self._refused.pop(key, None)
        try:
            take_keys(self.known, self._trust, message)
        except BadMessage as error:
            if len(self._refused) < MAX_HOSTS:
                self._refused[key] = message
            if told and before is not message:
                log.warning("refused the keys of a host at offset %d: %s: %s", message.offset(), error.fault, error)
