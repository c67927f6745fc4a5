"""Computes what a controller would see and decide now, for `trimtab plan` and `trimtab snapshot`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from trimtab_controller.configuration import Configuration
from trimtab_controller.decider.events import HoldChanged, HostsRevoked, IntentsChanged, SnapshotArrived
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Decision
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.reader import drain, reading, since
from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.loop.recovery import RecoveredState, recalled_costs, recover
from trimtab_controller.solver.answer import Answer, NoAnswer, Question
from trimtab_process.credential_files import load_trust
from trimtab_protocol.messages.intents import Pause
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.signing.keys import TrustedKeys

WINDOWS = 12
"""Number of windows to read; older ones hardly count in the smoothed loads."""
LOOK_BACK_S = 120.0
"""How far back to read at least; a stale window is better than none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The state that was read: that of the last controller, and the last windows, oldest first."""

    found: RecoveredState
    snapshots: tuple[Snapshot, ...]


def read_cluster_state(connection: Connection, configuration: Configuration, now: float) -> ClusterState:
    """Read the topics.  Raises ReadError, KafkaException, BadKey."""
    trusted = load_trust(configuration.signing.trust) if configuration.signing else None
    return read_trusted_state(connection, configuration, now, trusted)


def read_trusted_state(
    connection: Connection, configuration: Configuration, now: float, trusted: TrustedKeys | None
) -> ClusterState:
    """Read the topics; `trusted` = the keys that may sign placements, None: any may.  Raises as above."""
    topics = Topics(configuration.cluster)
    inbox = Inbox(topics, lambda: now, trusted=trusted)
    found = recover(connection, topics, inbox, acting=False)
    from_s = now - max(LOOK_BACK_S, WINDOWS * configuration.stream.window_s + configuration.stream.watermark_s)
    with reading(connection, "present") as consumer:
        events = [
            inbox.take(message) for message in drain(consumer, since(consumer, topics.snapshots, from_s)).messages
        ]
    snapshots = tuple(event.snapshot for event in events if isinstance(event, SnapshotArrived))
    return ClusterState(found=found, snapshots=snapshots[-WINDOWS:])


def informed(state: ClusterState, configuration: Configuration, now: float) -> Decider:
    """A dry-run decider that has seen the state; it ignores pause and minimum interval."""
    settings = replace(configuration.balance, min_interval_s=0.0)
    decider = Decider(
        settings,
        configuration.needs,
        state.found.execution,
        acting=False,
        scaling=configuration.scaling,
        plans=configuration.plans,
        rules=configuration.rules,
        recalled=recalled_costs(state.found.acted),
        budget=PauseBudget.of(configuration.execution),
    )
    intents = state.found.intents.intents
    decider.on_event(now, IntentsChanged(intents=tuple(each for each in intents if not isinstance(each, Pause))))
    if (hold := state.found.hold) is not None:
        decider.on_event(now, HoldChanged(reason=hold.reason))
    signatures = state.found.acted.signatures if state.found.acted is not None else None
    if signatures is not None and signatures.enforced:
        decider.on_event(now, HostsRevoked(hosts=frozenset(signatures.revoked)))
    # A restarted stream publishes a window twice; the later one counts.
    windows = {snapshot.end_ms: snapshot for snapshot in state.snapshots}
    for end_ms in sorted(windows):
        last = end_ms == max(windows)
        decider.record(now if last else end_ms / 1000.0, windows[end_ms])
    return decider


def preview_decision(
    state: ClusterState, configuration: Configuration, now: float, answer: Callable[[Question], Answer | NoAnswer]
) -> Decision:
    """The decision that a controller would make on the last window, ignoring pause and minimum interval."""
    settings = configuration.balance
    decider = informed(state, configuration, now)
    return decider.preview(now, lambda view: answer(question_of(view, settings, settings.solver_time_limit_s)))
