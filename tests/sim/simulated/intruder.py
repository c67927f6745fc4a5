"""Somebody who can write to the controller's topics, and read them, but has no key that is trusted (any more)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.sim.simulated.broker import Broker, Stored, Unsent
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Command
from trimtab_protocol.messages.names import Epoch, Topics
from trimtab_protocol.messages.placement_parts import decode_record
from trimtab_protocol.signing.envelope import HEADER, Envelope, signatures_in
from trimtab_protocol.signing.keys import SigningKey

Forge = Callable[["Intruder", Stored], Unsent]


class Intruder:
    """`strike` writes one record; what is true in it was read from the topics.  `retired`: keys nobody trusts now."""

    def __init__(self, chance: random.Random, broker: Broker, topics: Topics) -> None:
        self.retired: list[SigningKey] = []
        self._random = chance
        self._broker = broker
        self._topics = (topics.commands, topics.placement)
        self._own = SigningKey.generate()

    def strike(self) -> bool:
        """False: there is nothing yet to make a forgery of."""
        topic = self._random.choice(self._topics)
        true = [record for record in self._broker.read(topic, 0) if record.producer is not None and record.value]
        if not true:
            return False
        forge = self._random.choice(FORGERIES)
        self._broker.store(forge(self, self._random.choice(true)))
        return True

    def signed(self, record: Unsent, key: SigningKey) -> Unsent:
        """The record with this key's signature."""
        envelope = Envelope(topic=record.topic, key=record.key, value=record.value or b"")
        return replace(record, headers=[key.sign(envelope)])

    def unsigned(self, true: Stored) -> Unsent:
        """What nobody has vouched for."""
        return Unsent(topic=true.topic, key=true.key, value=falsified(true))

    def foreign(self, true: Stored) -> Unsent:
        """Signed by a key of the intruder's own."""
        return self.signed(self.unsigned(true), self._own)

    def posing(self, true: Stored) -> Unsent:
        """The same, under the name of the key that is trusted."""
        forged = self.foreign(true)
        [(_, signature)] = forged.headers
        return replace(forged, headers=[(HEADER, key_name(true) + b":" + signature.partition(b":")[2])])

    def known(self, true: Stored) -> Unsent:
        """Signed by a key that was trusted once."""
        return self.signed(self.unsigned(true), self._random.choice(self.retired or [self._own]))

    def altered(self, true: Stored) -> Unsent:
        """A true signature, of something else."""
        return replace(self.unsigned(true), headers=true.headers)

    def moved(self, true: Stored) -> Unsent:
        """A true record under another key."""
        return Unsent(topic=true.topic, key=true.key + b"x", value=true.value, headers=true.headers)

    def doubled(self, true: Stored) -> Unsent:
        """The true signature, and another one."""
        return Unsent(topic=true.topic, key=true.key, value=true.value, headers=[*true.headers, *true.headers])

    def garbled(self, true: Stored) -> Unsent:
        """No signature at all behind the name of a trusted key."""
        return replace(self.unsigned(true), headers=[(HEADER, key_name(true) + b":\xff")])

    def repeated(self, true: Stored) -> Unsent:
        """A true record, once more: its signature is good, its time is over."""
        return Unsent(topic=true.topic, key=true.key, value=true.value, headers=true.headers)


FORGERIES: Sequence[Forge] = (
    Intruder.unsigned,
    Intruder.foreign,
    Intruder.posing,
    Intruder.known,
    Intruder.altered,
    Intruder.moved,
    Intruder.doubled,
    Intruder.garbled,
    Intruder.repeated,
)


def falsified(true: Stored) -> bytes:
    """The record's value as the intruder wants it: of an epoch that nobody has reached."""
    assert true.value is not None
    if true.topic.endswith(".placement"):
        record = decode_record(true.key, true.value)
        return encoded(replace(record, epoch=later(record.epoch)))
    command: Command = decoded(true.value, Command)
    until = true.at + 3600.0
    return encoded(replace(command, epoch=later(command.epoch), issued_at=true.at, deadline=until))


def later(epoch: Epoch) -> Epoch:
    """Newer than whatever the controllers will give out."""
    return Epoch(epoch.generation + 1_000, epoch.number)


def key_name(true: Stored) -> bytes:
    """The id of the key that signed it."""
    return signatures_in(true.headers)[0].partition(b":")[0]
