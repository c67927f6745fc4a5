"""Who speaks for a host: acks, and the keys of hosts, as the controller reads them."""

import pytest

from tests.controller.loop.inbox_records import KEY_PAIR, NOW, STRANGER, TOPICS, TRUSTED, Headers, Record, an_ack
from trimtab_controller.decider.events import HostsRevoked
from trimtab_controller.execution.events import AckSeen
from trimtab_controller.kafka.publisher import Record as Published
from trimtab_controller.kafka.publisher import headers_of
from trimtab_controller.loop.inbox import ACKS_AT_ONCE, Inbox
from trimtab_controller.loop.telemetry import signature_status
from trimtab_protocol.messages.commands import Ack, encode_ack
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.host_keys import REQUEST_HEADER, HostKeys, encode_host_keys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.hosts import HostChecking, HostSigner
from trimtab_protocol.signing.keys import SigningKey


def said(by: SigningKey | None, ack: Ack | None = None, key: bytes = b"h1", more: Headers | None = None) -> Record:
    """An ack as it is found on the topic."""
    value = encode_ack(ack or an_ack())
    headers = [] if by is None else [HostSigner(by, HostId(key.decode())).sign(TOPICS.acks, value)]
    return Record(TOPICS.acks, value, key, [*headers, *(more or [])])


def host_keys(by: SigningKey, *keys: SigningKey, at: float = 1.0, host: str = "h1") -> Record:
    """The keys of a host as they are found on the topic."""
    keys_of = HostKeys(cluster="c", host=HostId(host), keys=tuple(key.public.raw for key in keys), at=at, by="ops")
    wanted = Published(topic=TOPICS.keys, key=host.encode(), value=encode_host_keys(keys_of), signed=True)
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
    found = signature_status(inbox)
    assert found is not None
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
