"""What is accepted goes on: whatever a decoder lets through, the machines behind it must bear, and others must read."""

from dataclasses import replace
from typing import Any

from tests.fuzz.fuzzed.decoder import Decoder
from tests.fuzz.fuzzed.samples import (
    APP,
    CLUSTER,
    EPOCH,
    HELLO,
    HOST,
    NOW,
    PLACEMENT,
    PREPARE,
    RELEASE,
    SNAPSHOT,
    STATISTICS,
    STOP,
    SUMS,
    TOOK,
    W0,
    W1,
)
from tests.fuzz.fuzzed.wire import ENTRIES, rehashed
from trimtab_agent.commands.command_checks import CommandRules
from trimtab_agent.commands.events import CommandReceived, WorkerConnected, WorkerReported, Write
from trimtab_agent.commands.journal import decode_line, encode_line
from trimtab_agent.commands.machine import CommandMachine
from trimtab_agent.plugin_server import check_statistics
from trimtab_agent.reporting.report import ReportHead, assemble
from trimtab_agent.reporting.roster import Roster
from trimtab_controller.decider.events import SnapshotArrived, Solve
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import instance_of, question_of
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.events import AckSeen, ExecutionLimits
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Command
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.local import Statistics, decode_frame, encode_frame
from trimtab_protocol.messages.names import KeyGroup
from trimtab_protocol.messages.report import HostSample, Report
from trimtab_protocol.messages.snapshot import KeyGroupWindow, Snapshot, encode_snapshot

NODES = tuple(replace(SNAPSHOT.nodes[0], worker=worker, epoch=EPOCH) for worker in (W0, W1))
LOADED = replace(
    SNAPSHOT,
    hosts_seen=1,
    hosts_expected=1,
    nodes=NODES,
    key_groups=tuple(
        KeyGroupWindow(
            key_group=KeyGroup(APP, SUMS, partition), worker=W0 if partition < 5 else W1, covered_s=10.0,
            cpu=0.01 * partition, tuples_in_s=10.0, state_bytes=100,
        )
        for partition in range(6)
    ),
    pairs=(),
)  # fmt: skip
PLACED = Execution(generation=2, number=9, placements={APP: replace(PLACEMENT, owners={SUMS: ((W0,),) * 5 + ((W1,),)})})
RULES = CommandRules(startable=frozenset({W0}), configured=frozenset({W0, W1}))
IN_FLIGHT = replace(ENTRIES[0].execution, placements={APP: PLACEMENT})


def decide(data: bytes) -> Any:
    """A snapshot, to the decider: twice, so that there is a past."""
    snapshot, settings = decoded(data, Snapshot), Settings(min_windows=1)
    decider = Decider(settings, Requirements(max_age_s=1e6), PLACED, acting=True)
    for _ in range(2):
        for action in decider.on_event(NOW, SnapshotArrived(snapshot=snapshot)):
            if isinstance(action, Solve):
                instance_of(action.view, settings)
                question_of(action.view, settings, 1.0)
    return snapshot


def follow(data: bytes) -> Any:
    """An ack, to the execution of a plan."""
    ack = decoded(data, Ack)
    ExecutionMachine(CLUSTER, ExecutionLimits(), IN_FLIGHT).on_event(NOW, AckSeen(ack=ack))
    return ack


def report(data: bytes) -> Any:
    """Statistics of a worker, twice, into a report that can be read: otherwise it would take the others' with it."""
    frame = decode_frame(data)
    if not isinstance(frame, Statistics):
        raise BadMessage(Fault.RANGE, "frame", type(frame).__name__, "statistics")
    check_statistics(W0, frame, NOW)
    roster = Roster({}, 1.0)
    roster.connect(HELLO)
    roster.report(W0, frame)
    roster.report(W0, frame)
    head = ReportHead(cluster=CLUSTER, host=HOST, interval_s=1.0)
    sample = HostSample(cpu_s=0.5, cores=2.0, basis="host")
    payload = assemble(head, end=NOW, sequence=1, sample=sample, rows=roster.take({}, 1.0))
    try:
        decoded(payload, Report)
    except BadMessage as refusal:
        raise AssertionError(f"the report is refused: {refusal.fault}") from refusal
    return frame


def obey(data: bytes) -> Any:
    """A command, to an agent whose workers are there; what it writes into its journal must be read again."""
    command = decoded(data, Command)
    machine = CommandMachine(cluster=CLUSTER, host=HOST, rules=RULES, started_at=NOW)
    for worker in (W0, W1):
        machine.on_event(NOW, WorkerConnected(worker=worker, app=APP, process=None, steering=True, reason=None))
        machine.on_event(NOW, WorkerReported(worker=worker, owned=frozenset(), complete=True))
    for _ in range(2):
        for action in machine.on_event(NOW, CommandReceived(command=command)):
            if isinstance(action, Write):
                assert decode_line(encode_line(action.entry)[:-1]) == action.entry
    return command


DECODERS = (
    Decoder(name="decider: snapshot", samples=(encode_snapshot(LOADED),), decode=decide, encode=encode_snapshot),
    Decoder(name="execution: ack", samples=(encoded(TOOK),), decode=follow, encode=encoded),
    Decoder(
        name="agent: command machine",
        samples=tuple(map(encoded, (PREPARE, RELEASE, STOP))),
        decode=obey,
        encode=encoded,
        seal=rehashed,
    ),
    Decoder(name="agent: statistics", samples=(encode_frame(STATISTICS)[:-1],), decode=report, encode=encode_frame),
)
