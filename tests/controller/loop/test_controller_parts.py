"""Smaller parts of the controller: inbox, status_builder and status, stream child, command line."""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab_controller.cli import main, operator
from trimtab_controller.decider.decide import Settings
from trimtab_controller.decider.decision import Skip
from trimtab_controller.decider.events import IntentsChanged, SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.observe import Requirements
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.execution.events import AckSeen
from trimtab_controller.execution.inheritance import Flaw, Hold
from trimtab_controller.execution.journal import KEY, JournalEntry, encode_entry
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase, Round
from trimtab_controller.kafka import reader as reader_module
from trimtab_controller.kafka.chunks import split
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.publisher import Record as Published
from trimtab_controller.kafka.publisher import headers_of
from trimtab_controller.kafka.reader import Reading
from trimtab_controller.leadership.driver import Candidacy
from trimtab_controller.leadership.machine import ENDED, TAKEN, Role
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop import inbox as inbox_module
from trimtab_controller.loop.inbox import ACKS_AT_ONCE, CLOCK_TOLERANCE_S, Inbox
from trimtab_controller.loop.metrics import Metrics
from trimtab_controller.loop.publications import status_record
from trimtab_controller.loop.recovery import taken_over
from trimtab_controller.loop.status_builder import StatusBuilder, describe_end
from trimtab_controller.loop.stream_process import StreamProcess
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal, decode_ack, encode_ack
from trimtab_protocol.messages.decode import MAX_NUMBER, BadMessage, Fault
from trimtab_protocol.messages.intents import Drain, Pause, encode_intent
from trimtab_protocol.messages.names import AppId, CommandId, Epoch, HostId, KeyGroup, OperatorId, Topics, WorkerId
from trimtab_protocol.messages.placement import Placement, decode_placement, encode_placement
from trimtab_protocol.messages.report import MAX_COUNT, Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, NodeWindow, Snapshot
from trimtab_protocol.messages.status import (
    AppStatus,
    DecisionStatus,
    HoldStatus,
    NodeStatus,
    Status,
    decode_status,
    encode_status,
    status_key,
)
from trimtab_protocol.settings.kafka import KafkaSettings
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

TOPICS = Topics("c")
NOW = 1000.0
APP = AppId("app")
NOWHERE = ("--bootstrap", "127.0.0.1:1", "--cluster", "c")
Headers = list[tuple[str, bytes]]


class Record:
    """As much of a Kafka message as the inbox looks at."""

    def __init__(
        self, topic: str, value: bytes | None, key: bytes | None = b"k", headers: Headers | None = None
    ) -> None:
        self._topic, self._value, self._key, self._headers = topic, value, key, headers

    def topic(self) -> str:
        return self._topic

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def headers(self) -> Headers | None:
        return self._headers

    def offset(self) -> int:
        return 7


def an_ack(**changes: object) -> Ack:
    values = {
        "cluster": "c",
        "command_id": CommandId("0" * 32),
        "epoch": Epoch(1, 2),
        "kind": CommandKind.PREPARE,
        "host": HostId("h1"),
        "worker": WorkerId("w1"),
        "phase": Phase.ACCEPTED,
        "at": NOW,
        **changes,
    }
    return Ack(**values)  # type: ignore[arg-type]


def test_a_host_that_floods_is_not_read_and_the_others_are() -> None:
    now = NOW
    inbox = Inbox(TOPICS, lambda: now)
    inbox.know([HostId("h1"), HostId("h2")])
    flood = Record(TOPICS.acks, b"not even JSON", b"h1")
    calm = Record(TOPICS.acks, encode_ack(an_ack(host=HostId("h2"))), b"h2")
    for _ in range(ACKS_AT_ONCE + 5):
        assert inbox.take(flood) is None
    assert inbox.rejected == {(TOPICS.acks, Fault.MALFORMED): ACKS_AT_ONCE, (TOPICS.acks, Fault.FLOODING): 5}
    assert isinstance(inbox.take(calm), AckSeen)
    now += 1.0
    assert isinstance(inbox.take(Record(TOPICS.acks, encode_ack(an_ack()), b"h1")), AckSeen)


