"""Which of several streams publishes, and that each window is published once and in order."""

from typing import Any

import pyarrow as pa
import pytest

from tests.controller.stream.test_chunks import snapshot as window
from trimtab_controller.stream.outlet import MAX_HELD, Fenced, Outlet, Turns, first_ms
from trimtab_controller.stream.signatures import Refused, SignatureCheck, Verdict
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.signing.hosts import HostChecking, HostSigner, digest_of
from trimtab_protocol.signing.keys import SigningKey
from trimtab_protocol.signing.known_hosts import KnownHosts

WINDOW_MS = 10_000
SILENT_MS = 25_000


class Topic:
    """The ends of the published windows, and who may write."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.writer: object = None


class Client:
    """A stream's connection to the topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.fault: Exception | None = None

    def newest_ms(self) -> int:
        return max(self.topic.ends, default=0)

    def take_over(self) -> None:
        self._fail()
        self.topic.writer = self

    def publish(self, snapshot: Snapshot) -> None:
        self._fail()
        if self.topic.writer is not self:
            raise Fenced("fenced")
        self.topic.ends.append(snapshot.end_ms)

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault


class Stream:
    """An outlet that gets a window every ten seconds."""

    def __init__(self, topic: Topic, *, told: bool = True) -> None:
        self.client = Client(topic)
        self.turns = Turns(told=told, silent_ms=SILENT_MS)
        self.outlet = Outlet(self.client, self.turns)

    def see(self, *numbers: int, delay_ms: int = 500) -> None:
        for number in numbers:
            end_ms = (number + 1) * WINDOW_MS
            self.outlet.add(end_ms + delay_ms, window(end_ms))


def ends(*numbers: int) -> list[int]:
    return [(number + 1) * WINDOW_MS for number in numbers]


def test_a_standby_publishes_what_the_leader_has_not_and_nothing_twice() -> None:
    topic = Topic()
    leader, standby = Stream(topic), Stream(topic)
    leader.turns.lead()
    leader.see(10)
    standby.see(10)
    leader.see(11)
    standby.see(11, 12, 13)
    assert topic.ends == ends(10, 11), "it holds what it has not been told to publish"
    standby.turns.lead()
    assert standby.outlet.is_due
    standby.outlet.flush(ends(14)[0])
    assert topic.ends == ends(10, 11, 12, 13)
    assert not standby.outlet.is_due
    standby.see(14)
    leader.see(12, 13, 14, 15)
    assert topic.ends == ends(10, 11, 12, 13, 14), "who is fenced publishes nothing, whatever it believes"
    standby.see(15)
    assert topic.ends == ends(*range(10, 16))


def test_a_standby_that_lags_behind_does_not_publish_again_what_the_leader_has() -> None:
    topic = Topic()
    leader, standby = Stream(topic), Stream(topic)
    leader.turns.lead()
    leader.see(10, 11, 12)
    standby.turns.lead()
    standby.outlet.flush(ends(13)[0])
    standby.see(11, 12, 13)
    assert topic.ends == ends(10, 11, 12, 13)


def test_who_is_told_to_stand_by_publishes_no_more_and_goes_on_in_its_next_term() -> None:
    topic = Topic()
    stream = Stream(topic)
    stream.turns.lead()
    stream.see(1)
    stream.turns.stand_by()
    stream.see(2, 3)
    assert topic.ends == ends(1)
    stream.turns.lead()
    stream.see(4)
    assert topic.ends == ends(1, 2, 3, 4)


def test_a_standby_holds_no_more_than_the_last_windows() -> None:
    topic = Topic()
    stream = Stream(topic)
    stream.see(*range(100))
    stream.turns.lead()
    stream.see(100)
    assert topic.ends == ends(*range(101 - MAX_HELD, 101))


