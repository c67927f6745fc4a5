"""Snapshots of an app on two workers, and how they are observed."""

from tests.controller.decider.decider_situations import APP, W0, W1, a_load, a_node, a_window, kg
from trimtab_controller.decider.memory.observe import Liveness, observe
from trimtab_controller.decider.memory.unknown_load import (
    Gaps,
    LastLoads,
    gaps_of,
    too_much_unknown,
    with_assumed_loads,
)
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_controller.decider.values.settings import Requirements
from trimtab_controller.decider.window.view import MeasuredView
from trimtab_controller.execution.state import placement_of
from trimtab_protocol.messages.names import Epoch, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.snapshot import KeyGroupWindow, NodeWindow, Snapshot

NEEDS = Requirements(min_coverage=0.95, max_age_s=45.0, lost_worker_s=60.0)
END_S = 1010.0


def owned(partition: int, worker: WorkerId, cpu: float | None = 0.1, state_bytes: int | None = 1000) -> KeyGroupWindow:
    return a_load(kg(partition), worker, cpu, state_bytes=state_bytes)


def snapshot(nodes: list[NodeWindow], key_groups: list[KeyGroupWindow], **changes: object) -> Snapshot:
    return a_window(
        END_S, nodes, key_groups, **({"hosts_seen": 20, "hosts_expected": 20, "published_ms": 1_010_500} | changes)
    )


WHOLE = snapshot([a_node(W0), a_node(W1)], [owned(0, W0), owned(1, W0), owned(2, W1)])
PLACEMENT = placement_of("c", APP, Epoch(1, 1), {kg(0): W0, kg(1): W0, kg(2): W1}, None)


def look(
    seen: Snapshot,
    placement: Placement | None = PLACEMENT,
    draining: frozenset[WorkerId] = frozenset(),
    liveness: Liveness | None = None,
) -> MeasuredView | NotReady:
    view = observe(
        seen,
        APP,
        placement=placement,
        draining=draining,
        liveness=liveness or Liveness(),
        needs=NEEDS,
    )
    if isinstance(view, NotReady):
        return view
    return too_much_unknown(view, known_gaps(view, LastLoads.of(view)), NEEDS.max_unknown) or view


def known_gaps(view: MeasuredView, last: LastLoads) -> Gaps:
    """What is not known of an app whose last known loads are these."""
    return gaps_of(view, with_assumed_loads(view, last))


def reason_of(found: MeasuredView | NotReady | None) -> SkipReason:
    assert isinstance(found, NotReady), found
    return found.reason
