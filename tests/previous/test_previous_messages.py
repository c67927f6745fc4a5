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
from trimtab_agent.commands.events import KeptNoted
from trimtab_agent.commands.journal import encode_line
from trimtab_agent.engines.faust.agent_link import versions
from trimtab_controller.execution.journal import JournalEntry, encode_entry
from trimtab_controller.execution.proposal import Proposal
from trimtab_controller.execution.state import Execution
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.commands import encode_ack, encode_command
from trimtab_protocol.messages.handover import encode_handover
from trimtab_protocol.messages.intents import Intent, encode_intent
from trimtab_protocol.messages.local import encode_frame
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.placement import encode_placement
from trimtab_protocol.messages.placement_parts import encode_record
from trimtab_protocol.messages.report import encode_report
from trimtab_protocol.messages.snapshot import encode_snapshot
from trimtab_protocol.messages.status import encode_status


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
    return value.key.encode() + b"\n" + encode_intent(value)


NODE, WORKER = samples.SNAPSHOT.nodes[0], samples.REPORT.workers[0]
NEW = {
    "operators": None,
    "standbys": None,
    "unknown": None,
    "reason": None,
    "declared": None,
    "in_parts": False,
    "fresh": False,
    "copies": (),
}
DISK = {"disk_total_bytes": None, "disk_free_bytes": None, "zone": None}
KEPT = next(each for each in LINES if isinstance(each, KeptNoted))
SNAPSHOT = replace(
    samples.SNAPSHOT,
    nodes=(replace(NODE, **NEW, also_on=(), following=None, paused_s=None, paused=None, waiting=None),),
    hosts=tuple(replace(each, **DISK) for each in samples.SNAPSHOT.hosts),
    pairs=tuple(replace(each, direct_s=None) for each in samples.SNAPSHOT.pairs),
    ended=(),
)
REPORT = replace(
    samples.REPORT,
    workers=(replace(WORKER, **NEW, following_s=None, paused_s=None, paused=None, waiting=None),),
    sample=replace(samples.REPORT.sample, **DISK, ended=False),
    pairs=tuple(replace(each, direct=None) for each in samples.REPORT.pairs),
)
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

READ: dict[str, tuple[str, bytes]] = {
    "report of an agent that is not told anything new": ("report", encode_report(REPORT)),
    "snapshot of such reports": ("snapshot", encode_snapshot(SNAPSHOT)),
    "chunk": ("chunk", as_chunk(SNAPSHOT)),
    "placement": ("placement", encode_placement(samples.PLACEMENT)),
    "placement, as a record": ("record", b"a\n" + encode_placement(samples.PLACEMENT)),
    **{f"command: {each.kind}": ("command", encode_command(each)) for each in (samples.PREPARE, samples.STOP)},
    "command: release": ("command", encode_command(samples.RELEASE)),
    **{f"ack: {each.phase}": ("ack", encode_ack(each)) for each in (samples.TOOK, samples.REFUSED)},
    "hand-over": ("handover", encode_handover(samples.RELEASED)),
    **{f"intent: {each.key}": ("intent", intent(each)) for each in (samples.DRAIN, samples.PAUSE, samples.ACCEPT)},
    **{f"journal: {place}": ("entry", encode_entry(each)) for place, each in enumerate(ENTRIES)},
    **{
        f"agent's journal: {type(each).__name__} {at}": ("line", encode_line(each)[:-1])
        for at, each in enumerate(LINES)
        if not isinstance(each, KeptNoted)
    },
    "frame: hello": ("frame", encode_frame(HELLO)[:-1]),
    "frame: welcome to a plug-in of before": ("frame", encode_frame(replace(samples.WELCOME, protocol=None))[:-1]),
    "frame: statistics for an agent of before": ("frame", encode_frame(samples.STATISTICS.for_protocol(1))[:-1]),
    "frame: command": ("frame", encode_frame(samples.RELEASE)[:-1]),
    "frame: ack": ("frame", encode_frame(samples.TOOK)[:-1]),
}
"""What this version sends to one of before: the very form of before, so that it is also what one of before sends."""


@pytest.mark.parametrize("name", READ)
def test_a_message_is_the_same_to_both_versions(previous: Previous, name: str) -> None:
    kind, message = READ[name]
    assert previous.again(kind, message) == message
    assert CODECS[kind](message) == message


MAINTENANCE = replace(samples.DRAIN, until=samples.NOW + 7200.0, host=HostId("h1"))

NEGOTIATED = {
    "welcome": ("frame", encode_frame(samples.WELCOME)[:-1], "unknown_field protocol"),
    "statistics": ("frame", encode_frame(samples.STATISTICS.for_protocol(2))[:-1], "unknown_field pairs[0].d"),
    "snapshot": ("snapshot", encode_snapshot(samples.SNAPSHOT), "unknown_field hosts[0].disk_total_bytes"),
    "status": ("status", encode_status(samples.STATUS), "unknown_field nodes[0].used_pct"),
    "agent's journal: kept worker": ("line", encode_line(KEPT)[:-1], "out_of_range entry"),
    "head of a placement in parts": ("record", b"a\n" + encode_record(samples.HEAD), "wrong_version v"),
    "part of a placement": ("record", samples.PART.key + b"\n" + encode_record(samples.PART), "missing_field owners"),
    "wish": ("intent", intent(samples.FORGET_APP), "unknown_field forget_app"),
    "approval": ("intent", intent(samples.APPROVE), "unknown_field approve_plan"),
    "rule of an operator": ("intent", intent(samples.ADD_RULE), "unknown_field add_rule"),
    "drain for a maintenance": ("intent", intent(MAINTENANCE), "unknown_field until"),
    "rolling restart": ("intent", intent(samples.RESTART), "unknown_field restart_app"),
    "moves by hand": ("intent", intent(samples.MOVE), "unknown_field moves"),
    "journal with a plan that waits": ("entry", encode_entry(WAITING), "unknown_field proposals"),
    "journal with a plan of this version": ("entry", encode_entry(BEGUN), "unknown_field round.kind"),
}
"""Frames: only between two that speak protocol 2.  Snapshots: the stream is of its controller's version.  Status: so is
`trimtab status`; a controller of before that takes over begins its history anew.  Wishes: the
command is of its controller's version; one of before counts what it does not know, and leaves it to its successor.
Journal: a controller of before holds, until an operator accepts it.
Parts: only while all workers of the app say that they read them; a controller of before holds.
A journal line on a kept worker: an agent of before counts it as a fault, and refuses older commands for a minute."""


@pytest.mark.parametrize("name", NEGOTIATED)
def test_what_is_new_is_read_by_this_version_and_would_be_refused_by_the_previous_one(
    previous: Previous, name: str
) -> None:
    kind, message, refusal = NEGOTIATED[name]
    assert CODECS[kind](message) == message
    assert previous.again(kind, message) == refusal
