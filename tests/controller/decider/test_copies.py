"""What workers have of key groups on their disks, from a window."""

import pytest

from tests.controller.decider.decider_situations import a_load, a_node, a_window
from trimtab_controller.decider.window.copies import Held, state_held
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

APP, SUMS = AppId("app"), OperatorId("sums")
W0, W1, W2 = (WorkerId(f"w{number}") for number in range(3))


def node(
    worker: WorkerId, *copies: tuple[int, int], app: AppId = APP, state: WorkerState = WorkerState.RUNNING
) -> NodeWindow:
    return a_node(worker, app=app, state=state, copies=tuple(Copy(SUMS, *each) for each in copies))


def key_group(partition: int) -> KeyGroup:
    return KeyGroup(APP, SUMS, partition)


def window(*nodes: NodeWindow, written: dict[int, int | None]) -> Snapshot:
    rows = [a_load(key_group(at), W0, lag_records=records) for at, records in written.items()]
    return a_window(10.0, nodes, rows)


def test_a_copy_lacks_the_share_of_records_that_were_written_since() -> None:
    seen = window(node(W0), node(W1, (0, 75), (1, 500)), node(W2, (0, 20)), written={0: 100, 1: 400})
    held = state_held(seen, APP, None)
    assert held.lacking(key_group(0)) == {W1: 0.25, W2: 0.8}
    assert held.lacking(key_group(1)) == {W1: 0.0}, "its owner's figure is a moment older"
    assert held.lacking(key_group(2)) == {}


def test_a_copy_of_what_a_lost_worker_had_counts_by_what_that_said_last() -> None:
    lost = window(node(W1, (0, 50)), written={})
    before = [window(node(W1), written={}), window(node(W1), written={0: 200}), window(node(W1), written={0: 100})]
    assert state_held(lost, APP, None, before).on_disk == {key_group(0): {W1: 0.75}}
    assert state_held(lost, APP, None, before[:1]).on_disk == {}


@pytest.mark.parametrize(
    "seen",
    [
        None,
        window(node(W1, (0, 50)), written={}),
        window(node(W1, (0, 50)), written={0: None}),
        window(node(W1, (0, 50)), written={0: 0}),
        window(node(W1, (0, 50), app=AppId("other")), written={0: 100}),
        window(node(W1, (0, 50), state=WorkerState.RECOVERING), written={0: 100}),
    ],
)
def test_what_is_unknown_is_no_copy(seen: Snapshot | None) -> None:
    assert state_held(seen, APP, None) == Held()
