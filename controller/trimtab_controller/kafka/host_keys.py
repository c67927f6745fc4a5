"""The topic with the public keys of the hosts: reading it, following it while its records change, and changing it.

A change reads the records, signs new ones, and writes these; one change runs at a time.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaException, Message

from trimtab_controller.kafka.connection import Connection, StoppedError, ensure_topics, wait_for_broker
from trimtab_controller.kafka.follower import Follower
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_controller.kafka.reader import drain, envelope_of, reading, starts
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.host_keys import MAX_KEYS, HostKeys, decode_host_keys
from trimtab_protocol.messages.names import HostId, Topics, keys_transactional_id
from trimtab_protocol.signing.envelope import SignatureTrust
from trimtab_protocol.signing.keys import BadKey, KeyId, PublicKey, SigningKey
from trimtab_protocol.signing.known_hosts import MAX_HOSTS, KnownHosts

log = logging.getLogger(__name__)


def take_keys(known: KnownHosts, trust: SignatureTrust, message: Message) -> None:
    """Note the keys of a host.  Raises BadMessage, also unless the controller's key has signed the record."""
    if message.value() is None:
        return  # nobody writes tombstones: a host is revoked by a record without keys, which can be signed
    trust.check(envelope_of(message))
    known.take(decode_host_keys(message.key() or b"", message.value()))


def take_all(known: KnownHosts, trust: SignatureTrust, messages: Iterable[Message]) -> dict[bytes, BadMessage]:
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


def read_keys(
    connection: Connection, topics: Topics, trust: SignatureTrust
) -> tuple[KnownHosts, dict[bytes, BadMessage]]:
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

    def __init__(self, connection: Connection, topics: Topics, trust: SignatureTrust, own: SigningKey | None) -> None:
        """Read the topic.  Raises ReadError, KafkaException."""
        self.known = KnownHosts(topics.cluster, own)
        self._trust = trust
        self._refused: dict[bytes, Message] = {}
        with reading(connection, "host-keys") as consumer:
            found = drain(consumer, starts(consumer, [topics.keys]))
        for message in found.messages:
            self._take(message, told=False)
        for key in self._refused:
            log.warning("ignoring the keys of host %r: no trusted key has signed them", key)
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


# --- changes ----------------------------------------------------------------------------------------------------------


CHANGE_LIMIT_S = 30.0
"""How long the broker may be away during a change."""

Records = Mapping[HostId, HostKeys]
Change = Callable[[Records, float], Sequence[HostKeys]]
"""From what is known of each host, at a time (epoch seconds), the records to write.  Raises BadKey."""


def change_keys(
    connection: Connection, topics: Topics, key: SigningKey, trust: SignatureTrust, change: Change
) -> KnownHosts:
    """Carry out a change; the keys after it.

    Another change that runs meanwhile is fenced by the broker.  Raises BadKey, ReadError, MissingTopicsError,
    FencedError, KafkaException, and StoppedError when the broker does not answer in time.
    """
    deadline = time.monotonic() + CHANGE_LIMIT_S

    def stopping() -> bool:
        return time.monotonic() > deadline

    admin = wait_for_broker(connection, "trimtab-keys-admin", stopping)
    ensure_topics(admin, topics, host_keys=True)
    publisher = Publisher(connection, keys_transactional_id(topics.cluster), stopping, key)
    known, refused = read_keys(connection, topics, trust)
    for host, error in refused.items():
        log.warning("ignoring the keys of %r on the topic: %s", host, error)
    records = change(known.records, time.time())
    if stopping():
        raise StoppedError
    publisher.publish(
        [Record(topic=topics.keys, key=record.host.encode(), value=encoded(record), signed=True) for record in records]
    )
    for record in records:
        known.take(record)
    return known


def approving(cluster: str, host: HostId, key: PublicKey, by: str) -> Change:
    """The key becomes one of the host; the newest one before it still counts."""

    def change(records: Records, now: float) -> Sequence[HostKeys]:
        for other in records.values():
            if other.host != host and key.raw in other.keys:
                raise BadKey(f"found key {key.id} approved for host {other.host}, expected a key of {host} alone")
        before = records.get(host)
        kept = [raw for raw in before.keys if raw != key.raw] if before is not None else []
        keys = (key.raw, *kept)[:MAX_KEYS]
        return [HostKeys(cluster=cluster, host=host, keys=keys, at=_later(now, before), by=by)]

    return change


def revoking(cluster: str, host: HostId, key: KeyId | None, by: str) -> Change:
    """One key of the host counts no more; None: none does."""

    def change(records: Records, now: float) -> Sequence[HostKeys]:
        before = records.get(host)
        ids = [PublicKey(raw).id for raw in before.keys] if before is not None else []
        if key is not None and key not in ids:
            raise BadKey(f"host {host} has the keys {', '.join(ids) or 'none'}, expected {key} among them")
        kept = [] if before is None or key is None else [raw for raw in before.keys if PublicKey(raw).id != key]
        return [HostKeys(cluster=cluster, host=host, keys=tuple(kept), at=_later(now, before), by=by)]

    return change


def sign_again(records: Records, _now: float) -> Sequence[HostKeys]:
    """All records as they are: the controller's present key signs them."""
    return sorted(records.values(), key=lambda record: record.host)


def _later(now: float, before: HostKeys | None) -> float:
    """Readers ignore records that are older than the last one."""
    return now if before is None else max(now, before.at + 0.001)