def test_hosts_that_nobody_knows_have_one_allowance_together() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    inbox.know([HostId("h1")])
    invented = (HostId(f"x{index}") for index in range(ACKS_AT_ONCE + 5))

    taken = [inbox.take(Record(TOPICS.acks, encode_ack(an_ack(host=host)), host.encode())) for host in invented]

    assert taken[ACKS_AT_ONCE:] == [None] * 5
    assert inbox.rejected == {(TOPICS.acks, Fault.FLOODING): 5}
    assert isinstance(inbox.take(Record(TOPICS.acks, encode_ack(an_ack()), b"h1")), AckSeen)


def test_a_snapshot_says_which_hosts_there_are() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    host = HostWindow(host=HostId("h1"), covered_s=1.0, cpu=0.5, cores=1.0, basis=Basis.CONFIG)
    window = Snapshot(
        cluster="c", start_ms=1, end_ms=2, published_ms=2, hosts_seen=1, hosts_expected=1, watermark_ms=None,
        late_rows=0, hosts=(host,),
    )  # fmt: skip
    for chunk in split(window):
        inbox.take(Record(TOPICS.snapshots, chunk.payload, b"c", chunk.headers))
    unknown, known = (Record(TOPICS.acks, b"{", key) for key in (b"x", b"h1"))
    for _ in range(ACKS_AT_ONCE + 1):
        inbox.take(unknown)

    inbox.take(known)

    assert inbox.rejected == {(TOPICS.acks, Fault.MALFORMED): ACKS_AT_ONCE + 1, (TOPICS.acks, Fault.FLOODING): 1}


def a_window(end_s: float) -> Snapshot:
    return Snapshot(
        cluster="c", start_ms=0, end_ms=round(end_s * 1000), published_ms=0, hosts_seen=1, hosts_expected=1,
        watermark_ms=None, late_rows=0,
    )  # fmt: skip


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
        event = inbox.take(Record(TOPICS.intents, encode_intent(drain), drain.key.encode()))
        assert event is None or isinstance(event, IntentsChanged)
        return event

    assert [drained("w1") is None, drained("w2") is None, drained("w3") is None] == [False, False, True]
    assert inbox.rejected == {(TOPICS.intents, Fault.OVERSIZED): 1}
    changed = drained("w2", "another")
    assert changed is not None
    assert [intent.reason for intent in changed.intents] == ["r", "another"]


@pytest.mark.parametrize(
    ("topic", "value", "fault"),
    [
        (TOPICS.acks, b"{", Fault.MALFORMED),
        (TOPICS.acks, None, Fault.MALFORMED),
        (TOPICS.acks, b'{"v":2}', Fault.VERSION),
        (TOPICS.acks, b"x" * (8 * 1024 * 1024 + 1), Fault.OVERSIZED),
        (TOPICS.acks, encode_ack(an_ack()).replace(b'"at":1000.0', b'"at":NaN'), Fault.RANGE),
        (TOPICS.acks, encode_ack(an_ack(at=NOW + CLOCK_TOLERANCE_S + 1)), Fault.FUTURE),
        (TOPICS.acks, encode_ack(an_ack(cluster="d")), Fault.CLUSTER),
        (TOPICS.acks, encode_ack(an_ack()), Fault.RANGE),  # of host h1, under another key
        (TOPICS.snapshots, b"not a chunk", Fault.MISSING),
        (TOPICS.intents, encode_intent(Pause(by="op", at=NOW, reason="r")), Fault.RANGE),
        (TOPICS.journal, b"[]", Fault.TYPE),
        (TOPICS.placement, b"{}", Fault.MISSING),
        (
            TOPICS.placement,
            encode_placement(Placement(cluster="d", app=APP, epoch=Epoch(1, 1), owners={})),
            Fault.CLUSTER,
        ),
    ],
)
def test_what_cannot_be_read_is_counted_and_goes_no_further(topic: str, value: bytes | None, fault: Fault) -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    assert inbox.take(Record(topic, value, KEY if topic == TOPICS.journal else b"k")) is None
    assert inbox.rejected == Counter({(topic, fault): 1})


