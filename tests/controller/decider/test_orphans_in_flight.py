"""Orphans while a plan is in flight."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.lost_worker import (
    OWNERS,
    W0,
    W1,
    W2,
    W3,
    W4,
    decider,
    decision_of,
    seen,
    stated,
)
from trimtab_controller.decider.events import Decided, ExecutionChanged
from trimtab_controller.decider.values.decision import PlanEnded, Planned, Skip
from trimtab_controller.execution.events import AckSeen, ExecutionLimits, PlanDecided, ScalingWanted, StopWanted
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import ENDED, HandoverPhase
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_models.dyndl.targets import OnlineRestore, choose_online
from trimtab_protocol.messages.commands import Ack, CommandKind, Phase
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow


class Growing:
    """A decider with the execution that carries its plans out; restores begin, one at a time on each host."""

    def __init__(
        self, standbys: dict[KeyGroup, tuple[WorkerId, ...]] | None = None, busy: WorkerId | None = None
    ) -> None:
        """`busy` = a worker that is too busy to be given anything."""
        self.made = decider(standbys or {}, band=60.0 if busy else 5.0)
        self.busy = busy
        self.execution = ExecutionMachine(
            "c", ExecutionLimits(key_groups_per_handover=1, restores_at_first=100), self.made._situation.execution
        )
        self.number = -1

    def window(self, *lost: WorkerId, joined: bool = False) -> object:
        """The decision of the next window, in which these workers are away."""
        self.number += 1
        found = seen(self.number)
        nodes = [
            replace(row, state=WorkerState.AWAY, app=None, cpu=None) if row.worker in lost else row
            for row in (*found.nodes, *([node(W4, capacity=1.0, cpu=0.0, standbys=0)] if joined else []))
        ]
        groups = [
            replace(row, cpu=0.19) if row.worker == self.busy else row
            for row in found.key_groups
            if row.worker not in lost
        ]
        hosts = tuple(
            HostWindow(host=row.host, covered_s=10.0, cpu=0.1, cores=1.0, basis=Basis.HOST) for row in found.nodes
        )
        sizes = dict.fromkeys(OWNERS, 100000000)
        window = stated(replace(found, nodes=tuple(nodes), key_groups=groups, hosts=hosts), sizes)
        decision = decision_of(self.made, self.number, window)
        if isinstance(decision, Planned):
            self.execution.on_event(1010.0 + 10 * self.number, PlanDecided(plan=decision.plan))
            self.made.on_event(0.0, ExecutionChanged(execution=self.execution.state))
        return decision

    @property
    def targets(self) -> dict[KeyGroup, WorkerId]:
        """Of all hand-overs that have not ended."""
        rows = [each for each in self.execution.state.rounds[APP].handovers if each.phase not in ENDED]
        found = [(each, row.target) for row in rows for each in row.key_groups]
        assert len(found) == len(dict(found)), "each key group has one target"
        return dict(found)


def in_flight(made: Growing | None = None) -> Growing:
    """W0 is lost, and the plan for its key groups has begun."""
    made = made or Growing()
    made.window()
    made.window(W0)
    assert isinstance(made.window(W0), Planned)
    return made


def test_a_worker_that_is_lost_while_the_plan_is_in_flight_adds_to_it() -> None:
    made = in_flight()
    first = made.targets
    assert isinstance(made.window(W0, W3), Skip), "its agent may only be restarting"
    found = made.window(W0, W3)
    assert isinstance(found, Planned)
    assert found.plan.detail.endswith("; added to plan 1.2")
    to_w3 = {each for each, target in first.items() if target == W3}
    assert {move.key_group for move in found.plan.moves} == {kg(at) for at in range(12, 16)} | to_w3
    assert {move.source for move in found.plan.moves if move.key_group in to_w3} <= {W0}
    assert len(made.targets) == 8
    assert set(made.targets.values()) <= {W1, W2}
    assert all(made.targets[each] == target for each, target in first.items() if target != W3), "these stay"
    assert made.execution.state.rounds[APP].plan == "1.2", "still the same plan"
    assert not isinstance(made.window(W0, W3), Planned), "once"


def test_of_a_single_orphan_dyndlon_decides_by_what_hosts_restore_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """w3 is lost while w1 and w2 restore, and only its key group 12 has no standby."""
    asked: list[OnlineRestore] = []

    def noted(restore: OnlineRestore) -> int:
        asked.append(restore)
        return choose_online(restore)

    monkeypatch.setattr("trimtab_controller.decider.policies.orphan_placing.choose_online", noted)
    made = in_flight(Growing({kg(place): (W3, W1) for place in (13, 14, 15)}, busy=W3))
    assert set(made.targets.values()) == {W1, W2}
    assert asked == []
    made.window(W0, W3)
    found = made.window(W0, W3)
    assert isinstance(found, Planned)
    assert [move.key_group for move in found.plan.moves] == [kg(12)]
    [restore] = asked
    assert restore.beside.tolist() == [1, 1], "each host has one core, and restores for the first loss"
    assert min(restore.free_in) > 0.0
    assert made.targets[kg(12)] == (W1, W2)[choose_online(restore)]


def test_a_worker_that_joins_gets_restores_that_have_not_begun() -> None:
    made = in_flight()
    begun = {
        each
        for row in made.execution.state.rounds[APP].handovers
        if row.phase is HandoverPhase.PREPARING
        for each in row.key_groups
    }
    before = made.targets
    assert 0 < len(begun) < len(before)
    found = made.window(W0, joined=True)
    assert isinstance(found, Planned)
    assert {move.target for move in found.plan.moves} == {W4}, "what stays where it was is no move"
    assert begun.isdisjoint(move.key_group for move in found.plan.moves)
    assert all(made.targets[each] == before[each] for each in begun)
    assert not isinstance(made.window(W0, joined=True), Planned), "once"


def test_nothing_is_added_to_a_plan_that_an_operator_has_stopped() -> None:
    made = in_flight()
    row = replace(made.execution.state.rounds[APP], stopped="enough")
    stopped = replace(made.execution.state, rounds={APP: row})
    made.made.on_event(0.0, ExecutionChanged(execution=stopped))
    for _ in range(3):
        assert not isinstance(made.window(W0, W3), Planned)


def test_a_plan_does_not_grow_beyond_what_is_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_controller.decider.policies.next_owners.MOST_SCHEDULED", 5)
    made = in_flight()
    for _ in range(3):
        assert isinstance(made.window(W0, W3), Skip)


def balancing(standbys: dict[KeyGroup, tuple[WorkerId, ...]] | None = None) -> Growing:
    """A plan for balance is in flight: w1 is about to get a key group of w2, and then one of w0."""
    made = Growing(standbys)
    made.window()
    moves = (
        Move(key_group=kg(8), source=W2, target=W1, state_bytes=1),
        Move(key_group=kg(0), source=W0, target=W1, state_bytes=1),
    )
    plan = Plan(
        app=APP,
        reason=PlanReason.LOAD_DISTANCE,
        detail="load distance 18.4 above 5.0",
        moves=moves,
        hosts={row.worker: row.host for row in seen(0).nodes},
        before=18.4,
        planned=1.1,
        lower_bound=0.0,
        status="optimal",
    )
    made.execution.on_event(1011.0, PlanDecided(plan=plan))
    made.made.on_event(1011.0, ExecutionChanged(execution=made.execution.state))
    return made


def carry_out(made: Growing, now: float, ended: PlanEnded) -> None:
    made.execution.on_event(now, StopWanted(app=ended.app, reason=ended.detail, lost=ended.lost))
    made.made.on_event(now, ExecutionChanged(execution=made.execution.state))


def tick(made: Growing, now: float) -> Planned:
    [action] = made.made.on_tick(now)
    assert isinstance(action, Decided)
    assert isinstance(action.decision, Planned)
    return action.decision


def test_a_plan_for_balance_ends_early_and_the_next_owners_are_named_at_once() -> None:
    made = balancing()
    assert not isinstance(made.window(W0), PlanEnded), "its agent may only be restarting"
    ended = made.window(W0)
    assert ended == PlanEnded(
        app=APP, lost=frozenset({W0}), detail="ended early, since w0 is away and 3 key groups need a next owner"
    )
    assert isinstance(ended, PlanEnded)
    carry_out(made, 1031.0, ended)
    assert made.made.wake_at == 1031.0
    found = tick(made, 1031.0)
    assert {move.key_group for move in found.plan.moves} == {kg(1), kg(2), kg(3)}, "w1 restores the other one already"
    made.execution.on_event(1031.1, PlanDecided(plan=found.plan))
    assert made.execution.state.rounds[APP].lost
    assert made.execution.state.placements[APP].of("sums", 0) == (W0, W1)


def test_the_next_owners_wait_only_for_what_is_released() -> None:
    made = balancing()
    first = made.execution.state.rounds[APP].handovers[0]
    assert first.key_groups == (kg(8),)
    assert first.prepare is not None
    made.execution.on_event(1012.0, AckSeen(ack=Ack.to(first.prepare, Phase.PREPARED, at=1012.0, generation=7)))
    made.window(W0)
    ended = made.window(W0)
    assert isinstance(ended, PlanEnded)
    carry_out(made, 1031.0, ended)
    assert made.execution.state.busy(APP), "w2 and w1 talk to each other"
    assert made.made.on_tick(1031.1) == []
    made.execution.on_event(1031.2, AckSeen(ack=Ack.to(first.prepare, Phase.TOOK, at=1031.2)))
    made.made.on_event(1031.2, ExecutionChanged(execution=made.execution.state))
    assert {move.source for move in tick(made, 1031.2).plan.moves} == {W0}


def test_a_plan_goes_on_where_living_standbys_take_over() -> None:
    made = balancing({kg(place): (W0, W1) for place in range(4)})
    for _ in range(3):
        assert isinstance(made.window(W0), Skip)


def test_next_owners_are_named_while_an_operator_s_stop_of_a_worker_is_under_way() -> None:
    made = Growing()
    made.window()
    host = seen(0).nodes[3].host
    made.execution.on_event(1011.0, ScalingWanted(kind=CommandKind.STOP, worker=WorkerId("w9"), host=host))
    made.made.on_event(1011.0, ExecutionChanged(execution=made.execution.state))
    made.window(W0)
    assert isinstance(made.window(W0), Planned)
