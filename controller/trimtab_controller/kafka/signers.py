"""Finds the keys that signed the placements; once one of them is no longer trusted, readers refuse the placement."""

from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import Message

from trimtab_controller.kafka.placements import PublishedPlacements
from trimtab_controller.kafka.reader import Reading
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.envelope import Envelope, headers_in, signatures_in
from trimtab_protocol.signing.keys import KeyId, TrustedKeys


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
        signatures = signatures_in(headers_in(message))
        key, value = message.key() or b"", message.value()
        trusted.check(Envelope(topic=message.topic(), key=key, value=value, signatures=signatures))
    except BadMessage:
        return False
    return True
