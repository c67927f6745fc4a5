"""Every message as this version sends it is read by the previous one, and the other way round."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.fuzzed import samples
from tests.fuzz.fuzzed.wire import ENTRIES, LINES
from tests.previous.release import SCRIPTS, environment, unpack
from tests.previous.scripts.recoding import CODECS, as_chunk
from trimtab_agent.commands.journal import encode_line
from trimtab_agent.engines.faust.agent_link import versions
from trimtab_controller.execution.journal import JournalEntry, encode_entry
from trimtab_controller.execution.state import Execution, Proposal
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.local import encode_frame
from trimtab_protocol.messages.snapshot import encode_snapshot


class Previous:
    """The previous version, asked to read messages and to write them again."""

    def __init__(self, packages: Path) -> None:
        command = [sys.executable, str(SCRIPTS / "recoding.py")]
        pipe = subprocess.PIPE
        env = {"PATH": "", **environment(packages)}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
        assert self._process.stdout is not None
        code = self._process.stdout.readline().strip()
        assert Path(code).is_relative_to(packages), f"{code} is not the previous version's"

    def again(self, kind: str, message: bytes) -> bytes | str:
        """The message as it writes what it has read; or why it refuses it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {base64.b64encode(message).decode()}\n")
        self._process.stdin.flush()
        name, _, answer = self._process.stdout.readline().strip().partition(" ")
        assert name == kind, f"it has ended at a {kind}"
        return answer[1:] if answer.startswith("!") else base64.b64decode(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Previous]:
    made = Previous(unpack(tmp_path_factory.mktemp("previous")))
    yield made
    made.close()


def intent(value: Intent) -> bytes:
    return value.key.encode() + b"\n" + encoded(value)


WAITS = Plan(
    app=samples.APP,
    reason=PlanReason.LOAD_DISTANCE,
    detail="load distance 18.4 above 5.0",
    moves=(Move(key_group=samples.SUMS_1, source=samples.W0, target=samples.W1, state_bytes=1),),
    hosts=dict.fromkeys((samples.W0, samples.W1), samples.HOST),
    before=18.4,
    planned=1.1,
    lower_bound=1.1,
    status="optimal",
)
WAITING = JournalEntry(
    execution=Execution(
        generation=3,
        number=17,
        proposals={WAITS.app: Proposal(id="3.17", plan=WAITS, at=1.0, expires_at=1801.0)},
    )
)
BEGUN = JournalEntry(
    execution=Execution(
        generation=3,
        number=17,
        rounds={
            each.app: replace(each, kind=PlanReason.LOAD_DISTANCE) for each in ENTRIES[0].execution.rounds.values()
        },
    )
)
HELLO = replace(samples.HELLO, versions=versions())

INTENTS = (
    samples.DRAIN, samples.PAUSE, samples.STOP_ALL, samples.STOP_APP, samples.ACCEPT, samples.FORGET_APP,
    samples.FORGET_WORKER, samples.SCALE, samples.RESTART, samples.UNDRAIN, samples.ADD_RULE, *samples.ON_PLANS,
)  # fmt: skip
COMMANDS = (samples.PREPARE, samples.RELEASE, samples.STOP, samples.STOP_OWNING)
FRAMES = (HELLO, samples.WELCOME, samples.STATISTICS, samples.RELEASE, samples.TOOK)
READ: dict[str, tuple[str, bytes]] = {
    "report": ("report", encoded(samples.REPORT)),
    "snapshot": ("snapshot", encode_snapshot(samples.SNAPSHOT)),
    "chunk": ("chunk", as_chunk(samples.SNAPSHOT)),
    "placement": ("placement", encoded(samples.PLACEMENT)),
    "placement, as a record": ("record", b"a\n" + encoded(samples.PLACEMENT)),
    "head of a placement in parts": ("record", b"a\n" + encoded(samples.HEAD)),
    "part of a placement": ("record", samples.PART.key + b"\n" + encoded(samples.PART)),
    **{f"command {at}": ("command", encoded(each)) for at, each in enumerate(COMMANDS)},
    **{f"ack: {each.phase}": ("ack", encoded(each)) for each in (samples.TOOK, samples.REFUSED)},
    "hand-over": ("handover", encoded(samples.RELEASED)),
    "status": ("status", encoded(samples.STATUS)),
    **{f"intent: {each.key}": ("intent", intent(each)) for each in INTENTS},
    **{f"journal {at}": ("entry", encode_entry(each)) for at, each in enumerate((*ENTRIES, WAITING, BEGUN))},
    **{f"agent's journal {at}": ("line", encode_line(each)[:-1]) for at, each in enumerate(LINES)},
    **{f"frame: {type(each).__name__}": ("frame", encode_frame(each)[:-1]) for each in FRAMES},
}
"""What this version sends."""


@pytest.mark.parametrize("name", READ)
def test_a_message_is_the_same_to_both_versions(previous: Previous, name: str) -> None:
    kind, message = READ[name]
    assert previous.again(kind, message) == message
    assert CODECS[kind](message) == message
