"""Verifies and decodes records of the commands topic that are for this host."""

import hashlib

from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import UNVERIFIED, Ack, Command, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import CommandId, HostId
from trimtab_protocol.signing.envelope import Envelope, SignatureTrust

NOTICE_EVERY_S = 10.0
"""Shortest interval between two notices to the controller about unverified records, per reason.

The agent must not pass on a flood of such records.
"""


class CommandVerifier:
    """Reads commands from records.  `trust` None: signatures are not checked, and every record counts."""

    def __init__(self, *, cluster: str, host: HostId, trust: SignatureTrust | None) -> None:
        self._cluster = cluster
        self._host = host
        self._trust = trust
        self._noticed_at: dict[Refusal, float] = {}

    def read(self, record: Envelope) -> Command | None:
        """The command in a record; None if it is for another host.  Raises BadMessage."""
        if record.key != self._host.encode():
            return None
        if self._trust is not None:
            self._trust.check(record)
        return self._decode(record)

    def notice(self, record: Envelope, fault: Fault, now: float) -> Ack | None:
        """An ack that reports an unverified record to the controller, whose own key may not be trusted here.

        Returns None if no notice is due.  The ack's id is derived from the record, not the id that the record claims:
        otherwise a forged copy would end a genuine command.
        """
        refusal = next((refusal for refusal in UNVERIFIED if refusal.value == fault.value), None)
        if refusal is None or now - self._noticed_at.get(refusal, 0.0) < NOTICE_EVERY_S:
            return None
        try:
            claimed = self._decode(record)
        except BadMessage:
            return None
        self._noticed_at[refusal] = now
        return Ack(
            cluster=self._cluster,
            command_id=CommandId(hashlib.sha256(record.value).hexdigest()[:32]),
            epoch=claimed.epoch,
            kind=claimed.kind,
            host=self._host,
            worker=claimed.worker,
            phase=Phase.REFUSED,
            at=now,
            refusal=refusal,
            detail="a record on the commands topic that no key trusted here has signed",
        )

    def _decode(self, record: Envelope) -> Command:
        command = decoded(record.value, Command)
        if command.cluster != self._cluster:
            raise BadMessage(Fault.CLUSTER, "cluster", command.cluster, self._cluster)
        if command.host != self._host:
            raise BadMessage(Fault.RANGE, "host", command.host, f"{self._host}, as the record's key says")
        return command
