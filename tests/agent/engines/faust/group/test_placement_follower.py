"""A worker reads a placement in parts: it follows what is whole, and reads again what is not."""

from typing import Any

import pytest

from trimtab_agent.engines.faust.group import placement_follower
from trimtab_agent.engines.faust.group.placement_follower import PlacementFollower
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import records_of
from trimtab_protocol.signing.envelope import Envelope, signatures_in
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

APP, SUMS = AppId("shop"), OperatorId("sums")
KEY = SigningKey.generate()
W0, W1 = WorkerId("w0"), WorkerId("w1")
FIRST = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={SUMS: [(W0,)] * 9}, part_size=3)
SECOND = FIRST.changed(Epoch(1, 2), {KeyGroup(APP, SUMS, 0): (W1,), KeyGroup(APP, SUMS, 4): (W1,)})
THIRD = SECOND.changed(Epoch(1, 3), {KeyGroup(APP, SUMS, 8): (W1,)})

Record = tuple[bytes, bytes | None]


class Reading:
    """A topic of one app, and a worker that reads it."""

    def __init__(self, *records: Record) -> None:
        trust: Any = TrustedKeys((KEY.public,))
        self.shared = PluginState(cluster="c", app=APP, worker=W0, trust=trust)
        self.follower = PlacementFollower(self.shared)
        self.follower.begin()
        self.offset = 0
        self.told = 0
        self.read(*records)

    def read(self, *records: Record, by: SigningKey | None = KEY) -> None:
        for key, value in records:
            envelope = Envelope(topic=self.shared.topics.placement, key=key, value=value or b"")
            signatures = signatures_in([by.sign(envelope)]) if by else ()
            self.told += self.follower.take(self.offset, key, value, signatures)
            self.offset += 1

    def at_end(self) -> bool:
        enough, new = self.follower.at_end()
        self.told += new
        return enough

    @property
    def epoch(self) -> int:
        return self.shared.placement.epoch.number if self.shared.placement else 0


def test_nothing_is_followed_before_the_topic_has_been_read() -> None:
    made = Reading(*records_of(FIRST, None), *records_of(SECOND, FIRST))
    assert (made.epoch, made.told) == (0, 0)
    assert made.at_end()
    assert (made.epoch, made.told, made.shared.placement) == (2, 1, SECOND)

    made.read(*records_of(THIRD, SECOND))
    assert (made.epoch, made.told, made.shared.refused) == (3, 2, {})


def test_a_transaction_that_has_begun_is_waited_for() -> None:
    made = Reading(*records_of(FIRST, None), *records_of(SECOND, FIRST)[:1])
    assert not made.at_end()
    made.read(*records_of(SECOND, FIRST)[1:])
    assert made.at_end()
    assert (made.epoch, made.shared.flaw) == (2, None)


def test_a_placement_that_is_not_whole_is_not_followed_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_follower, "FIRST_REREAD_S", 2.0)
    made = Reading(*records_of(FIRST, None))
    made.at_end()
    made.read(*records_of(SECOND, FIRST)[1:])

    assert made.epoch == 1
    assert made.shared.flaw is not None
    assert made.shared.refused == {Fault.MISSING: 1}
    assert [made.follower.must_read_again(now) for now in (100.0, 101.0, 102.5)] == [False, False, True]

    made.follower.begin()
    made.offset = 0
    made.read(*records_of(FIRST, None), *records_of(SECOND, FIRST)[1:])
    assert not made.follower.must_read_again(110.0), "it is being read"
    assert made.at_end()
    assert made.epoch == 1
    assert [made.follower.must_read_again(now) for now in (110.0, 113.0, 114.5)] == [False, False, True], "more seldom"

    made.follower.begin()
    made.offset = 0
    made.read(*records_of(FIRST, None), *records_of(SECOND, FIRST), *records_of(THIRD, SECOND))
    assert made.at_end()
    assert (made.epoch, made.shared.placement, made.shared.flaw) == (3, THIRD, None)
    assert not made.follower.must_read_again(1000.0)


def test_a_placement_in_one_record_heals_it() -> None:
    made = Reading(*records_of(FIRST, None))
    made.at_end()
    made.read(*records_of(SECOND, FIRST)[1:])
    whole = Placement(cluster="c", app=APP, epoch=Epoch(1, 3), owners=THIRD.owners)
    made.read(*records_of(whole, SECOND))
    assert (made.epoch, made.shared.flaw, made.shared.placement) == (3, None, whole)


def test_an_old_part_written_once_more_is_counted_and_changes_nothing() -> None:
    made = Reading(*records_of(FIRST, None), *records_of(SECOND, FIRST))
    made.at_end()
    with pytest.raises(BadMessage):
        made.read(records_of(FIRST, None)[0])
    made.read(*records_of(THIRD, SECOND))

    assert (made.shared.placement, made.shared.refused) == (THIRD, {Fault.OLD_EPOCH: 1})


@pytest.mark.parametrize("by", [None, SigningKey.generate()])
def test_a_part_that_no_trusted_key_signed_is_refused(by: SigningKey | None) -> None:
    made = Reading(*records_of(FIRST, None))
    made.at_end()
    for record in records_of(SECOND, FIRST):
        with pytest.raises(BadMessage):
            made.read(record, by=by)
    assert (made.shared.placement, made.shared.flaw) == (FIRST, None)
