"""Records of the commands topic: whose they are, who vouches for them, and what the controller hears of forged ones."""

from dataclasses import replace
from typing import Any

import pytest

from tests.agent.commands import agent_transcripts as transcripts
from tests.agent.commands.agent_transcripts import NOW
from trimtab_agent.commands.verifier import NOTICE_EVERY_S, CommandVerifier
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.names import HostId, Topics
from trimtab_protocol.signing.envelope import Envelope, signatures_in
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

KEY, STRANGER = SigningKey.generate(), SigningKey.generate()


def command(**changes: Any) -> Command:
    return transcripts.command(CommandKind.STOP, 2, app=None, **changes)


def record(what: Command | bytes, by: SigningKey | None = KEY, key: bytes = b"h0") -> Envelope:
    value = what if isinstance(what, bytes) else encoded(what)
    plain = Envelope(topic=Topics("demo").commands, key=key, value=value)
    return replace(plain, signatures=signatures_in([by.sign(plain)])) if by else plain


def verifier(trusted: TrustedKeys | None = TrustedKeys((KEY.public,))) -> CommandVerifier:  # noqa: B008 - frozen
    return CommandVerifier(cluster="demo", host=HostId("h0"), trust=trusted)


def fault(of: Envelope, on: CommandVerifier | None = None) -> Fault:
    with pytest.raises(BadMessage) as refused:
        (on or verifier()).read(of)
    return refused.value.fault


def test_a_signed_command_for_this_host_is_read_and_those_for_others_are_left_alone() -> None:
    assert verifier().read(record(command())) == command()
    assert verifier().read(record(command(host=HostId("h1")), key=b"h1")) is None
    assert verifier().read(record(b"anything", by=None, key=b"h1")) is None


def test_who_is_not_trusted_is_refused_before_anything_is_read() -> None:
    assert fault(record(command(), by=None)) is Fault.UNSIGNED
    assert fault(record(command(), by=STRANGER)) is Fault.UNKNOWN_KEY
    assert fault(replace(record(command()), value=encoded(command(deadline=NOW + 8)))) is Fault.WRONG_SIGNATURE
    assert fault(record(b"{]", by=None)) is Fault.UNSIGNED
    assert fault(record(b"{]")) is Fault.MALFORMED


def test_a_command_cannot_be_sent_on_to_another_host_or_cluster() -> None:
    assert fault(replace(record(command(), key=b"h9"), key=b"h0")) is Fault.WRONG_SIGNATURE
    assert fault(record(command(host=HostId("h9")))) is Fault.RANGE
    assert fault(record(command(cluster="other"))) is Fault.CLUSTER


def test_the_controller_hears_of_an_unverified_record_under_an_id_that_is_no_commands() -> None:
    forged = record(command(), by=STRANGER)
    notice = verifier().notice(forged, Fault.UNKNOWN_KEY, NOW)

    assert notice is not None
    assert (notice.phase, notice.refusal, notice.worker) == (Phase.REFUSED, Refusal.UNKNOWN_KEY, "w0")
    assert notice.command_id != command().id


def test_notices_are_few_and_only_about_signatures() -> None:
    told = verifier()
    times = [NOW, NOW + 1, NOW + NOTICE_EVERY_S - 1, NOW + NOTICE_EVERY_S]

    assert [told.notice(record(command()), Fault.UNSIGNED, at) is not None for at in times] == [
        True,
        False,
        False,
        True,
    ]
    assert told.notice(record(command()), Fault.WRONG_SIGNATURE, NOW) is not None
    assert told.notice(record(b"{]"), Fault.UNKNOWN_KEY, NOW) is None
    assert told.notice(record(command(host=HostId("h9"))), Fault.UNKNOWN_KEY, NOW) is None
    assert told.notice(record(b"{]"), Fault.MALFORMED, NOW) is None
