"""Signatures of hosts: who may speak for a host, and what is refused."""

import base64
from dataclasses import replace

import pytest
from nacl.bindings import crypto_scalarmult
from nacl.signing import SigningKey as NaclKey
from nacl.signing import VerifyKey

from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.codes import code, is_code, key_of_controller, key_of_host
from trimtab_protocol.signing.envelope import HEADER, Envelope, signatures_in
from trimtab_protocol.signing.hosts import MAX_EARLIER, MAX_HEADER_BYTES, HostSigner, Signed, digest_of
from trimtab_protocol.signing.keys import BadKey, PublicKey, SigningKey, TrustedKeys
from trimtab_protocol.signing.known_hosts import KnownHosts

TOPIC = "trimtab.c.reports"
A, B = HostId("a"), HostId("b")
KEYS = {A: SigningKey.generate(), B: SigningKey.generate()}


def record(host: HostId, keys: tuple[SigningKey, ...], at: float = 1.0, cluster: str = "c") -> HostKeys:
    return HostKeys(cluster=cluster, host=host, keys=tuple(key.public.raw for key in keys), at=at, by="ops")


@pytest.fixture
def known() -> KnownHosts:
    hosts = KnownHosts("c")
    for host, key in KEYS.items():
        hosts.take(record(host, (key,)))
    return hosts


def signed(signer: HostSigner, value: bytes, key: bytes = b"a", topic: str = TOPIC) -> Signed:
    return Signed(key=key, digest=digest_of(value), signatures=signatures_in([signer.sign(topic, value)]))


def test_the_key_of_another_host_says_nothing_for_this_one(known: KnownHosts) -> None:
    as_a_with_the_key_of_b = signed(HostSigner(KEYS[B], A), b"1")
    of_b = signed(HostSigner(KEYS[B], B), b"1", key=b"b")

    assert known.fault(TOPIC, of_b) is None
    assert known.fault(TOPIC, as_a_with_the_key_of_b) is Fault.UNKNOWN_KEY
    assert known.fault(TOPIC, replace(of_b, key=b"a")) is Fault.UNKNOWN_KEY
    name = KEYS[A].public.id.encode()  # the key of A is named, that of B has signed
    posing = name + as_a_with_the_key_of_b.signatures[0][len(name) :]
    assert known.fault(TOPIC, replace(as_a_with_the_key_of_b, signatures=(posing,))) is Fault.WRONG_SIGNATURE


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"signatures": ()}, Fault.UNSIGNED),
        ({"signatures": (b"", b"")}, Fault.WRONG_SIGNATURE),
        ({"signatures": (b"",)}, Fault.UNKNOWN_KEY),
        ({"signatures": (b"\xff" * 10_000,)}, Fault.WRONG_SIGNATURE),
        ({"signatures": (KEYS[A].public.id.encode() + b":no base64",)}, Fault.WRONG_SIGNATURE),
        ({"signatures": (KEYS[A].public.id.encode() + b":",)}, Fault.WRONG_SIGNATURE),
        ({"signatures": (KEYS[A].public.id.encode() + b":" + base64.b64encode(bytes(63)),)}, Fault.WRONG_SIGNATURE),
        ({"signatures": (KEYS[A].public.id.encode() + b":" + base64.b64encode(bytes(65)),)}, Fault.WRONG_SIGNATURE),
        ({"signatures": (KEYS[A].public.id.encode() + b":" + base64.b64encode(bytes(64)),)}, Fault.WRONG_SIGNATURE),
        ({"digest": digest_of(b"2")}, Fault.WRONG_SIGNATURE),
        ({"key": b"c"}, Fault.UNKNOWN_KEY),
    ],
)
def test_what_is_refused(known: KnownHosts, changes: dict[str, object], fault: Fault) -> None:
    good = signed(HostSigner(KEYS[A], A), b"1")

    assert known.fault(TOPIC, good) is None
    bad = replace(good, **changes)  # type: ignore[arg-type]
    assert known.fault(TOPIC, bad) is fault
    assert known.faults(TOPIC, [bad]) == [fault]
    with pytest.raises(BadMessage) as refused:
        known.check(TOPIC, bad)
    assert refused.value.fault is fault


def test_a_signature_holds_for_its_topic_and_its_earlier_digests(known: KnownHosts) -> None:
    signer = HostSigner(KEYS[A], A)
    first, second = signed(signer, b"1"), signed(signer, b"2")

    assert known.fault("trimtab.other.reports", first) is Fault.WRONG_SIGNATURE
    assert known.fault("trimtab.c.acks", first) is Fault.WRONG_SIGNATURE
    whole = second.signatures[0]
    assert whole.count(b":") == 2
    without = whole.rpartition(b":")[0]
    assert known.fault(TOPIC, replace(second, signatures=(without,))) is Fault.WRONG_SIGNATURE


