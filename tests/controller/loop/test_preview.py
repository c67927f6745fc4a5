"""What `trimtab plan` would do now, without a controller."""

from dataclasses import replace

import pytest

from tests.controller.cli.status_examples import STATUS
from tests.controller.decider.decider_situations import a_load, a_node, a_window
from tests.narrow import not_none, of_type
from trimtab_controller.configuration import decode
from trimtab_controller.decider.events import IntentsChanged, SolverAnswered
from trimtab_controller.decider.values.decision import Decision, Skip
from trimtab_controller.decider.values.reasons import SkipReason
from trimtab_controller.execution.journal import Flaw, Hold
from trimtab_controller.execution.state import Execution
from trimtab_controller.loop.preview import ClusterState, informed, preview_decision
from trimtab_controller.loop.recovery import RecoveredState
from trimtab_controller.solver.answer import NoAnswer
from trimtab_protocol.messages.intents import Pause
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot
from trimtab_protocol.messages.status import SignatureStatus

CONFIGURATION = decode(
    {
        "controller": {"cluster": "c"},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "stream": {"checkpoint_dir": "none"},
        "balance": {"min_windows": 6},
    }
)
FOUND = RecoveredState(
    execution=Execution(generation=1),
    placements=(),
    signers={},
    intents=IntentsChanged(intents=()),
    acks=(),
    acks_read={},
    status=None,
    positions=(),
)
APP, HOST, WORKERS = AppId("app"), HostId("h"), (WorkerId("w0"), WorkerId("w1"))


def window(end_s: int) -> Snapshot:
    """Two workers, and one key group that is all their load."""
    nodes = [a_node(worker, host=HOST, capacity=1.0, cpu=0.5) for worker in WORKERS]
    return a_window(end_s, nodes, [a_load(KeyGroup(APP, OperatorId("sums"), 0), WORKERS[0], 0.5)])


def decided(*snapshots: Snapshot) -> SkipReason:
    state = ClusterState(found=FOUND, snapshots=snapshots)
    decision = of_type(Skip, preview_decision(state, CONFIGURATION, 1062.0, lambda _: NoAnswer(reason="asked")))
    return decision.reason


def test_earlier_windows_count_by_the_time_they_had_then() -> None:
    windows = [window(end_s) for end_s in range(1010, 1070, 10)]
    assert decided(*windows) is SkipReason.SOLVER_FAILED, "it was asked"
    assert decided(*windows[1:]) is SkipReason.TOO_FEW_WINDOWS, "five are too few"


@pytest.mark.parametrize(("checking", "expected"), [("enforce", False), ("warn", True)])
def test_a_host_that_the_controller_has_revoked_is_not_planned_with(checking: str, *, expected: bool) -> None:
    told = replace(STATUS, signatures=SignatureStatus(checking=checking, enrolled=0, revoked=(HOST,)))
    state = ClusterState(found=replace(FOUND, acted=told), snapshots=(window(1060),))
    seen = not_none(informed(state, CONFIGURATION, 1062.0).known.snapshot)
    assert [row.steering for row in seen.nodes] == [expected] * 2


def test_without_a_window_and_with_a_stale_one_nothing_is_decided() -> None:
    assert decided() is SkipReason.NO_SNAPSHOT
    assert decided(window(1010)) is SkipReason.STALE_SNAPSHOT
    nothing = informed(ClusterState(found=FOUND, snapshots=()), CONFIGURATION, 1062.0).known
    assert nothing.not_ready is not None
    assert nothing.not_ready.reason is SkipReason.NO_SNAPSHOT


def test_a_hold_and_a_pause_of_a_predecessor() -> None:
    hold = Hold(flaw=Flaw.MISSING, detail="no entry", newest=Epoch(1, 1))
    pause = IntentsChanged(intents=(Pause(by="op", at=1000.0, reason="maintenance"),))
    windows = tuple(window(end_s) for end_s in range(1010, 1070, 10))

    def previewed(found: RecoveredState) -> Decision:
        state = ClusterState(found=found, snapshots=windows)
        return preview_decision(state, CONFIGURATION, 1062.0, lambda _: NoAnswer(reason="asked"))

    held, paused = previewed(replace(FOUND, hold=hold)), previewed(replace(FOUND, intents=pause))
    assert isinstance(held, Skip)
    assert held.reason is SkipReason.JOURNAL
    assert isinstance(paused, Skip)
    assert paused.reason is SkipReason.SOLVER_FAILED, "a preview passes over it"


def test_a_preview_changes_nothing() -> None:
    decider = informed(
        ClusterState(found=FOUND, snapshots=tuple(window(end_s) for end_s in range(1010, 1070, 10))),
        CONFIGURATION,
        1062.0,
    )
    first = decider.preview(1062.0, lambda _: NoAnswer(reason="asked"))
    assert decider.preview(1062.0, lambda _: NoAnswer(reason="asked")) == first
    assert decider.on_event(1063.0, SolverAnswered(answer=NoAnswer(reason="late"))) == [], "no question is open"
