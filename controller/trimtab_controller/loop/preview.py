"""What a controller would see and do now, found out without one: for `trimtab plan`, `trimtab snapshot`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from trimtab_controller.configuration import Configuration
from trimtab_controller.decider.decision import Decision
from trimtab_controller.decider.events import (
    Decided,
    HoldChanged,
    IntentsChanged,
    SnapshotArrived,
    Solve,
    SolverAnswered,
)
from trimtab_controller.decider.instance import question_of
from trimtab_controller.decider.machine import Decider
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.reader import drain, reading, since
from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.loop.recovery import RecoveredState, recover
from trimtab_controller.solver.answer import Answer, NoAnswer, Question
from trimtab_process.credential_files import load_trust
from trimtab_protocol.messages.intents import Pause
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.snapshot import Snapshot

WINDOWS = 12
"""As far back as the smoothing reaches in practice."""
LOOK_BACK_S = 120.0
"""So far back a window is looked for at least: one that is stale says more than none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What was read: the predecessor's state and the last windows, oldest first."""

    found: RecoveredState
    snapshots: tuple[Snapshot, ...]


def read_cluster_state(connection: Connection, configuration: Configuration, now: float) -> ClusterState:
    """Read the topics.  Raises ReadError, KafkaException, BadKey."""
    topics = Topics(configuration.cluster)
    trusted = load_trust(configuration.signing.trust) if configuration.signing else None
    inbox = Inbox(topics, lambda: now, trusted=trusted)
    found = recover(connection, topics, inbox, acting=False)
    from_s = now - max(LOOK_BACK_S, WINDOWS * configuration.stream.window_s + configuration.stream.watermark_s)
    with reading(connection, "present") as consumer:
        events = [
            inbox.take(message) for message in drain(consumer, since(consumer, topics.snapshots, from_s)).messages
        ]
    snapshots = tuple(event.snapshot for event in events if isinstance(event, SnapshotArrived))
    return ClusterState(found=found, snapshots=snapshots[-WINDOWS:])


def preview_decision(
    present: ClusterState, configuration: Configuration, now: float, answer: Callable[[Question], Answer | NoAnswer]
) -> tuple[Decision, Decider]:
    """The decision that a controller without pause and minimum interval would take on the last window."""
    settings = replace(configuration.balance, min_interval_s=0.0)
    decider = Decider(settings, configuration.needs, present.found.execution, acting=False)
    kept = tuple(intent for intent in present.found.intents.intents if not isinstance(intent, Pause))
    decider.on_event(now, IntentsChanged(intents=kept))
    decider.on_event(now, HoldChanged(reason="of earlier windows only the loads count"))
    # A window is on the topic twice when the stream was started again in between; it counts once.
    snapshots = tuple({snapshot.end_ms: snapshot for snapshot in present.snapshots}.values())
    for snapshot in snapshots[:-1]:
        decider.on_event(snapshot.end_ms / 1000.0, SnapshotArrived(snapshot=snapshot))
    hold = present.found.hold
    decider.on_event(now, HoldChanged(reason=None if hold is None else hold.reason))
    actions = []
    if snapshots:
        actions = decider.on_event(now, SnapshotArrived(snapshot=snapshots[-1]))
    else:
        decider.on_tick(now)
        actions = decider.on_tick(now + configuration.needs.max_age_s)
    for action in actions:
        match action:
            case Solve(view=view):
                question = question_of(view, settings, configuration.solver_time_limit_s)
                actions += decider.on_event(now, SolverAnswered(answer=answer(question)))
            case Decided(decision=decision):
                return decision, decider
            case _:
                pass
    raise AssertionError("every snapshot ends in a decision")