def test_of_many_records_the_newest_vouches_for_those_before_it(known: KnownHosts) -> None:
    signer = HostSigner(KEYS[A], A)
    values = [str(number).encode() for number in range(MAX_EARLIER + 1)]
    records = [signed(signer, value) for value in values]
    bare = [replace(row, signatures=()) for row in records[:-1]]

    assert known.faults(TOPIC, [*bare, records[-1]]) == [None] * len(records)
    forged = replace(records[0], digest=digest_of(b"forged"))
    of_b = replace(records[0], key=b"b")  # what A vouches for counts for A alone
    assert known.faults(TOPIC, [forged, of_b, records[-1]]) == [Fault.WRONG_SIGNATURE, Fault.UNKNOWN_KEY, None]


def test_no_signature_vouches_for_a_record_whose_value_was_not_read(known: KnownHosts) -> None:
    signer = HostSigner(KEYS[A], A)
    unread = replace(signed(signer, b"1"), digest=b"", signatures=())

    assert known.faults(TOPIC, [unread, signed(signer, b"2")]) == [Fault.UNSIGNED, None]


def test_a_header_that_is_not_valid_vouches_for_nothing(known: KnownHosts) -> None:
    signer = HostSigner(KEYS[A], A)
    first, second = signed(signer, b"1"), signed(signer, b"2")
    broken = replace(second, digest=digest_of(b"other"))

    unsigned = replace(first, signatures=())
    assert known.faults(TOPIC, [unsigned, broken]) == [Fault.UNSIGNED, Fault.WRONG_SIGNATURE]


def test_revoking_and_changing_a_key(known: KnownHosts) -> None:
    fresh = SigningKey.generate()
    old, new = signed(HostSigner(KEYS[A], A), b"1"), signed(HostSigner(fresh, A), b"1")

    assert known.take(record(A, (fresh, KEYS[A]), at=2.0))
    assert (known.fault(TOPIC, old), known.fault(TOPIC, new)) == (None, None)
    assert known.take(record(A, (fresh,), at=3.0))
    assert (known.fault(TOPIC, old), known.fault(TOPIC, new)) == (Fault.UNKNOWN_KEY, None)
    assert known.take(record(A, (), at=4.0))
    assert (known.fault(TOPIC, old), known.fault(TOPIC, new)) == (Fault.UNKNOWN_KEY, Fault.UNKNOWN_KEY)
    assert known.enrolled == {B}
    assert not known.take(record(A, (KEYS[A],), at=1.0))  # an old record that comes again
    assert known.fault(TOPIC, old) is Fault.UNKNOWN_KEY


def test_keys_of_another_cluster_are_refused(known: KnownHosts) -> None:
    with pytest.raises(BadMessage) as refused:
        known.take(record(A, (KEYS[B],), at=9.0, cluster="other"))

    assert refused.value.fault is Fault.CLUSTER
    assert known.fault(TOPIC, signed(HostSigner(KEYS[A], A), b"1")) is None


def test_a_host_cannot_sign_commands() -> None:
    envelope = Envelope(topic="trimtab.c.commands", key=b"a", value=b"{}")
    header = HostSigner(KEYS[A], A).sign(envelope.topic, envelope.value)

    assert header[0] == HEADER
    with pytest.raises(BadMessage):
        TrustedKeys((KEYS[A].public,)).check(replace(envelope, signatures=(header[1],)))


# --- Codes of hosts for the controller: they prove what signatures prove, to whom has the controller's private key


OF_HOST, OF_OTHER = KEYS[A], SigningKey.generate()
CONTROLLER, NEXT = SigningKey.generate(), SigningKey.generate()


def known_to(own: SigningKey | None, *keys: SigningKey) -> KnownHosts:
    known = KnownHosts("c", own)
    known.take(record(A, keys or (OF_HOST,)))
    return known


def signer(*trusted: SigningKey, key: SigningKey = OF_HOST) -> HostSigner:
    return HostSigner(key, A, lambda: [each.public for each in trusted])


def without_signature(of: Signed) -> Signed:
    """The record with its code, and zeros where the signature was."""
    name, _, rest = of.signatures[0].partition(b":")
    _, _, others = rest.partition(b":")
    return replace(of, signatures=(b":".join((name, base64.b64encode(bytes(64)), others)),))


