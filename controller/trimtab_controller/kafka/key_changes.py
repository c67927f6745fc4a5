"""Changes the keys of hosts on their topic: reads them, signs new records, and writes these; one change at a time."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from trimtab_controller.kafka.connection import Connection, StoppedError, ensure_topics, wait_for_broker
from trimtab_controller.kafka.host_keys import Trust, read_keys
from trimtab_controller.kafka.publisher import Publisher, Record
from trimtab_protocol.messages.host_keys import MAX_KEYS, HostKeys, encode_host_keys
from trimtab_protocol.messages.names import HostId, Topics, keys_transactional_id
from trimtab_protocol.signing.keys import BadKey, KeyId, PublicKey, SigningKey
from trimtab_protocol.signing.known_hosts import KnownHosts

log = logging.getLogger(__name__)

CHANGE_LIMIT_S = 30.0
"""How long the broker may be away during a change."""

Records = Mapping[HostId, HostKeys]
Change = Callable[[Records, float], Sequence[HostKeys]]
"""From what is known of each host, at a time (epoch seconds), the records to write.  Raises BadKey."""


def change_keys(connection: Connection, topics: Topics, key: SigningKey, trust: Trust, change: Change) -> KnownHosts:
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
        log.warning("the keys of %r on the topic do not count: %s", host, error)
    records = change(known.records, time.time())
    if stopping():
        raise StoppedError
    publisher.publish(
        [
            Record(topic=topics.keys, key=record.host.encode(), value=encode_host_keys(record), signed=True)
            for record in records
        ]
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
    return [*_sorted(records.values())]


def _sorted(records: Iterable[HostKeys]) -> list[HostKeys]:
    return sorted(records, key=lambda record: record.host)


def _later(now: float, before: HostKeys | None) -> float:
    """Readers ignore records that are older than the last one."""
    return now if before is None else max(now, before.at + 0.001)
