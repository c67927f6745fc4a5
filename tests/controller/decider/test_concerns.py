"""What an operator is told though balancing goes on: workers over their capacity, backlogs that grow."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_load, a_node, a_window, kg
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.decider.window.concerns import (
    NO_USE,
    ClusterUse,
    Growth,
    WorkerUse,
    concerns_of,
    follow_use,
    name_concerns,
)
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot


def node(worker: WorkerId, cpu: float | None, state: WorkerState = WorkerState.RUNNING) -> NodeWindow:
    """A worker of a quarter of a core."""
    return a_node(worker, host=HostId("h"), capacity=0.25, cpu=cpu, state=state)


def window(
    number: int, nodes: tuple[NodeWindow, ...], *key_groups: tuple[WorkerId, float | None, int | None]
) -> Snapshot:
    """Key groups with (owner, cores, backlog); each takes 20 inputs per second."""
    rows = [
        a_load(kg(place), worker, cpu, tuples_in_s=20.0, backlog=backlog)
        for place, (worker, cpu, backlog) in enumerate(key_groups)
    ]
    return a_window(10.0 * (number + 1), nodes, rows, hosts=())


def after(*snapshots: Snapshot) -> ClusterUse:
    use = NO_USE
    for snapshot in snapshots:
        use = follow_use(snapshot, use)
    return use


def used(*cores: float | None) -> ClusterUse:
    """Windows in which w0 used so much, and its two key groups were charged 0.02 each."""
    rows = ((W0, 0.02, 0), (W0, 0.02, 0))
    return after(*(window(number, (node(W0, each),), *rows) for number, each in enumerate(cores)))


def test_both_the_parts_and_the_whole_are_known_in_percent_of_the_capacity() -> None:
    use = used(0.12)

    assert use.workers == {
        W0: WorkerUse(
            app=APP,
            used_pct=pytest.approx(48.0),
            load_pct=pytest.approx(16.0),
            inputs_s=40.0,
            backlog=Growth(now=0, before=0),
        )
    }
    assert concerns_of(use) == ()


def test_a_worker_over_its_capacity_is_told_by_what_its_process_uses_whatever_its_key_groups_say() -> None:
    """110 % of the capacity, with a reported load of 16 %."""
    assert concerns_of(used(0.275, 0.275, 0.275)) == (
        Concern(
            kind=ConcernKind.OVER_CAPACITY,
            app=APP,
            workers=(W0,),
            detail="w0 uses 110 % of its capacity, its key groups 16 %; for 3 windows or longer",
        ),
    )


@pytest.mark.parametrize(
    "cores",
    [
        (0.3, 0.3),
        (0.3, 0.3, 0.25),
        (0.3, 0.3, 0.2, 0.3, 0.3),
        (None, None, None),
    ],
)
def test_a_short_while_above_the_capacity_is_no_concern(cores: tuple[float | None, ...]) -> None:
    assert concerns_of(used(*cores)) == ()


def test_a_worker_that_restores_is_no_concern_and_a_gap_begins_anew() -> None:
    restoring = (node(W0, 0.3, WorkerState.RECOVERING),)
    busy = (node(W0, 0.3),)

    assert concerns_of(after(*(window(number, restoring) for number in range(5)))) == ()
    assert concerns_of(after(window(0, busy), window(1, busy), window(5, busy))) == ()


def backlogs(*windows: tuple[int | None, int | None]) -> tuple[Concern, ...]:
    """Of w0 and w1, which take 200 inputs each in a window."""
    nodes = (node(W0, 0.1), node(W1, 0.1))
    return concerns_of(
        after(
            *(window(number, nodes, (W0, 0.1, here), (W1, 0.1, there)) for number, (here, there) in enumerate(windows))
        )
    )


def test_ten_million_inputs_that_wait_are_told() -> None:
    assert backlogs(*((4_000_000 + 1_000 * n, 6_000_000 + 2_000 * n) for n in range(4))) == (
        Concern(
            kind=ConcernKind.BACKLOG_GROWS,
            app=APP,
            workers=(W0, W1),
            detail=(
                "10,009,000 inputs wait (9,000 more than 30 s ago) in all, "
                "4,003,000 inputs wait (3,000 more than 30 s ago) at w0, "
                "6,006,000 inputs wait (6,000 more than 30 s ago) at w1"
            ),
        ),
    )


def test_whether_a_backlog_grows_too_fast_is_unknown_where_nobody_knows_what_is_worked_off() -> None:
    nodes, rows = (node(W0, 0.1),), []
    for number in range(4):
        (row,) = window(number, nodes, (W0, 0.1, number)).key_groups
        rows.append(replace(window(number, nodes), key_groups=(replace(row, tuples_in_s=None),)))
    assert concerns_of(after(*rows)) == ()


@pytest.mark.parametrize(
    ("waiting", "said"), [(0.62, "at w0, which waits for a core 62 % of the time"), (0.1, "at w0"), (None, "at w0")]
)
def test_of_a_backlog_at_a_worker_that_is_kept_from_the_cores_the_cause_is_told(
    waiting: float | None, said: str
) -> None:
    nodes = (replace(node(W0, 0.1), waiting=waiting),)
    [concern] = concerns_of(after(*(window(number, nodes, (W0, 0.1, 900 * number)) for number in range(4))))
    assert concern.kind is ConcernKind.BACKLOG_GROWS
    assert concern.detail.endswith(said)


def test_a_backlog_that_grows_at_one_worker_only_names_it() -> None:
    [concern] = backlogs((900, 0), (600, 500), (300, 900), (0, 1_200))
    assert concern.workers == (W1,)
    assert "in all" not in concern.detail


@pytest.mark.parametrize(
    "windows",
    [
        ((0, 0), (100, 0), (150, 0), (190, 0)),  # less than one window works off
        ((0, 0), (400, 0), (900, 0)),
        ((0, 0), (400, 0), (300, 0), (900, 0), (1_000, 0)),
        ((0, 0), (400, 0), (None, 0), (900, 0), (1_000, 0)),
    ],
)
def test_a_backlog_that_comes_and_goes_is_no_concern(windows: tuple[tuple[int | None, int | None], ...]) -> None:
    assert backlogs(*windows) == ()


def test_a_slow_growth_is_told_as_soon_as_it_is_more_than_a_window_works_off() -> None:
    slow = [(60 * n, 0) for n in range(8)]

    assert [len(backlogs(*slow[:count])) for count in range(1, 9)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_second_host_that_claims_a_worker_is_told() -> None:
    claimed = replace(node(W0, 0.1), claimed_by=(HostId("h9"),))
    [concern] = name_concerns(window(0, (claimed, node(W1, 0.1))))
    assert (concern.kind, concern.app, concern.workers) == (ConcernKind.WORKER_TWICE, APP, (W0,))
    assert concern.detail == "w0 runs on h, and h9 also claims it; the claim does not count"
