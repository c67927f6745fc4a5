"""Hosts whose key is revoked: what is said for them is dropped, so the decider gives their workers nothing."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_handover, a_round, a_scaling, kg
from tests.controller.decider.deciders import ON_W0, PAUSE, answer, decider, execution, only, window, with_all
from tests.controller.decider.lost_worker import OWNERS, W2, W3, decision_of, targets
from tests.controller.decider.lost_worker import decider as lost_decider
from tests.controller.decider.lost_worker import seen as seen_lost
from tests.controller.decider.test_decider_sizes import ACT, seen
from tests.controller.decider.test_decider_sizes import decider as sizing
from tests.controller.decider.test_orphans import balancing, in_flight
from tests.controller.execution.execution_transcripts import PREPARE
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import (
    Decided,
    ExecutionChanged,
    HoldChanged,
    HostsRevoked,
    IntentsChanged,
    SnapshotArrived,
    Solve,
)
from trimtab_controller.decider.values.decision import PlanEnded, Planned, Resized, Scaled, Skip, StandbysPlaced
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.execution.events import Publish, StopWanted
from trimtab_controller.execution.state import Execution, Handover, HandoverPhase
from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

H0, H1, H2 = HostId("h0"), HostId("h1"), HostId("h2")
THREE = (W0, W1, W2)
REASON = "the key of h1 is revoked"


def revoked(*hosts: HostId) -> HostsRevoked:
    return HostsRevoked(hosts=frozenset(hosts))


def three(end_s: float = 1010.0) -> SnapshotArrived:
    """Three workers; all key groups are on the first."""
    return window(ON_W0, end_s, workers=THREE)


def handover(phase: HandoverPhase, source: WorkerId = W0, target: WorkerId = W1) -> Handover:
    def command(kind: CommandKind) -> Command:
        generation = 1 if kind is CommandKind.RELEASE else None
        return replace(PREPARE, kind=kind, worker=target, source=source, target=target, generation=generation)

    begun = phase is not HandoverPhase.WAITING
    return a_handover(
        kg(0),
        source=source,
        target=target,
        phase=phase,
        attempt=int(begun),
        prepare=command(CommandKind.PREPARE) if begun else None,
        release=command(CommandKind.RELEASE) if phase is HandoverPhase.RELEASING else None,
    )


def moving(*handovers: Handover, **changes: object) -> Execution:
    return execution(ON_W0, rounds={APP: a_round(None, *handovers, **changes)})


# ---- windows


def test_workers_of_a_host_whose_key_is_revoked_only_report() -> None:
    made = decider(execution(ON_W0))
    assert made.on_event(1000.0, revoked(H1)) == []

    solve = only_one(Solve, made.on_event(1011.0, three()))
    assert [worker.id for worker in solve.view.workers] == [W0, W2]
    view = of_type(SmoothedView, made.known.views[APP])
    [fixed] = view.fixed
    assert (fixed.id, fixed.why) == (W1, f"worker_not_steering: {REASON}")
    assert isinstance(made.known.snapshot, Snapshot)
    shown = {row.worker: (row.steering, row.reason) for row in made.known.snapshot.nodes}
    assert shown == {W0: (True, None), W1: (False, REASON), W2: (True, None)}
    assert made.known.hosts == {H0, H2}


def test_a_host_with_a_new_key_is_planned_with_again() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1000.0, revoked(H1))
    made.on_event(1001.0, revoked())
    solve = only_one(Solve, made.on_event(1011.0, three()))
    assert [worker.id for worker in solve.view.workers] == [W0, W1, W2]


def test_no_standby_is_placed_there_and_those_there_are_replaced() -> None:
    owners = {kg(0): W0, kg(1): W1, kg(2): W2}
    for hosts, expected in ((), {W0, W1, W2}), ((H1,), {W0, W2}):
        made = decider(execution(owners))
        made.on_event(1000.0, revoked(*hosts))
        found = of_type(
            StandbysPlaced, only(made.on_event(1011.0, with_all(window(owners, workers=THREE), standbys=1)))
        )
        assert {each for row in found.rows.values() for each in row[1:]} == expected


def test_workers_there_are_not_started() -> None:
    for hosts, expected in ((), [W2]), ((H2,), [W3]):
        made = sizing(execution({kg(0): W0, kg(1): W1}), scaling=ACT)
        made.on_event(1000.0, revoked(*hosts))
        only(made.on_event(1011.0, seen(1010.0, 0.95, W2, W3)))
        found = of_type(Resized, only(made.on_event(1021.0, seen(1020.0, 0.95, W2, W3))))
        assert list(found.start) == expected


def test_why_a_worker_is_away_is_still_told() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1000.0, revoked(H1))
    nodes = list(three().snapshot.nodes)
    nodes[1] = replace(
        nodes[1], app=None, state=WorkerState.AWAY, steering=False, absence=Absence.CRASHED, reason="crashed 5 times"
    )
    made.on_event(1011.0, SnapshotArrived(snapshot=replace(three().snapshot, nodes=tuple(nodes))))
    assert made.known.snapshot is not None
    assert made.known.snapshot.nodes[1].reason == "crashed 5 times"


# ---- between two windows


def test_a_plan_that_the_solver_makes_meanwhile_is_not_carried_out() -> None:
    made = decider(execution(ON_W0))
    solve = only_one(Solve, made.on_event(1011.0, three()))
    assert made.on_event(1011.2, revoked(H1)) == []

    skip = of_type(Skip, only(made.on_event(1011.5, answer((0, 1)))))
    assert skip.reason is SkipReason.WORKER_NOT_STEERING
    assert skip.detail == (
        "worker_not_steering: workers on hosts whose key was revoked after the last window: w1 on h1"
    )
    solve = only_one(Solve, made.on_event(1021.0, three(1020.0)))
    assert [worker.id for worker in solve.view.workers] == [W0, W2]


def test_a_host_that_the_last_window_does_not_show_holds_nothing_up() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, three())
    made.on_event(1011.2, revoked(HostId("h9")))
    assert isinstance(only(made.on_event(1011.5, answer((0, 1)))), Planned)


def test_a_host_that_was_revoked_before_holds_up_no_further_window() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, three())
    made.on_event(1011.1, revoked(H2))
    made.on_event(1021.0, three(1020.0))
    assert made.known.not_ready is None
    made.on_event(1021.1, revoked(H2, HostId("h9")))
    assert made.known.not_ready is None


def test_a_worker_there_is_not_started_again_when_its_drain_has_ended() -> None:
    stopped = {W1: a_scaling(CommandKind.STOP)}
    owners = {kg(0): W0, kg(1): W2}
    for hosts in (), (H1,):
        made = decider(execution(owners, scalings=stopped), PAUSE)
        made.on_event(1005.0, revoked(*hosts))
        made.on_event(1011.0, window(owners, workers=THREE))
        made.on_event(1012.0, IntentsChanged(intents=()))
        found = only(made.on_event(1021.0, window(owners, 1020.0, workers=THREE)))
        assert isinstance(found, Scaled) is not bool(hosts)


# ---- plans in flight


@pytest.mark.parametrize("phase", [HandoverPhase.WAITING, HandoverPhase.PREPARING])
@pytest.mark.parametrize("host", [H0, H1])
def test_a_plan_that_needs_the_host_ends_early(phase: HandoverPhase, host: HostId) -> None:
    made = decider(moving(handover(phase)))
    made.on_event(1011.0, three())

    ended = only(made.on_event(1011.2, revoked(host)))

    detail = f"ended early, since the key of {host} is revoked, and nobody would hear of its hand-overs there"
    assert ended == PlanEnded(app=APP, reason=detail)


def test_a_plan_goes_on_that_does_not_need_the_host_or_has_only_released_there() -> None:
    for handovers in (handover(HandoverPhase.PREPARING, target=W2),), (handover(HandoverPhase.RELEASING),):
        made = decider(moving(*handovers))
        made.on_event(1011.0, three())
        assert made.on_event(1011.2, revoked(H1)) == []


def test_a_plan_is_ended_once() -> None:
    made = decider(moving(handover(HandoverPhase.PREPARING)))
    made.on_event(1011.0, three())
    only(made.on_event(1011.2, revoked(H1)))
    left = moving(handover(HandoverPhase.RELEASING), handover(HandoverPhase.FAILED), stopped="ended early")
    made.on_event(1011.3, ExecutionChanged(execution=left))
    assert made.on_event(1011.4, revoked(H1, H2)) == []


def test_a_new_leader_ends_it_with_its_first_window() -> None:
    made = decider(moving(handover(HandoverPhase.PREPARING)))
    assert made.on_event(1000.0, revoked(H1)) == []
    assert isinstance(only(made.on_event(1011.0, three())), PlanEnded)


def test_who_only_looks_on_or_does_not_trust_the_journal_ends_nothing() -> None:
    present = moving(handover(HandoverPhase.PREPARING))
    looking_on, holding = decider(present, acting=False), decider(present)
    holding.on_event(1000.0, HoldChanged(reason="a broken journal"))
    for made in (looking_on, holding):
        made.on_event(1011.0, three())
        assert made.on_event(1011.2, revoked(H1)) == []


def test_what_is_not_released_stays_where_it_was_and_the_target_closes_it() -> None:
    made = balancing()
    to_w1 = seen_lost(0).nodes[1].host
    action = only_one(Decided, made.made.on_event(1011.5, revoked(to_w1)))
    assert isinstance(action.decision, StopWanted)

    published, *_ = made.execution.on_event(1011.5, action.decision)

    assert isinstance(published, Publish)
    assert {command.kind for command in published.commands} == {CommandKind.ABANDON}
    assert [each.phase for each in made.execution.state.rounds[APP].handovers] == [HandoverPhase.FAILED] * 2
    placement = made.execution.state.placements[APP]
    assert {each: placement.of(each.operator, each.partition) for each in OWNERS} == {
        each: (owner,) for each, owner in OWNERS.items()
    }


# ---- orphans


def test_orphans_get_no_home_there() -> None:
    made = lost_decider({})
    made.on_event(1000.0, revoked(seen_lost(0).nodes[1].host))
    decision_of(made, 0, seen_lost(0))
    found = of_type(Planned, decision_of(made, 1, seen_lost(1, lost=W0)))
    assert set(targets(found).values()) == {W2, W3}


def test_a_standby_there_is_no_home_either() -> None:
    made = lost_decider({kg(0): (W0, W1)})
    made.on_event(1000.0, revoked(seen_lost(0).nodes[1].host))
    for number in (0, 1):
        decision_of(made, number, seen_lost(number, lost=W0 if number else None))
    found = decision_of(made, 2, seen_lost(2, lost=W0))
    assert targets(found)[kg(0)] in (W2, W3)


def test_a_restore_that_was_to_run_there_is_given_to_others_and_the_rest_goes_on() -> None:
    made = in_flight()
    first = made.targets
    assert W3 in first.values()
    assert made.made.on_event(1031.0, revoked(seen_lost(0).nodes[3].host)) == []
    made.window(W0)
    assert of_type(Planned, made.window(W0)).plan.detail.endswith("; added to plan 1.2")
    assert set(made.targets.values()) <= {W1, W2}
    assert all(made.targets[each] == target for each, target in first.items() if target != W3), "these stay"
