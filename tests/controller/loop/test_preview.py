"""What `trimtab plan` would do now, without a controller."""

from dataclasses import replace

from trimtab_controller.configuration import decode
from trimtab_controller.decider.decision import Skip
from trimtab_controller.decider.events import IntentsChanged
from trimtab_controller.decider.reasons import SkipReason
from trimtab_controller.execution.state import Execution
from trimtab_controller.loop.preview import ClusterState, preview_decision
from trimtab_controller.loop.recovery import RecoveredState
from trimtab_controller.solver.answer import NoAnswer
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, Snapshot

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
    signatures={},
    intents=IntentsChanged(intents=()),
    acks=(),
    acks_read={},
    status=None,
    positions=(),
)
APP, HOST, WORKERS = AppId("app"), HostId("h"), (WorkerId("w0"), WorkerId("w1"))


def window(end_s: int) -> Snapshot:
    """Two workers, and one key group that is all their load."""
    return Snapshot(
        cluster="c",
        start_ms=end_s * 1000 - 10_000,
        end_ms=end_s * 1000,
        published_ms=end_s * 1000,
        hosts_seen=1,
        hosts_expected=1,
        watermark_ms=None,
        late_rows=0,
        hosts=(HostWindow(host=HOST, covered_s=10.0, cpu=0.5, cores=1.0, basis=Basis.CONFIG),),
        nodes=tuple(
            NodeWindow(
                worker=worker, host=HOST, app=APP, state=WorkerState.RUNNING, capacity=1.0, covered_s=10.0, cpu=0.5,
                complete=True, steering=True,
            )
            for worker in WORKERS
        ),
        key_groups=(
            KeyGroupWindow(
                key_group=KeyGroup(APP, OperatorId("sums"), 0), worker=WORKERS[0], covered_s=10.0, cpu=0.5,
                tuples_in_s=1.0,
            ),
        ),
    )  # fmt: skip


def decided(*snapshots: Snapshot) -> SkipReason:
    decision, decider = preview_decision(
        ClusterState(found=FOUND, snapshots=snapshots), CONFIGURATION, 1062.0, lambda _: NoAnswer(reason="asked")
    )
    assert isinstance(decision, Skip)
    assert decider.known.snapshot == snapshots[-1]
    return decision.reason


def test_earlier_windows_count_by_the_time_they_had_then() -> None:
    windows = [window(end_s) for end_s in range(1010, 1070, 10)]
    assert decided(*windows) is SkipReason.SOLVER_FAILED, "it was asked"
    assert decided(*windows[1:]) is SkipReason.TOO_FEW_WINDOWS, "five are too few"


def test_a_window_that_was_published_twice_counts_once() -> None:
    windows = [window(end_s) for end_s in range(1020, 1070, 10)]
    assert decided(*windows, replace(windows[-1], published_ms=1_061_000)) is SkipReason.TOO_FEW_WINDOWS