def test_good_messages_become_events() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    ack, pause = an_ack(), Pause(by="op", at=NOW + 3600.0, reason="r")  # of an operator whose clock is fast
    placement = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={OperatorId("o"): ((WorkerId("w0"),),)})
    entry = JournalEntry(execution=Execution(generation=3, number=4), acks_read={0: 17})
    assert inbox.take(Record(TOPICS.acks, encode_ack(ack), b"h1")) == AckSeen(ack=ack)
    assert inbox.take(Record(TOPICS.intents, encode_intent(pause), b"pause")) == IntentsChanged(intents=(pause,))
    assert inbox.take(Record(TOPICS.intents, None, b"pause")) == IntentsChanged(intents=())
    assert inbox.take(Record(TOPICS.placement, encode_placement(placement))) == placement
    assert inbox.take(Record(TOPICS.journal, encode_entry(entry), KEY)) == entry
    assert inbox.take(Record(TOPICS.journal, b"{}", b"another kind")) is None
    assert not inbox.rejected


def test_a_successor_is_newer_than_anything_published() -> None:
    placement = Placement(cluster="c", app=APP, epoch=Epoch(7, 1), owners={})
    assert taken_over(Execution(generation=3, placements={APP: placement})).generation == 8
    assert taken_over(Execution(generation=9, placements={APP: placement})).generation == 10
    assert taken_over(Execution(generation=0)).generation == 1


KEY_PAIR, OLD_KEY, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys((OLD_KEY.public, KEY_PAIR.public))
PLACED = Placement(cluster="c", app=APP, epoch=Epoch(1, 1), owners={OperatorId("o"): ((WorkerId("w0"),),)})


def placed(by: SigningKey | None, placement: Placement = PLACED) -> Record:
    """A placement as it is found on the topic."""
    wanted = Published(topic=TOPICS.placement, key=APP.encode(), value=encode_placement(placement), signed=True)
    return Record(wanted.topic, wanted.value, wanted.key, headers_of(wanted, by))


def test_only_commands_and_placements_carry_a_signature_and_it_holds() -> None:
    assert headers_of(Published(topic=TOPICS.status, key=b"k", value=b"v"), KEY_PAIR) == []
    assert headers_of(Published(topic=TOPICS.placement, key=b"k", value=None, signed=True), KEY_PAIR) == []
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED)
    assert inbox.take(placed(KEY_PAIR)) == PLACED
    assert inbox.take(placed(OLD_KEY)) == PLACED
    assert [inbox.take(placed(by)) for by in (None, STRANGER)] == [None, None]
    assert inbox.rejected == Counter({(TOPICS.placement, Fault.UNSIGNED): 1, (TOPICS.placement, Fault.UNKNOWN_KEY): 1})


def test_a_forged_placement_does_not_hide_the_true_one_from_a_successor() -> None:
    forged = replace(PLACED, epoch=Epoch(99, 1), owners={})
    found = Reading(messages=[placed(KEY_PAIR), placed(STRANGER, forged), Record(TOPICS.placement, None, APP.encode())])
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED)

    [latest] = found.latest(TOPICS.placement, inbox.vouches)

    assert decode_placement(latest.value()) == PLACED
    assert sum(inbox.rejected.values()) == 2


def test_an_agent_that_does_not_trust_us_is_heard_but_its_word_ends_no_command() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    told = an_ack(phase=Phase.REFUSED, refusal=Refusal.UNKNOWN_KEY)

    assert inbox.take(Record(TOPICS.acks, encode_ack(told), b"h1")) is None
    assert inbox.rejected == Counter({(TOPICS.commands, Fault.UNKNOWN_KEY): 1})


def test_reports_that_the_stream_refused_are_counted_since_it_was_started() -> None:
    inbox = Inbox(TOPICS, lambda: NOW)
    window = Snapshot(
        cluster="c", start_ms=0, end_ms=1000, published_ms=1000, hosts_seen=1, hosts_expected=1, watermark_ms=None,
        late_rows=0, rejected={Fault.VERSION: 7, "invented": 10**9},
    )  # fmt: skip
    for row in (window, replace(window, end_ms=2000, rejected={Fault.VERSION: 9, Fault.FLOODING: 1})):
        for chunk in split(row):
            inbox.take(Record(TOPICS.snapshots, chunk.payload, b"c", chunk.headers))

    assert inbox.rejected == Counter({(TOPICS.reports, Fault.VERSION): 9, (TOPICS.reports, Fault.FLOODING): 1})