def test_both_sides_share_a_key_that_libsodium_computes_too() -> None:
    seed = OF_HOST._key.private_bytes_raw()
    theirs = crypto_scalarmult(
        NaclKey(seed).to_curve25519_private_key().encode(),
        VerifyKey(CONTROLLER.public.raw).to_curve25519_public_key().encode(),
    )
    assert OF_HOST.agreed(CONTROLLER.public) == CONTROLLER.agreed(OF_HOST.public) == theirs

    shared = key_of_host(OF_HOST, CONTROLLER.public)
    assert shared == key_of_controller(CONTROLLER, OF_HOST.public)
    others = [
        key_of_host(OF_OTHER, CONTROLLER.public),
        key_of_host(OF_HOST, NEXT.public),
        key_of_host(CONTROLLER, OF_HOST.public),  # the roles are part of it
        theirs,
    ]
    assert shared not in others
    assert is_code(code(shared, b"1"), shared, b"1")
    assert not is_code(code(shared, b"1"), shared, b"2")


@pytest.mark.parametrize("y", [0, 1, 2**255 - 20, 2**255 - 18])
def test_a_key_of_low_order_yields_no_secret(y: int) -> None:
    with pytest.raises(BadKey, match="no shared secret"):
        CONTROLLER.agreed(PublicKey(y.to_bytes(32, "little")))


def test_who_has_the_controllers_key_checks_the_code_alone() -> None:
    record = without_signature(signed(signer(CONTROLLER), b"1"))

    assert known_to(CONTROLLER).fault(TOPIC, record) is None
    for reader in (None, NEXT):  # others check the signature
        assert known_to(reader).fault(TOPIC, record) is Fault.WRONG_SIGNATURE


def test_while_the_controllers_key_changes_there_is_a_code_for_each() -> None:
    record = without_signature(signed(signer(CONTROLLER, NEXT), b"1"))

    assert known_to(CONTROLLER).fault(TOPIC, record) is None
    assert known_to(NEXT).fault(TOPIC, record) is None


def test_the_keys_that_the_host_trusts_are_followed() -> None:
    trusted = [CONTROLLER.public]
    one = HostSigner(OF_HOST, A, lambda: trusted)
    before = without_signature(signed(one, b"1"))
    trusted[:] = [NEXT.public]
    after = without_signature(signed(one, b"2"))

    faults = [known_to(NEXT).fault(TOPIC, record) for record in (before, after)]
    assert faults == [Fault.WRONG_SIGNATURE, None]


def test_a_code_holds_for_its_topic_host_value_and_earlier_digests() -> None:
    one, known = signer(CONTROLLER), known_to(CONTROLLER)
    first, second = without_signature(signed(one, b"1")), without_signature(signed(one, b"2"))

    assert known.faults(TOPIC, [replace(first, signatures=()), second]) == [None, None]
    assert known.fault("trimtab.c.acks", second) is Fault.WRONG_SIGNATURE
    assert known.fault(TOPIC, replace(second, digest=digest_of(b"3"))) is Fault.WRONG_SIGNATURE
    name, zeros, earlier, codes = second.signatures[0].split(b":")
    other = base64.b64encode(digest_of(b"other"))
    assert earlier != other
    assert known.fault(TOPIC, replace(second, signatures=(b":".join((name, zeros, other, codes)),))) is (
        Fault.WRONG_SIGNATURE
    )


def test_the_code_of_another_host_or_of_a_revoked_key_says_nothing() -> None:
    by_other = without_signature(signed(signer(CONTROLLER, key=OF_OTHER), b"1"))
    known = known_to(CONTROLLER)

    assert known.fault(TOPIC, by_other) is Fault.UNKNOWN_KEY
    name = OF_HOST.public.id.encode()
    posing = name + by_other.signatures[0][len(name) :]
    assert known.fault(TOPIC, replace(by_other, signatures=(posing,))) is Fault.WRONG_SIGNATURE
    good = signed(signer(CONTROLLER), b"1")
    assert known.fault(TOPIC, good) is None
    known.take(record(A, (), at=2.0))
    assert known.fault(TOPIC, good) is Fault.UNKNOWN_KEY


@pytest.mark.parametrize("broken", [b"", b"=", b"no code", b"no base64=\xff", b"," * 100])
def test_where_the_code_is_wrong_the_signature_decides(broken: bytes) -> None:
    name, signature, *_ = signed(signer(), b"1").signatures[0].split(b":")
    own = CONTROLLER.public.id.encode()
    for codes in (broken, own + b"=" + base64.b64encode(bytes(32)), own + b"="):
        header = b":".join((name, signature, b"", codes))
        record = Signed(key=b"a", digest=digest_of(b"1"), signatures=(header,))
        assert known_to(CONTROLLER).fault(TOPIC, record) is None
        assert known_to(None).fault(TOPIC, record) is None


def test_the_longest_header_is_read() -> None:
    one = signer(CONTROLLER, NEXT)
    records = [signed(one, str(number).encode()) for number in range(MAX_EARLIER + 2)]

    assert len(records[-1].signatures[0]) <= MAX_HEADER_BYTES
    assert known_to(NEXT).fault(TOPIC, without_signature(records[-1])) is None
