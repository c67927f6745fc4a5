"""Finds the key that signed each current placement; once it is no longer trusted, readers refuse the placement."""

from collections.abc import Mapping

from confluent_kafka import Message

from trimtab_controller.kafka.reader import Reading
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.signing.envelope import Envelope, headers_in, signatures_in
from trimtab_protocol.signing.keys import KeyId, TrustedKeys


def placements_signed_by(found: Reading, topic: str, trusted: TrustedKeys) -> Mapping[str, KeyId]:
    """App -> the key that signed its last placement; placements without a trusted signature are left out."""
    placements = found.latest(topic, lambda message: _signer(message, trusted) is not None)
    signers = {(message.key() or b"").decode(errors="replace"): _signer(message, trusted) for message in placements}
    return {app: signer for app, signer in sorted(signers.items()) if signer is not None}


def _signer(message: Message, trusted: TrustedKeys) -> KeyId | None:
    if message.value() is None:
        return None
    try:
        signatures = signatures_in(headers_in(message))
        key, value = message.key() or b"", message.value()
        trusted.check(Envelope(topic=message.topic(), key=key, value=value, signatures=signatures))
    except BadMessage:
        return None
    return KeyId(signatures[0].partition(b":")[0].decode())