class Garbled(Record):
    """A header's name is not UTF-8: this is what confluent-kafka does then."""

    def headers(self) -> Headers | None:
        raise SystemError("<method 'headers'> returned a result with an exception set")


def test_headers_that_cannot_be_read_are_counted_like_any_other_fault() -> None:
    inbox = Inbox(TOPICS, lambda: NOW, trusted=TRUSTED)

    assert inbox.take(Garbled(TOPICS.snapshots, b"x")) is None
    assert not inbox.vouches(Garbled(TOPICS.placement, encode_placement(PLACED), APP.encode()))
    assert inbox.rejected == Counter({(TOPICS.snapshots, Fault.MALFORMED): 1, (TOPICS.placement, Fault.MALFORMED): 1})


def a_round(*phases: HandoverPhase) -> Round:
    prepare = Command(
        cluster="c",
        kind=CommandKind.PREPARE,
        epoch=Epoch(1, 2),
        host=HostId("h1"),
        worker=WorkerId("w1"),
        app=APP,
        issued_at=NOW,
        deadline=NOW + 1,
        handover="h",
        key_groups=(KeyGroup(APP, OperatorId("o"), 0),),
        source=WorkerId("w0"),
        target=WorkerId("w1"),
    )
    return Round(
        plan="1.2",
        app=APP,
        reason="load distance 9.0 above 5.0",
        status="optimal",
        fallback=False,
        before=9.0,
        planned=1.0,
        lower_bound=1.0,
        started_at=NOW,
        ended_at=NOW + 2,
        handovers=tuple(
            Handover(
                id=f"1.2-{index}",
                key_groups=(KeyGroup(APP, OperatorId("o"), 2 * index), KeyGroup(APP, OperatorId("o"), 2 * index + 1)),
                previous=((WorkerId("w0"),), (WorkerId("w0"),)),
                source=WorkerId("w0"),
                target=WorkerId("w1"),
                source_host=HostId("h0"),
                target_host=HostId("h1"),
                state_bytes=100,
                since=NOW,
                phase=phase,
                attempt=1,
                prepare=prepare,
                pause_s=0.25 if phase is HandoverPhase.DONE else None,
            )
            for index, phase in enumerate(phases)
        ),
    )


def test_the_board_counts_what_was_moved_and_keeps_what_a_predecessor_knew() -> None:
    status_builder = StatusBuilder("c", acting=True)
    row = a_round(HandoverPhase.DONE, HandoverPhase.FAILED)
    skip = Skip(reason=SkipReason.INSIDE_BAND, detail="inside band")
    status_builder.see_round(row)
    status_builder.see_round(row, after=1.5)
    status_builder.see_round(row)
    assert status_builder.decided(NOW, skip, "first")
    assert not status_builder.decided(NOW + 10, skip, "second"), "it says nothing new"
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    status = status_builder.status(NOW, decider, Execution(generation=1), Counter({("t", Fault.RANGE): 2}))
    [found] = status.rounds
    assert (found.migrations, found.failed, found.bytes_moved, found.after) == (2, 2, 100, 1.5)
    assert (found.pauses_s, dict(found.handovers)) == ((0.25,), {"done": 1, "failed": 1})
    assert [(each.at, each.text) for each in status.decisions] == [(NOW + 10, "second")]
    assert decode_status(encode_status(status)) == status
    successor = StatusBuilder("c", acting=True, previous=status)
    assert successor.status(NOW, decider, Execution(generation=2), {}).rounds == status.rounds
    assert describe_end(row) == (
        "plan 1.2 ended after 2.0 s: 2 key groups moved, 2 failed, pause median 0.25 s, longest 0.25 s"
    )


