"""Puts the placements of all apps together from the records of their topic, and finds out which keys signed them.

Once one of these keys is no longer trusted, readers refuse the placement.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import Message

from trimtab_controller.kafka.reader import Reading, envelope_of
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_log import PlacementLog
from trimtab_protocol.messages.placement_parts import app_in, decode_record, is_part, part_key
from trimtab_protocol.signing.envelope import headers_in, signatures_in
from trimtab_protocol.signing.keys import KeyId, TrustedKeys


class PublishedPlacements:
    """The records of one cluster that were read so far.  The caller has checked their signatures."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._logs: defaultdict[str, PlacementLog] = defaultdict(PlacementLog)
        self._signers: dict[bytes, tuple[Epoch, KeyId | None]] = {}
        self._flaws: dict[bytes, str] = {}

    def take(self, message: Message) -> None:
        """Note a record.  Raises BadMessage; if it cannot be read, the placement of its app is in doubt."""
        key = message.key() or b""
        self._flaws.pop(key, None)
        if message.value() is None:
            if not is_part(key):
                self._logs.pop(app_in(key), None)
            return
        try:
            record = decode_record(key, message.value())
        except BadMessage as error:
            self._flaws[key] = f"the placement at offset {message.offset()} cannot be read: {error}"
            raise
        if record.cluster != self._cluster:
            raise BadMessage(Fault.CLUSTER, "cluster", record.cluster, self._cluster)
        self._logs[record.app].take(record)
        if record.epoch >= self._signers.get(key, (NO_EPOCH, None))[0]:  # among equal ones the later was signed again
            signatures = signatures_in(headers_in(message))
            signer = KeyId(signatures[0].partition(b":")[0].decode("latin-1")) if signatures else None
            self._signers[key] = record.epoch, signer

    def follow(self, message: Message) -> Placement | None:
        """Note a record; the placement that it completes, if it is newer than all before.  Raises BadMessage."""
        app = app_in(message.key())
        before = self._logs[app].epoch
        self.take(message)
        if not is_part(message.key()):
            self._logs[app].settle()
        return self._logs[app].newest if self._logs[app].epoch > before else None

    def newest(self) -> list[Placement]:
        """The newest placement of each app, revoking ones included; without those that are in doubt."""
        found = [log.settle() or log.newest for app, log in sorted(self._logs.items())]
        doubtful = {app_in(key) for key in self._flaws}
        return [each for each in found if each is not None and each.app not in doubtful and self._is_last(each)]

    def _is_last(self, placement: Placement) -> bool:
        log = self._logs[placement.app]
        return log.announced == placement.epoch and not log.in_transaction

    @property
    def epoch(self) -> Epoch:
        """The highest epoch of all records that were read."""
        return max((log.highest for log in self._logs.values()), default=NO_EPOCH)

    @property
    def flaw(self) -> str | None:
        """Why the placement of an app is in doubt; None if all are whole."""
        if self._flaws:
            return next(iter(self._flaws.values()))
        for app, log in sorted(self._logs.items()):
            log.settle()
            if log.flaw is not None:
                return f"{log.flaw} (app {app})"
            if log.in_transaction or (log.newest is None and log.announced == NO_EPOCH):
                return f"parts of a placement of app {app} have no head"
        return None

    def signers(self, placement: Placement) -> frozenset[KeyId | None]:
        """The keys that signed the records of a placement; None stands for a record without a signature."""
        keys = [placement.app.encode()]
        if placement.part_size is not None:
            keys += [
                part_key(placement.app, operator, part)
                for operator, table in placement.owners.items()
                for part in range(len(table.parts))
            ]
        return frozenset(self._signers[key][1] for key in keys)


def placements_signed_by(found: Reading, topics: Topics, trusted: TrustedKeys) -> Mapping[str, frozenset[KeyId]]:
    """App -> the keys that signed its placement; placements without a trusted signature are left out."""
    placements = PublishedPlacements(topics.cluster)
    for message in found.messages:
        if message.topic() == topics.placement and _is_trusted(message, trusted):
            with suppress(BadMessage):  # a controller that reads it holds, and says so
                placements.take(message)
    signers = {placement.app: placements.signers(placement) for placement in placements.newest()}
    return {app: frozenset(key for key in keys if key is not None) for app, keys in signers.items()}


def _is_trusted(message: Message, trusted: TrustedKeys) -> bool:
    if message.value() is None:
        return False
    try:
        trusted.check(envelope_of(message))
    except BadMessage:
        return False
    return True
