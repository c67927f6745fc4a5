"""What the decider makes of the solver's answers, and of what happens while the solver works."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, OPERATOR, W0
from tests.controller.decider.deciders import ON_W0, PAUSE, answer, decider, execution, only, window
from trimtab_controller.decider.events import IntentsChanged, SnapshotArrived, Solve, SolverAnswered
from trimtab_controller.decider.values.decision import Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.state import placement_of
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.names import AppId, Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState


@pytest.mark.parametrize(
    "reply",
    [answer(), answer((2, 1), to=14.6), SolverAnswered(answer=NoAnswer(reason="no node"))],
)
def test_an_answer_that_brings_nothing(reply: SolverAnswered) -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    decision = only(made.on_event(1012.0, reply))
    assert isinstance(decision, Skip)
    failed = isinstance(reply.answer, NoAnswer)
    assert decision.reason is (SkipReason.SOLVER_FAILED if failed else SkipReason.NOTHING_BETTER)


def test_that_the_greedy_method_finds_nothing_is_said_as_the_solver_s_failure() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    reply = answer((2, 1), to=14.6)
    assert isinstance(reply.answer, Answer)
    decision = only(made.on_event(1012.0, replace(reply, answer=replace(reply.answer, fallback=True))))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.SOLVER_FAILED
    assert decision.detail.endswith("by the greedy method as the solver gave no answer")


def test_a_pause_that_comes_while_the_solver_works_holds() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    made.on_event(1011.2, IntentsChanged(intents=(PAUSE,)))
    decision = only(made.on_event(1012.0, answer((2, 1))))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.PAUSED


def test_what_a_newer_window_lacks_counts_while_the_solver_works() -> None:
    """Such as two of five hosts that are lost at once."""
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    assert made.on_event(1021.0, window(ON_W0, 1020.0, workers=(W0,))) == []
    decision = only(made.on_event(1021.5, answer((2, 1))))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.HOSTS_LOST


def test_a_worker_that_is_lost_while_the_solver_works_is_given_nothing() -> None:
    made = decider(execution(ON_W0))
    made.on_event(1011.0, window(ON_W0))
    later = window(ON_W0, 1020.0).snapshot
    nodes = (later.nodes[0], replace(later.nodes[1], state=WorkerState.RECOVERING))
    made.on_event(1021.0, SnapshotArrived(snapshot=replace(later, nodes=nodes)))
    decision = only(made.on_event(1021.5, answer((2, 1))))
    assert isinstance(decision, Skip)
    assert decision.reason is SkipReason.WORKER_NOT_RUNNING


def test_an_app_that_nothing_makes_better_does_not_keep_the_others_waiting() -> None:
    """One key group is all the load of the first app: no move evens that out, and its load distance is the largest."""
    lone, there = AppId("lone"), (WorkerId("w2"), WorkerId("w3"))
    other = {KeyGroup(lone, OPERATOR, 0): there[0]}
    placements = {**execution(ON_W0).placements, lone: placement_of("c", lone, Epoch(1, 1), other, None)}
    made = decider(execution(None, placements=placements))
    asked = []
    for number in range(3):
        end_s = 1010.0 + 10.0 * number
        seen, beside = window(ON_W0, end_s).snapshot, window(other, end_s, cpu=0.9, workers=there).snapshot
        nodes = (*seen.nodes, *(replace(row, app=lone) for row in beside.nodes))
        both = replace(seen, nodes=nodes, key_groups=(*seen.key_groups, *beside.key_groups))
        actions = made.on_event(end_s + 1.0, SnapshotArrived(snapshot=both))
        while isinstance(solve := actions[-1], Solve):
            asked.append(solve.view.app)
            actions = made.on_event(end_s + 2.0, answer((0, 1)) if len(asked) == 4 else answer())
    assert asked == [lone, APP] * 3