def test_the_board_keeps_why_a_round_cannot_be_compared() -> None:
    status_builder, row = StatusBuilder("c", acting=True), a_round(HandoverPhase.DONE)
    status_builder.see_round(row, incomparable="w2 joined")
    status_builder.see_round(row)
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)

    [found] = status_builder.status(NOW, decider, Execution(generation=1), {}).rounds

    assert (found.after, found.incomparable) == (None, "w2 joined")


def test_the_board_shows_what_workers_use_and_what_is_wrong() -> None:
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    node = NodeWindow(
        worker=WorkerId("w0"), host=HostId("h0"), app=APP, state=WorkerState.RUNNING, capacity=0.25, covered_s=10.0,
        cpu=0.3, complete=True, steering=True,
    )  # fmt: skip
    for number in range(3):
        at_ms = round(NOW * 1000) + 10_000 * number
        decider.on_event(
            at_ms / 1000.0 + 10.0,
            SnapshotArrived(
                snapshot=Snapshot(
                    cluster="c", start_ms=at_ms, end_ms=at_ms + 10_000, published_ms=at_ms, hosts_seen=1,
                    hosts_expected=1, watermark_ms=None, late_rows=0, nodes=(node,),
                )
            ),
        )  # fmt: skip

    status = StatusBuilder("c", acting=True).status(NOW, decider, Execution(generation=1), {})

    assert [row.used_pct for row in status.nodes] == [pytest.approx(120.0)]
    assert [(row.kind, row.app) for row in status.concerns] == [("over_capacity", APP)]
    assert decode_status(encode_status(status)) == status


def test_a_plan_that_was_given_up_with_its_journal_is_in_flight_no_longer() -> None:
    before = StatusBuilder("c", acting=True)
    before.see_round(replace(a_round(HandoverPhase.PREPARING), ended_at=None))
    decider = Decider(Settings(), Requirements(), Execution(generation=2), acting=True)
    status = before.status(NOW, decider, Execution(generation=1, round=replace(a_round(), ended_at=None)), {})
    assert status.plan_in_flight is not None
    successor = StatusBuilder("c", acting=True, previous=status)
    hold = Hold(flaw=Flaw.CORRUPTED, detail="d", newest=Epoch(1, 2))
    assert successor.status(NOW, decider, Execution(generation=2), {}, hold).plan_in_flight is not None
    assert successor.status(NOW, decider, Execution(generation=2), {}).plan_in_flight is None


def test_a_status_can_be_read_whatever_the_new_owners_say_they_measured() -> None:
    phases = (HandoverPhase.DONE, HandoverPhase.DONE)
    told = decode_ack(encode_ack(an_ack(phase=Phase.TOOK, state_bytes=MAX_COUNT, pause_s=MAX_NUMBER)))
    row = a_round(*phases)
    rows = tuple(replace(each, state_bytes=told.state_bytes, pause_s=told.pause_s) for each in row.handovers)
    status_builder = StatusBuilder("c", acting=True)
    status_builder.see_round(replace(row, handovers=rows))
    decider = Decider(Settings(), Requirements(), Execution(generation=1), acting=True)
    status = status_builder.status(NOW, decider, Execution(generation=1), {})
    assert decode_status(encode_status(status)) == status
    with pytest.raises(BadMessage, match="state_bytes"):
        decode_ack(encode_ack(an_ack(state_bytes=MAX_COUNT + 1)))


def test_a_status_survives_the_wire_and_a_bad_one_is_refused() -> None:
    status = Status(
        cluster="c",
        at=NOW,
        acting=True,
        epoch=Epoch(2, 3),
        paused="paused by op: r",
        window_end=NOW,
        coverage=0.5,
        nodes=(
            NodeStatus(
                worker=WorkerId("w0"),
                host=HostId("h0"),
                app=None,
                state=WorkerState.AWAY,
                capacity=0.25,
                load_pct=None,
                key_groups=0,
                draining=True,
                steering=False,
            ),
        ),
        apps=(AppStatus(app=APP, key_groups=None, load_distance=None, mean_load=None, not_ready="why", noise=1.5),),
        decisions=(DecisionStatus(at=NOW, kind="skip", reason="hold", text="nothing"),),
        rejected={"t.malformed": 2},
        hold=HoldStatus(id="0123456789abcdef", text="the journal cannot be trusted"),
    )
    payload = encode_status(status)
    assert decode_status(payload) == status
    assert status_key(acting=True) != status_key(acting=False)
    for bad in (payload.replace(b'"capacity":0.25', b'"capacity":NaN'), payload.replace(b'"v":1', b'"v":2'), b"{"):
        with pytest.raises(BadMessage):
            decode_status(bad)


