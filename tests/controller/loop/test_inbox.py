"""The inbox: which records of Kafka become events, and which are refused and counted."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.controller.loop.inbox_records import (
    APP,
    KEY_PAIR,
    NOW,
    OLD_KEY,
    PLACED,
    STRANGER,
    TOPICS,
    TRUSTED,
    Garbled,
    a_window,
    an_ack,
    placed,
)
from tests.kafka_record import Headers, Record
from tests.narrow import not_none
from trimtab_controller.decider.events import CLOCK_TOLERANCE_S, HostsRevoked, IntentsChanged
from trimtab_controller.execution.events import AckSeen
from trimtab_controller.execution.journal import KEY
from trimtab_controller.execution.state import Execution
from trimtab_controller.kafka.chunks import split
from trimtab_controller.kafka.publisher import Record as Published
from trimtab_controller.kafka.publisher import headers_of
from trimtab_controller.kafka.reader import Reading
from trimtab_controller.loop import inbox as inbox_module
from trimtab_controller.loop.inbox import ACKS_AT_ONCE, Inbox
from trimtab_controller.loop.recovery import taken_over
from trimtab_controller.loop.telemetry import signature_status
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Phase, Refusal
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.host_keys import REQUEST_HEADER, HostKeys
from trimtab_protocol.messages.intents import Drain, Pause, TakenBack, encode_taken_back
from trimtab_protocol.messages.names import Epoch, HostId, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow
from trimtab_protocol.signing.hosts import HostChecking, HostSigner
from trimtab_protocol.signing.keys import SigningKey


def test_a_host_that_floods_is_not_read_and_the_others_are() -> None:
    now = NOW
    inbox = Inbox(TOPICS, lambda: now)
    inbox.know([HostId("h1"), HostId("h2")])
    flood = Record(TOPICS.acks, b"not even JSON", b"h1")
    calm = Record(TOPICS.acks, encoded(an_ack(host=HostId("h2"))), b"h2")
    for _ in range(ACKS_AT_ONCE + 5):
        assert inbox.take(flood) is None
    assert inbox.rejected == {(TOPICS.acks, Fault.MALFORMED): ACKS_AT_ONCE, (TOPICS.acks, Fault.FLOODING): 5}
    assert isinstance(inbox.take(calm), AckSeen)
    now += 1.0
    assert isinstance(inbox.take(Record(TOPICS.acks, encoded(an_ack()), b"h1")), AckSeen)


def test_hosts_that_nobody_knows_have_one_allowance_together() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    inbox.know([HostId("h1")])
    invented = (HostId(f"x{index}") for index in range(ACKS_AT_ONCE + 5))

    taken = [inbox.take(Record(TOPICS.acks, encoded(an_ack(host=host)), host.encode())) for host in invented]

    assert taken[ACKS_AT_ONCE:] == [None] * 5
    assert inbox.rejected == {(TOPICS.acks, Fault.FLOODING): 5}
    assert isinstance(inbox.take(Record(TOPICS.acks, encoded(an_ack()), b"h1")), AckSeen)


def test_a_snapshot_says_which_hosts_there_are() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    host = HostWindow(host=HostId("h1"), covered_s=1.0, cpu=2.0, cores=4.0, basis=Basis.CONFIG)
    for chunk in split(a_window(NOW, hosts=(host,))):
        inbox.take(Record(TOPICS.snapshots, chunk.payload, b"c", chunk.headers))
    unknown, known = (Record(TOPICS.acks, b"{", key) for key in (b"x", b"h1"))
    for _ in range(ACKS_AT_ONCE + 1):
        inbox.take(unknown)

    inbox.take(known)

    assert inbox.rejected == {(TOPICS.acks, Fault.MALFORMED): ACKS_AT_ONCE + 1, (TOPICS.acks, Fault.FLOODING): 1}


def test_half_a_window_from_the_future_shuts_out_no_window_of_today() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    half, *_ = split(a_window(NOW + CLOCK_TOLERANCE_S + 1), max_chunk_bytes=20)
    [whole] = split(a_window(NOW))

    assert inbox.take(Record(TOPICS.snapshots, half.payload, b"c", half.headers)) is None
    assert inbox.rejected == {(TOPICS.snapshots, Fault.FUTURE): 1}
    assert inbox.take(Record(TOPICS.snapshots, whole.payload, b"c", whole.headers)) is not None


def test_intents_are_bounded_and_those_that_are_there_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MAX_INTENTS", 2)
    inbox = Inbox(TOPICS, lambda: NOW)

    def drained(worker: str, reason: str = "r") -> IntentsChanged | None:
        drain = Drain(worker=WorkerId(worker), by="op", at=NOW, reason=reason)
        event = inbox.take(Record(TOPICS.intents, encoded(drain), drain.key.encode()))
        assert event is None or isinstance(event, IntentsChanged)
        return event

    assert [drained("w1") is None, drained("w2") is None, drained("w3") is None] == [False, False, True]
    assert inbox.rejected == {(TOPICS.intents, Fault.OVERSIZED): 1}
    changed = not_none(drained("w2", "another"))
    assert [intent.reason for intent in changed.intents] == ["r", "another"]


def test_an_intent_is_taken_back_also_if_nobody_can_read_by_whom() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    pause, back = Pause(by="op", at=NOW, reason="r"), TakenBack(by="ann", at=NOW, reason="seen")
    for headers, taken_back in (
        ([encode_taken_back(back)], {"pause": back}),
        ([("trimtab-taken-back", b'{"v":1,"by":""}')], {}),
        (None, {}),
    ):
        inbox.take(Record(TOPICS.intents, encoded(pause), b"pause"))
        found = inbox.take(Record(TOPICS.intents, None, b"pause", headers))
        assert found == IntentsChanged(intents=(), taken_back=taken_back)
    assert inbox.rejected == {(TOPICS.intents, Fault.RANGE): 1}


@pytest.mark.parametrize(
    ("topic", "value", "fault"),
    [
        (TOPICS.acks, b"{", Fault.MALFORMED),
        (TOPICS.acks, None, Fault.MALFORMED),
        (TOPICS.acks, b'{"v":2}', Fault.VERSION),
        (TOPICS.acks, b"x" * (8 * 1024 * 1024 + 1), Fault.OVERSIZED),
        (TOPICS.acks, encoded(an_ack()).replace(b'"at":1000.0', b'"at":NaN'), Fault.RANGE),
        (TOPICS.acks, encoded(an_ack(at=NOW + CLOCK_TOLERANCE_S + 1)), Fault.FUTURE),
        (TOPICS.acks, encoded(an_ack(cluster="d")), Fault.CLUSTER),
        (TOPICS.acks, encoded(an_ack()), Fault.RANGE),  # of host h1, under another key
        (TOPICS.snapshots, b"not a chunk", Fault.MISSING),
        (TOPICS.intents, encoded(Pause(by="op", at=NOW, reason="r")), Fault.RANGE),
        (TOPICS.journal, b"[]", Fault.TYPE),
        (TOPICS.placement, b"{}", Fault.MISSING),
        (
            TOPICS.placement,
            encoded(Placement(cluster="d", app=APP, epoch=Epoch(1, 1), owners={})),
            Fault.CLUSTER,
        ),
    ],
)
def test_what_cannot_be_read_is_counted_and_goes_no_further(topic: str, value: bytes | None, fault: Fault) -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    keys = {TOPICS.journal: KEY, TOPICS.placement: APP.encode()}
    assert inbox.take(Record(topic, value, keys.get(topic, b"k"))) is None
    assert inbox.rejected == Counter({(topic, fault): 1})


def test_a_successor_is_newer_than_anything_published() -> None:
    placement = Placement(cluster="c", app=APP, epoch=Epoch(7, 1), owners={})
    assert taken_over(Execution(generation=3, placements={APP: placement})).generation == 8
    assert taken_over(Execution(generation=9, placements={APP: placement})).generation == 10
    assert taken_over(Execution(generation=0)).generation == 1


def test_only_commands_and_placements_carry_a_signature_and_it_holds() -> None:
    assert headers_of(Published(topic=TOPICS.status, key=b"k", value=b"v"), KEY_PAIR) == []
    assert headers_of(Published(topic=TOPICS.placement, key=b"k", value=None, signed=True), KEY_PAIR) == []
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED)
    assert inbox.take(placed(KEY_PAIR)) == PLACED
    newer = replace(PLACED, epoch=Epoch(1, 2))
    assert inbox.take(placed(OLD_KEY, newer)) == newer
    assert [inbox.take(placed(by)) for by in (None, STRANGER)] == [None, None]
    assert inbox.rejected == Counter({(TOPICS.placement, Fault.UNSIGNED): 1, (TOPICS.placement, Fault.UNKNOWN_KEY): 1})


def test_a_forged_placement_does_not_hide_the_true_one_from_a_successor() -> None:
    forged = replace(PLACED, epoch=Epoch(99, 1), owners={})
    found = Reading(messages=[placed(KEY_PAIR), placed(STRANGER, forged), Record(TOPICS.placement, None, APP.encode())])
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED)

    [latest] = found.latest(TOPICS.placement, inbox.vouches)

    assert decoded(latest.value(), Placement) == PLACED
    assert sum(inbox.rejected.values()) == 2


def test_an_agent_that_does_not_trust_us_is_heard_but_its_word_ends_no_command() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    told = an_ack(phase=Phase.REFUSED, refusal=Refusal.UNKNOWN_KEY)

    assert inbox.take(Record(TOPICS.acks, encoded(told), b"h1")) is None
    assert inbox.rejected == Counter({(TOPICS.commands, Fault.UNKNOWN_KEY): 1})


def test_reports_that_the_stream_refused_are_counted_since_it_was_started() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    for row in (
        a_window(1.0, rejected={Fault.VERSION: 7, "invented": 10**9}),
        a_window(2.0, rejected={Fault.VERSION: 9, Fault.FLOODING: 1}),
    ):
        for chunk in split(row):
            inbox.take(Record(TOPICS.snapshots, chunk.payload, b"c", chunk.headers))

    assert inbox.rejected == Counter({(TOPICS.reports, Fault.VERSION): 9, (TOPICS.reports, Fault.FLOODING): 1})


def test_headers_that_cannot_be_read_are_counted_like_any_other_fault() -> None:
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED)

    assert inbox.take(Garbled(TOPICS.snapshots, b"x")) is None
    assert not inbox.vouches(Garbled(TOPICS.placement, encoded(PLACED), APP.encode()))
    assert inbox.rejected == Counter({(TOPICS.snapshots, Fault.MALFORMED): 1, (TOPICS.placement, Fault.MALFORMED): 1})


# --- inbox host signatures --------------------------------------------------------------------------------------------


def said(by: SigningKey | None, ack: Ack | None = None, key: bytes = b"h1", more: Headers | None = None) -> Record:
    """An ack as it is found on the topic."""
    value = encoded(ack or an_ack())
    headers = [] if by is None else [HostSigner(by, HostId(key.decode())).sign(TOPICS.acks, value)]
    return Record(TOPICS.acks, value, key, [*headers, *(more or [])])


def host_keys(by: SigningKey, *keys: SigningKey, at: float = 1.0, host: str = "h1") -> Record:
    """The keys of a host as they are found on the topic."""
    keys_of = HostKeys(cluster="c", host=HostId(host), keys=tuple(key.public.raw for key in keys), at=at, by="ops")
    wanted = Published(topic=TOPICS.keys, key=host.encode(), value=encoded(keys_of), signed=True)
    return Record(wanted.topic, wanted.value, wanted.key, headers_of(wanted, by))


HOST_KEY, OTHER_HOST = SigningKey.generate(), SigningKey.generate()


def checking_inbox(checking: HostChecking) -> Inbox:
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED, checking=checking)
    inbox.know([HostId("h1")])
    assert inbox.take(host_keys(KEY_PAIR, HOST_KEY)) == HostsRevoked(hosts=frozenset())
    assert inbox.take(host_keys(KEY_PAIR, OTHER_HOST, host="h2")) == HostsRevoked(hosts=frozenset())
    return inbox


def test_an_ack_counts_only_if_its_host_has_signed_it() -> None:
    inbox = checking_inbox(HostChecking.ENFORCE)

    assert inbox.take(said(HOST_KEY)) == AckSeen(ack=an_ack())
    assert [inbox.take(said(by)) for by in (OTHER_HOST, STRANGER, None)] == [None, None, None]
    assert inbox.rejected == {(TOPICS.acks, Fault.UNKNOWN_KEY): 2, (TOPICS.acks, Fault.UNSIGNED): 1}
    assert not inbox.unsigned
    named = [(row.host, row.fault, row.messages, row.at) for row in inbox.refused_hosts.worst]
    assert named == [("h1", "unknown_key", 2, NOW), ("h1", "unsigned", 1, NOW)]
    inbox.take(host_keys(KEY_PAIR, at=2.0))  # revoked
    assert inbox.take(said(HOST_KEY)) is None


def test_while_it_warns_acks_without_a_signature_are_used_and_counted() -> None:
    inbox = checking_inbox(HostChecking.WARN)

    assert [inbox.take(said(by)) for by in (HOST_KEY, OTHER_HOST, None)] == [AckSeen(ack=an_ack())] * 3
    assert inbox.unsigned == {(TOPICS.acks, Fault.UNKNOWN_KEY): 1, (TOPICS.acks, Fault.UNSIGNED): 1}
    assert not inbox.rejected


def test_the_status_names_the_hosts_whose_keys_are_revoked_the_last_ones_first() -> None:
    inbox = checking_inbox(HostChecking.ENFORCE)
    inbox.take(host_keys(KEY_PAIR, at=2.0))
    inbox.take(host_keys(KEY_PAIR, at=3.0, host="h2"))
    inbox.take(host_keys(KEY_PAIR, HOST_KEY, at=3.0, host="h3"))
    found = not_none(signature_status(inbox))
    assert (found.enforced, found.enrolled, found.revoked) == (True, 1, ("h2", "h1"))
    assert signature_status(checking_inbox(HostChecking.OFF)) is None


@pytest.mark.parametrize(
    ("checking", "hosts"), [(HostChecking.ENFORCE, {"h1"}), (HostChecking.WARN, set()), (HostChecking.OFF, set())]
)
def test_the_decider_hears_whose_keys_are_revoked_where_that_is_enforced(
    checking: HostChecking, hosts: set[str]
) -> None:
    inbox = checking_inbox(checking)
    assert inbox.take(host_keys(KEY_PAIR, at=2.0)) == HostsRevoked(hosts=frozenset(map(HostId, hosts)))
    assert inbox.revoked.hosts == hosts, "what a new leader begins with"
    assert inbox.take(host_keys(KEY_PAIR, HOST_KEY, at=3.0)) == HostsRevoked(hosts=frozenset())


def test_a_flood_in_the_name_of_a_host_leaves_it_its_own_acks() -> None:
    inbox = checking_inbox(HostChecking.ENFORCE)
    for _ in range(ACKS_AT_ONCE + 10):
        inbox.take(said(None))

    assert inbox.rejected[TOPICS.acks, Fault.FLOODING] == 10
    assert inbox.take(said(HOST_KEY)) == AckSeen(ack=an_ack())


def test_only_the_controllers_key_says_who_speaks_for_a_host() -> None:
    inbox = checking_inbox(HostChecking.ENFORCE)

    inbox.take(host_keys(STRANGER, STRANGER, at=5.0))
    inbox.take(host_keys(OTHER_HOST, OTHER_HOST, at=5.0))
    assert inbox.rejected == {(TOPICS.keys, Fault.UNKNOWN_KEY): 2}
    assert inbox.take(said(HOST_KEY)) == AckSeen(ack=an_ack())


def test_records_of_a_former_key_of_the_controller_are_made_up_for_by_later_ones() -> None:
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED, checking=HostChecking.ENFORCE)

    records = [host_keys(STRANGER, HOST_KEY), host_keys(STRANGER, OTHER_HOST, host="h2"), host_keys(KEY_PAIR, HOST_KEY)]
    inbox.take_keys(records)  # type: ignore[arg-type]
    assert inbox.known_hosts.enrolled == {"h1"}
    assert inbox.rejected == {(TOPICS.keys, Fault.UNKNOWN_KEY): 1}


def test_a_request_to_be_enrolled_is_no_ack() -> None:
    inbox = checking_inbox(HostChecking.ENFORCE)

    assert inbox.take(said(None, more=[(REQUEST_HEADER, b"ed25519")])) is None
    assert not inbox.rejected