def test_a_stream_that_nobody_tells_begins_when_no_other_one_publishes() -> None:
    topic = Topic()
    leader, looking_on = Stream(topic), Stream(topic, told=False)
    leader.turns.lead()
    leader.see(1)
    looking_on.see(1, 2)
    assert topic.ends == ends(1), "the last window is not old enough"
    looking_on.see(3, 4)
    assert topic.ends == ends(1, 2, 3, 4)
    leader.see(2, 3, 4)
    assert topic.ends == ends(1, 2, 3, 4), "fenced"
    looking_on.see(5)
    leader.turns.lead()  # its next term
    leader.see(5, 6)
    looking_on.see(6, 7)
    assert topic.ends == ends(1, 2, 3, 4, 5, 6)


def test_who_was_fenced_goes_on_when_the_other_one_is_gone() -> None:
    topic = Topic()
    leader, other = Stream(topic), Stream(topic)
    leader.turns.lead()
    leader.see(1)
    other.turns.lead()
    other.see(1, 2)
    leader.see(2, 3, 4)
    assert topic.ends == ends(1, 2)
    leader.see(5)
    assert topic.ends == ends(1, 2, 3, 4, 5)


def test_a_query_that_failed_begins_again_after_the_last_published_window() -> None:
    topic = Topic()
    stream = Stream(topic)
    stream.turns.lead()
    stream.see(1)
    stream.client.fault = OSError("the broker is away")
    with pytest.raises(OSError, match="away"):
        stream.see(2)
    assert stream.outlet.restart() == ends(1)[0]
    with pytest.raises(OSError, match="away"):
        stream.see(1)
    stream.outlet.restart()
    stream.client.fault = None
    stream.see(1, 2, 3)
    assert topic.ends == ends(1, 2, 3)


def test_a_stream_begins_where_the_last_one_ended_unless_that_is_long_ago() -> None:
    now_ms = 1_000_000
    assert first_ms(now_ms, 960_000, WINDOW_MS) == 950_000
    assert first_ms(now_ms, 940_000, WINDOW_MS) == 930_000
    assert first_ms(now_ms, 930_000, WINDOW_MS) == 970_000
    assert first_ms(now_ms, 0, WINDOW_MS) == 970_000


# ---- which reports of a batch count, by the signatures of their hosts


TOPIC = "trimtab.c.reports"
KEYS = {HostId(name): SigningKey.generate() for name in ("a", "b")}
KNOWN = KnownHosts("c")
for _host, _key in KEYS.items():
    KNOWN.take(HostKeys(cluster="c", host=_host, keys=(_key.public.raw,), at=1.0, by="ops"))

Record = dict[str, Any]


def check(checking: HostChecking = HostChecking.ENFORCE, expected: set[str] | None = None) -> SignatureCheck:
    return SignatureCheck(
        checking, KNOWN, topic=TOPIC, window_ms=WINDOW_MS, remembered_ms=3 * WINDOW_MS, most_reports=3,
        most_bytes=1_000, expected=expected,
    )  # fmt: skip


class Sender:
    """A host that signs, or one that says it is another one."""

    def __init__(self, host: str, by: str | None) -> None:
        self._host = host
        self._signer = None if by is None else HostSigner(KEYS[HostId(by)], HostId(host))

    def send(self, value: bytes, offset: int, at_ms: int = 5_000, size: int = 10) -> Record:
        found = [] if self._signer is None else [self._signer.sign(TOPIC, value)[1]]
        return {
            "key": self._host.encode(), "digest": digest_of(value).hex(), "signatures": found, "arrival_ms": at_ms,
            "size": size, "partition": 1, "offset": offset,
        }  # fmt: skip


SCHEMA = pa.schema(
    [
        ("key", pa.binary()), ("digest", pa.string()), ("signatures", pa.list_(pa.binary())),
        ("arrival_ms", pa.int64()), ("size", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64()),
    ]
)  # fmt: skip


def batch(*records: Record) -> pa.Table:
    return pa.Table.from_pylist(list(records), SCHEMA)


def refused(fault: Fault, *, reports: int = 1, host: str | None = None) -> Refused:
    key = None if host is None else host.encode().hex().upper()
    return Refused(host=host, fault=fault, start_ms=0, reports=reports, last_ms=5_000, key=key)


