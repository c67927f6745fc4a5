"""The page from which engine plug-ins are built says what the code does: every field, every word, the test vectors."""

import dataclasses
import re
from pathlib import Path

import pytest

from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.handover import HandoverRecord
from trimtab_protocol.messages.local import MAX_FRAME_BYTES, Hello, Statistics, Welcome, decode_frame
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import read_trust

PAGE = (Path(__file__).parents[3] / "docs/reference/engine-plugins.md").read_text()
SECTIONS = {
    "### `hello`": Hello,
    "### `welcome`": Welcome,
    "### `statistics`": Statistics,
    "### `command`": Command,
    "### `ack`": Ack,
    "### Placement": Placement,
    "### Hand-over records": HandoverRecord,
}
OF_THE_AGENT = {Phase.ACCEPTED, Phase.STARTED, Phase.STOPPED, Phase.EXPIRED}


def section(title: str) -> str:
    return PAGE.split(f"\n{title}\n")[1].split("\n### ")[0].split("\n## ")[0]


def line(pattern: str) -> str:
    (found,) = re.findall(rf"^({pattern})$", section("## Test vectors"), flags=re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_of_a_message_stands_in_its_section(title: str) -> None:
    names = {field.name for field in dataclasses.fields(SECTIONS[title])}

    assert names - set(re.findall(r"`([a-z_]+)`", section(title))) == set()


def test_every_word_that_a_plugin_may_send_or_get_is_there() -> None:
    words = {*Refusal, *CommandKind, *Phase} - OF_THE_AGENT

    assert {word for word in words if f"`{word}`" not in PAGE} == set()
    assert f"{MAX_FRAME_BYTES:,} bytes" in PAGE


def test_the_vectors_are_what_the_code_reads() -> None:
    command, placement = line(r'{.*"frame":"command"}').encode(), line(r'{.*"owners":.*}').encode()
    signature, trust = line(r"[0-9a-f]{16}:\S+").encode(), line("ed25519 .*")

    assert isinstance(decode_frame(command), Command)  # it has checked the id
    assert decoded(placement, Placement).app == "orders"
    record = Envelope(topic="trimtab.demo.placement", key=b"orders", value=placement, signatures=(signature,))
    read_trust(trust).check(record)  # raises unless the key has signed it
