"""Signatures: what is signed, who is trusted, and everything that is refused."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.signing.envelope import HEADER, Envelope, signatures_in
from trimtab_protocol.signing.keys import BadKey, PublicKey, SigningKey, TrustedKeys, read_trust, write_trust

KEY, NEXT, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys((KEY.public, NEXT.public))
PLAIN = Envelope(topic="trimtab.demo.commands", key=b"h0", value=b'{"v":1}')


def signed(envelope: Envelope = PLAIN, by: SigningKey = KEY) -> Envelope:
    return replace(envelope, signatures=signatures_in([by.sign(envelope)]))


def fault(envelope: Envelope, trusted: TrustedKeys = TRUSTED) -> Fault:
    with pytest.raises(BadMessage) as refused:
        trusted.check(envelope)
    return refused.value.fault


def test_what_a_trusted_key_signed_passes_also_while_keys_change() -> None:
    TRUSTED.check(signed())
    TRUSTED.check(signed(by=NEXT))
    assert KEY.sign(PLAIN) == KEY.sign(PLAIN)


def test_what_is_signed_is_the_purpose_and_each_part_behind_its_length() -> None:
    topic, key, value = ((21).to_bytes(8, "big"), (2).to_bytes(8, "big"), (7).to_bytes(8, "big"))

    assert PLAIN.covered == (
        b"trimtab-signature-v1" + topic + b"trimtab.demo.commands" + key + b"h0" + value + b'{"v":1}'
    )


def test_the_other_headers_of_a_record_do_not_matter() -> None:
    header = KEY.sign(PLAIN)

    assert signatures_in([("trace", b"x"), header, ("empty", None)]) == (header[1],)
    assert signatures_in(None) == ()
    assert signatures_in([(HEADER, None)]) == (b"",)


@pytest.mark.parametrize(
    "changes",
    [
        {"value": b'{"v":2}'},
        {"key": b"h1"},
        {"topic": "trimtab.other.commands"},
        {"topic": "trimtab.demo.placement"},
        {"key": b"h0{", "value": b'"v":1}'},
    ],
)
def test_a_signature_holds_for_its_topic_key_and_value_alone(changes: dict[str, object]) -> None:
    assert fault(replace(signed(), **changes)) is Fault.WRONG_SIGNATURE  # type: ignore[arg-type]


def test_what_nobody_trusted_signed_is_refused_with_its_reason() -> None:
    stranger, (own,) = signed(by=STRANGER), signed().signatures
    assert fault(PLAIN) is Fault.UNSIGNED
    assert fault(stranger) is Fault.UNKNOWN_KEY
    assert fault(signed(by=NEXT), TrustedKeys((KEY.public,))) is Fault.UNKNOWN_KEY
    renamed = KEY.public.id.encode() + stranger.signatures[0][16:]
    for wrong in (renamed, own[:-8], own + b"=", KEY.public.id.encode() + b":", KEY.public.id.encode()):
        assert fault(replace(PLAIN, signatures=(wrong,))) is Fault.WRONG_SIGNATURE
    for nonsense in (b"", b":", b"\xff\xfe", own.upper()):
        assert fault(replace(PLAIN, signatures=(nonsense,))) is Fault.UNKNOWN_KEY
    assert fault(replace(PLAIN, signatures=(own, own))) is Fault.WRONG_SIGNATURE


def test_keys_and_trust_files_come_back_as_they_were() -> None:
    again = SigningKey.from_pem(KEY.pem())

    assert again.public == KEY.public
    assert read_trust(write_trust(TRUSTED.keys)) == TRUSTED
    assert list(TRUSTED.by_id) == [KEY.public.id, NEXT.public.id]


def test_a_private_key_that_calls_itself_one_of_another_kind_is_refused() -> None:
    mistaken = KEY.pem().replace(b"K2Vw", b"K2Vv")  # its bytes are 32, those of an X448 key are 56
    assert mistaken != KEY.pem()
    with pytest.raises(BadKey, match="expected one of Ed25519"):
        SigningKey.from_pem(mistaken)


def test_a_private_key_shows_itself_nowhere() -> None:
    secret = KEY.pem().splitlines()[1].decode()

    with pytest.raises(BadKey) as refused:
        SigningKey.from_pem(KEY.pem()[:-30])
    assert secret not in f"{KEY!r} {refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found 0 keys, expected 1 to 2"),
        ("# nothing\n", "found 0 keys"),
        (write_trust([KEY.public, NEXT.public, STRANGER.public]), "found 3 keys"),
        (write_trust([KEY.public, KEY.public]), "each once"),
        (write_trust([PublicKey(bytes(32))]), "yields no shared secret"),
        (write_trust([PublicKey(b"\1" + bytes(31))]), "yields no shared secret"),
        ("rsa AAAA\n", "line 1: found something else, expected `ed25519 BASE64`"),
        ("# " + "k" * 10_000 + "\n" + write_trust([KEY.public]), "found more than 10000 characters"),
        ("# keys\n\ned25519\n", "line 3: found something else"),
        ("ed25519 AAAA\n", "line 1: found 3 bytes, expected an Ed25519 public key of 32"),
        ("ed25519 !!!!\n", "line 1: "),
        ("ed25519 \u00e4\n", "line 1: "),
    ],
)
def test_a_trust_file_that_is_none(text: str, message: str) -> None:
    with pytest.raises(BadKey) as refused:
        read_trust(text)
    assert str(refused.value).startswith(message) or message in str(refused.value)


def test_keys_of_another_kind_are_refused() -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(BadKey, match="found a private key of another kind"):
        SigningKey.from_pem(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(BadKey, match="found 0 bytes"):
        PublicKey(b"")
