"""Codes of hosts for the controller: they prove what signatures prove, to whom has the controller's private key."""

import base64
from dataclasses import replace

import pytest
from nacl.bindings import crypto_scalarmult
from nacl.signing import SigningKey as NaclKey
from nacl.signing import VerifyKey

from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.host_keys import HostKeys
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.signing.codes import code, is_code, key_of_controller, key_of_host
from trimtab_protocol.signing.envelope import signatures_in
from trimtab_protocol.signing.hosts import MAX_EARLIER, MAX_HEADER_BYTES, HostSigner, Signed, digest_of
from trimtab_protocol.signing.keys import BadKey, PublicKey, SigningKey
from trimtab_protocol.signing.known_hosts import KnownHosts

TOPIC = "trimtab.c.reports"
HOST = HostId("a")
OF_HOST, OF_OTHER, CONTROLLER, NEXT = (SigningKey.generate() for _ in range(4))


def known_to(own: SigningKey | None, *keys: SigningKey) -> KnownHosts:
    known = KnownHosts("c", own)
    raw = tuple(key.public.raw for key in keys or (OF_HOST,))
    known.take(HostKeys(cluster="c", host=HOST, keys=raw, at=1.0, by="ops"))
    return known


def signed(signer: HostSigner, value: bytes) -> Signed:
    return Signed(key=HOST.encode(), digest=digest_of(value), signatures=signatures_in([signer.sign(TOPIC, value)]))


def signer(*trusted: SigningKey, key: SigningKey = OF_HOST) -> HostSigner:
    return HostSigner(key, HOST, lambda: [each.public for each in trusted])


def without_signature(record: Signed) -> Signed:
    """The record with its code, and zeros where the signature was."""
    name, _, rest = record.signatures[0].partition(b":")
    _, _, others = rest.partition(b":")
    return replace(record, signatures=(b":".join((name, base64.b64encode(bytes(64)), others)),))


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
    one = HostSigner(OF_HOST, HOST, lambda: trusted)
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
    known.take(HostKeys(cluster="c", host=HOST, keys=(), at=2.0, by="ops"))
    assert known.fault(TOPIC, good) is Fault.UNKNOWN_KEY


@pytest.mark.parametrize("broken", [b"", b"=", b"no code", b"no base64=\xff", b"," * 100])
def test_where_the_code_is_wrong_the_signature_decides(broken: bytes) -> None:
    name, signature, *_ = signed(signer(), b"1").signatures[0].split(b":")
    own = CONTROLLER.public.id.encode()
    for codes in (broken, own + b"=" + base64.b64encode(bytes(32)), own + b"="):
        header = b":".join((name, signature, b"", codes))
        record = Signed(key=HOST.encode(), digest=digest_of(b"1"), signatures=(header,))
        assert known_to(CONTROLLER).fault(TOPIC, record) is None
        assert known_to(None).fault(TOPIC, record) is None


def test_the_longest_header_is_read() -> None:
    one = signer(CONTROLLER, NEXT)
    records = [signed(one, str(number).encode()) for number in range(MAX_EARLIER + 2)]

    assert len(records[-1].signatures[0]) <= MAX_HEADER_BYTES
    assert known_to(NEXT).fault(TOPIC, without_signature(records[-1])) is None
