"""How long started workers took until they ran."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import owned, snapshot
from trimtab_controller.decider.policies.sizes import KEPT, LONGEST_S, Starts
from trimtab_controller.execution.state import ScalingPhase, WorkerScaling
from trimtab_protocol.messages.commands import Command, CommandKind
from trimtab_protocol.messages.names import Epoch, HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

W1 = WorkerId("w1")


def seen(end_s: float, *, runs: bool = True) -> Snapshot:
    """A window in which w1 runs or recovers."""
    state = WorkerState.RUNNING if runs else WorkerState.RECOVERING
    made = snapshot([node(W0), node(W1, state=state)], [owned(0, W0)])
    return replace(made, start_ms=round(1000 * (end_s - 10.0)), end_ms=round(1000 * end_s))


def started(at: float, phase: ScalingPhase = ScalingPhase.DONE, kind: CommandKind = CommandKind.START) -> dict:
    command = Command(
        cluster="c",
        kind=kind,
        epoch=Epoch(1, round(at)),
        host=HostId("h1"),
        worker=W1,
        app=APP,
        issued_at=at,
        deadline=at + 60.0,
    )
    return {W1: WorkerScaling(command=command, phase=phase, at=at)}


def test_a_start_counts_from_the_command_until_the_window_in_which_the_worker_runs() -> None:
    made = Starts().after(seen(1000.0), {})
    made = made.after(seen(1010.0, runs=False), started(1003.0))
    assert made.measured_s(APP) is None
    made = made.after(seen(1020.0), started(1003.0))
    assert made.measured_s(APP) == 17.0
    assert made.after(seen(1030.0), started(1003.0)) == made, "it counts once"


def test_the_longest_of_the_last_starts_counts_and_none_beyond_the_limit() -> None:
    made, end_s = Starts().after(seen(1000.0), {}), 1000.0
    for took_s in (5_000.0, 30.0, 20.0):
        end_s += 10_000.0
        made = made.after(seen(end_s), started(end_s - took_s))
    assert made.took == {APP: (LONGEST_S, 30.0, 20.0)}
    for _ in range(KEPT - 2):
        end_s += 10_000.0
        made = made.after(seen(end_s), started(end_s - 10.0))
    assert made.measured_s(APP) == 30.0
    assert len(made.counted) == 1, "it does not grow"


def test_what_was_started_before_the_first_window_or_is_no_start_does_not_count() -> None:
    first = Starts().after(seen(1000.0), started(960.0))
    assert first.after(seen(1010.0), started(960.0)).took == {}
    assert first.after(seen(1010.0), started(1003.0, ScalingPhase.SENT)).took == {}
    assert first.after(seen(1010.0), started(1003.0, kind=CommandKind.STOP)).took == {}
    assert first.after(seen(1010.0), started(1012.0)).took == {}, "the window ended before the command"