def test_what_hosts_have_signed_is_used() -> None:
    a, b = Sender("a", "a"), Sender("b", "b")

    assert check().judge(batch(a.send(b"1", 1), b.send(b"1", 2), a.send(b"2", 3))) == Verdict()
    assert check().judge(batch()) == Verdict()


def test_what_another_host_says_in_its_name_is_dropped_and_not_its_own() -> None:
    a, as_a, nobody = Sender("a", "a"), Sender("a", "b"), Sender("a", None)
    records = batch(a.send(b"1", 1), as_a.send(b"x", 2), nobody.send(b"y", 3), a.send(b"2", 4))

    verdict = check().judge(records)

    assert verdict == Verdict(
        # no host: nothing is known of the true one by this, not even that it has sent something
        refused=(refused(Fault.UNKNOWN_KEY), refused(Fault.UNSIGNED)),
        dropped={(1, 2), (1, 3)},
        good={(1, 1), (1, 4)},
        doubted={HostId("a"): "unsigned"},
        claims={(HostId("a"), "unknown_key"): (1, 5_000), (HostId("a"), "unsigned"): (1, 5_000)},
    )
    assert verdict.flooding == frozenset()


def test_while_it_warns_everything_is_used_and_counted() -> None:
    a, as_a, nobody = Sender("a", "a"), Sender("a", "b"), Sender("b", None)
    records = batch(a.send(b"1", 1), as_a.send(b"x", 2), nobody.send(b"y", 3))

    assert check(HostChecking.WARN).judge(records) == Verdict(
        unsigned={"unknown_key": 1, "unsigned": 1},
        doubted={HostId("a"): "unknown_key", HostId("b"): "unsigned"},
    )


def test_a_flood_in_the_name_of_a_host_does_not_silence_it() -> None:
    a, nobody = Sender("a", "a"), Sender("a", None)
    flood = [nobody.send(b"x%d" % number, number) for number in range(100)]

    verdict = check().judge(batch(*flood, a.send(b"1", 200)))
    assert verdict.refused == (refused(Fault.UNSIGNED, reports=100),)
    assert (verdict.flooding, verdict.good) == (frozenset(), {(1, 200)})

    own = check().judge(batch(*(a.send(b"%d" % number, number) for number in range(4))))
    assert own == Verdict(
        refused=(refused(Fault.FLOODING, reports=4, host="a"),), claims={(HostId("a"), "flooding"): (4, 5_000)}
    )
    assert own.flooding == {b"a".hex().upper()}


def test_a_report_that_comes_again_counts_once_in_its_batch_and_in_later_ones() -> None:
    a, judge = Sender("a", "a"), check()
    first = a.send(b"1", 1)

    assert judge.judge(batch(first, {**first, "offset": 2})).dropped == {(1, 2)}
    again = judge.judge(batch({**first, "offset": 3, "partition": 0}, a.send(b"2", 4)))
    assert (again.dropped, again.refused) == ({(0, 3)}, (refused(Fault.REPEATED),))
    assert again.doubted == {}


def test_digests_are_not_remembered_for_ever() -> None:
    a, judge = Sender("a", "a"), check()
    first = a.send(b"1", 1)
    judge.judge(batch(first))

    judge.judge(batch(a.send(b"2", 2, at_ms=5_000 + 3 * WINDOW_MS + 1)))
    assert len(judge._seen) == len(judge._ages) == 1


def test_hosts_that_nobody_expects_are_dropped_unread_in_every_mode() -> None:
    a, b = Sender("a", "a"), Sender("b", "b")

    for checking in (HostChecking.WARN, HostChecking.ENFORCE):
        verdict = check(checking, expected={"a"}).judge(batch(a.send(b"1", 1), b.send(b"1", 2), b.send(b"2", 3)))
        assert verdict == Verdict(
            refused=(refused(Fault.UNKNOWN_HOST, reports=2),), claims={(HostId("b"), "unknown_host"): (2, 5_000)}
        )


@pytest.mark.parametrize("missing", ["key", "digest"])
def test_a_record_without_key_or_value_is_refused(missing: str) -> None:
    record = {**Sender("a", "a").send(b"1", 1), missing: None}

    assert check().judge(batch(record)).dropped == {(1, 1)}
