"""What following costs is measured by app, and counts in N-1."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, a_node, kg
from tests.controller.decider.deciders import BALANCED, decider, execution, window
from trimtab_controller.decider.events import SnapshotArrived
from trimtab_controller.decider.memory.standby_choice import FOLLOWING_SHARE, Following
from trimtab_controller.decider.memory.standbys import LEAST_LOAD, MOST, SAMPLES, FollowingCosts
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_models.standbys.problem import StandbyBudget
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId
from trimtab_protocol.messages.snapshot import NodeWindow

H0 = HostId("h0")


def node(worker: WorkerId, following: float | None, *, app: AppId = APP, host: HostId = H0) -> NodeWindow:
    return a_node(worker, host=host, app=app, following=following)


def test_three_windows_are_needed_and_the_median_counts() -> None:
    costs = FollowingCosts()
    for following, known in ((0.02, None), (0.50, None), (0.04, 0.1)):
        costs.observe(APP, {W0: 40.0, W1: 0.0}, [node(W0, following), node(W1, 0.3)], {})
        assert costs.of(APP) == (None if known is None else pytest.approx(known)), "restores are above the median"
    assert costs.of(AppId("other")) is None


def test_workers_that_do_not_say_it_or_are_of_another_app_do_not_count() -> None:
    costs = FollowingCosts()
    rows = [node(W0, 0.04), node(W1, None), node(WorkerId("w2"), 0.9, app=AppId("other"))]
    for _ in range(3):
        costs.observe(APP, {W0: 20.0, W1: 500.0, WorkerId("w2"): 20.0}, rows, {H0: 0.5})
    assert costs.of(APP) == pytest.approx(0.1), "a core of a slow host is half a reference core"


def test_too_little_load_says_nothing_and_the_share_is_limited() -> None:
    costs = FollowingCosts()
    for _ in range(3):
        costs.observe(APP, {W0: 0.9 * LEAST_LOAD}, [node(W0, 0.3)], {})
    assert costs.of(APP) is None
    for _ in range(3):
        costs.observe(APP, {W0: LEAST_LOAD}, [node(W0, 0.3)], {})
    assert costs.of(APP) == MOST
    for _ in range(SAMPLES):
        costs.observe(APP, {W0: 10.0}, [node(W0, 0.03)], {})
    assert costs.of(APP) == pytest.approx(0.3), "only the last windows count"
    costs.keep([])
    assert costs.of(APP) is None


def following(arrived: SnapshotArrived, cores: float) -> SnapshotArrived:
    nodes = tuple(replace(row, standbys=1, following=cores) for row in arrived.snapshot.nodes)
    return SnapshotArrived(snapshot=replace(arrived.snapshot, nodes=nodes))


def test_the_measured_share_counts_when_standbys_are_chosen() -> None:
    present = execution(BALANCED)
    rows = {kg(0): (W0, W1), kg(1): (W1, W0)}
    placement = present.placements[APP].changed(Epoch(1, 5), rows)
    made = decider(replace(present, placements={APP: placement}))
    shares = []
    for end_s in (1010.0, 1020.0, 1030.0, 1040.0):
        made.on_event(end_s + 1.0, following(window(BALANCED, end_s), 0.05))
        view = made.known.views[APP]
        assert isinstance(view, SmoothedView)
        problem = Following.of(view, placement).problem(view, 1, StandbyBudget(), 0.0)
        shares.append(float((problem.follow / problem.load)[0]))
    measured = made.known.following[APP]
    assert measured == pytest.approx(200.0 * 0.05 / float(view.owned.load.sum()))
    assert shares == pytest.approx([FOLLOWING_SHARE] * 3 + [measured])