def test_a_status_that_no_message_could_hold_is_published_without_its_workers_and_apps() -> None:
    """Apps are as many as somebody invents: the controller must not end for them."""
    app = AppStatus(app=APP, key_groups=None, load_distance=None, mean_load=None, not_ready="n" * 1000)
    status = Status(
        cluster="c", at=NOW, acting=True, epoch=Epoch(2, 3), paused=None, window_end=NOW, coverage=1.0, apps=(app,)
    )
    assert decode_status(status_record(status, TOPICS).value) == status
    cut = decode_status(status_record(replace(status, apps=(app,) * 8_000), TOPICS).value)
    assert cut == replace(status, apps=(), rejected={"trimtab.c.status.oversized": 1})


def test_the_stream_is_started_again_with_growing_delays_and_ended() -> None:
    clock = [0.0]
    child = StreamProcess([sys.executable, "-c", "pass"], lambda: clock[0])
    delays: list[float] = []
    for _ in range(3):
        child.tick()
        deadline = time.monotonic() + 20
        while child.restarts == len(delays):
            assert time.monotonic() < deadline
            before = clock[0]
            child.tick()
            clock[0] += 0.5
        delays.append(before)
    assert delays[0] < delays[1] < delays[2]
    child.close()
    lasting = StreamProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    lasting.tick()
    process = lasting._process
    assert process is not None
    lasting.close()
    assert process.returncode == -15


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["status"], "name the cluster: --config FILE, or --bootstrap HOST:PORT and --cluster NAME"),
        (["status", "--config", "absent.toml"], "absent.toml: No such file or directory"),
        (["drain", "w0", "--bootstrap", "x", "--cluster", "a b"], "controller.cluster: found 'a b', expected a name"),
        (["controller", "run", "--config", "absent.toml"], "absent.toml: No such file or directory"),
        (["pause", "--reason", "", *NOWHERE], "reason: found '0 characters', expected 1 to 2000 characters"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_an_unreachable_broker_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "REQUEST_LIMIT_S", 0.3)
    assert main(["status", *NOWHERE]) == 1
    assert "Kafka at 127.0.0.1:1" in capsys.readouterr().err


def test_an_operator_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000730000")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert operator._who().startswith(f"{os.getuid()}@")


def test_help_needs_neither_kafka_nor_numpy(tmp_path: Path) -> None:
    program = (
        "import sys; from trimtab_controller.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "found = {'confluent_kafka', 'numpy', 'pyspark', 'rich', 'zstandard'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "what the controller would do now" in done.stdout


def test_a_standby_shows_its_role_and_no_figures_of_a_term_that_has_ended() -> None:
    process, term = ProcessMetrics(), Metrics()
    term.generation.set(7)
    process.see(Role.LEADING)
    process.show(term.registry)
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") == 7
    process.see(Role.WAITING)
    process.show(None)
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") is None
    roles = {each: process.registry.get_sample_value("trimtab_controller_role", {"role": each}) for each in Role}
    assert [each for each, value in roles.items() if value] == [Role.WAITING]
    process.show(Metrics().registry)  # the next term counts from zero
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") == 0


def test_a_term_that_its_operator_ends_is_not_counted_as_lost_to_another_controller() -> None:
    metrics = ProcessMetrics()
    connection = Connection(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    candidacy = Candidacy(
        connection, TOPICS, 6.0, new_term=lambda office: pytest.fail("a term"), metrics=metrics, stopping=lambda: False
    )
    counts = []
    for end in (ENDED, TAKEN):
        candidacy._perform((end,))
        counts.append(metrics.registry.get_sample_value("trimtab_controller_stood_down_total"))
    assert counts == [0, 1]
