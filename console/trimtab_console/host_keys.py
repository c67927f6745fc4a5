"""The keys of hosts, and in whose name something came that they have not signed."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from confluent_kafka import Message

from trimtab_controller.kafka.host_keys import take_keys
from trimtab_protocol.console_documents import HostKeyRow, SignaturesDocument
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.status import Status
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import PublicKey, TrustedKeys
from trimtab_protocol.signing.known_hosts import MAX_HOSTS, KnownHosts


class _Anybody:
    """Stands for trusted keys where the console has none."""

    def check(self, envelope: Envelope) -> None:
        """Nothing is refused."""


class KeysOfHosts:
    """What the topic of keys says, and why records do not count."""

    def __init__(self, cluster: str, trusted: TrustedKeys | None) -> None:
        self._known = KnownHosts(cluster)
        self._trust = trusted or _Anybody()
        self._refused: dict[HostId, str] = {}

    def take(self, message: Message) -> None:
        """Note a record."""
        host = HostId((message.key() or b"").decode(errors="replace"))
        try:
            take_keys(self._known, self._trust, message)
        except BadMessage as error:
            if len(self._refused) < MAX_HOSTS:
                self._refused[host] = str(error)
        else:
            self._refused.pop(host, None)

    @property
    def records(self) -> Mapping[HostId, HostKeys]:
        """The keys of each host, as they are now."""
        return MappingProxyType(dict(self._known.records))

    @property
    def refused(self) -> Mapping[HostId, str]:
        """Why the newest record of a host does not count."""
        return MappingProxyType(dict(self._refused))


def key_rows(
    records: Mapping[HostId, HostKeys], refused: Mapping[HostId, str], status: Status | None
) -> list[HostKeyRow]:
    """Each host that has keys, had some, reports, or is named in a report that it has not signed.

    Those of which something is refused come first, then those without a key, then all others, by name.
    """
    doubted = status.signatures.doubted if status is not None and status.signatures is not None else {}
    reporting: Iterable[HostId] = (row.host for row in status.hosts) if status is not None else ()
    rows = [
        _row(host, records.get(host), refused.get(host), doubted.get(host))
        for host in {*records, *refused, *doubted, *reporting}
    ]
    return sorted(rows, key=lambda row: (row.refused is None and row.doubted is None, bool(row.keys), row.host))


def _row(host: HostId, record: HostKeys | None, refused: str | None, doubted: str | None) -> HostKeyRow:
    keys = [PublicKey(raw) for raw in record.keys] if record is not None else []
    return HostKeyRow(
        host=host,
        keys=[key.id for key in keys],
        fingerprints=[key.fingerprint for key in keys],
        since=None if record is None else record.at,
        by=None if record is None else record.by,
        refused=refused,
        doubted=doubted,
    )


def signatures(rows: list[HostKeyRow], status: Status | None, *, verified: bool) -> SignaturesDocument:
    """The sums over these hosts, and what the controller does with what is not signed."""
    told = status.signatures if status is not None else None
    return SignaturesDocument(
        checking=None if told is None else told.checking,
        enrolled=sum(bool(row.keys) for row in rows),
        hosts=len(rows),
        verified=verified,
        unsigned={} if told is None else dict(told.unsigned),
    )
