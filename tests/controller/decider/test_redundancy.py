"""How long key groups lack an owner or a warm standby: what was planned, what is measured, and when it is too long."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, kg
from tests.controller.decider.lost_worker import OWNERS, W0, W1, W2, W3, decider, decision_of, seen
from tests.narrow import not_none, of_type
from trimtab_controller.decider.events import ExecutionChanged
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.redundancy import LATE_S, UNPLANNED_S, RedundancyGap
from trimtab_controller.decider.values.decision import Adopted, StandbysPlaced
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_protocol.messages.names import Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.snapshot import Snapshot

WORKERS = (W0, W1, W2, W3)
STANDBYS = {
    each: (owner, next(other for other in WORKERS[each.partition % 4 :] + WORKERS if other != owner))
    for each, owner in OWNERS.items()
}
TAKEN = {kg(place): STANDBYS[kg(place)][1] for place in range(4)}
LACKING = sum(W0 in row for row in STANDBYS.values())
"""Key groups that lose their owner or their standby with w0."""
OLD, NEW = Epoch(1, 1), Epoch(1, 2)


def told(window: Snapshot, cold: int | None, epoch: Epoch = OLD) -> Snapshot:
    """The window in which each worker asks for one standby and says that so many are not warm."""
    return replace(window, nodes=tuple(replace(row, standbys=1, cold=cold, epoch=epoch) for row in window.nodes))


def gap_of(made: Decider) -> RedundancyGap | None:
    return made.known.redundancy[APP]


def after_loss(windows: int, cold: int | None = 0) -> Decider:
    """A decider after so many windows; from the second one on w0 is away, from the fourth one on others have its work.

    `cold` = what workers say in the last one.
    """
    made = decider(STANDBYS, band=50.0)
    for number in range(windows):
        said = cold if number == windows - 1 else 0
        lost, taken = (W0 if number else None), (TAKEN if number >= 3 else {})
        decision_of(made, number, told(seen(number, lost=lost, taken=taken), said))
    return made


def published(made: Decider, decision: Adopted) -> dict[KeyGroup, Owners]:
    """What the execution does with an adoption; the new rows."""
    rows = {**STANDBYS, **decision.standbys}
    after = placement_of("c", APP, NEW, decision.owners, None).changed(NEW, rows)
    made.on_event(1090.0, ExecutionChanged(execution=Execution(generation=1, number=2, placements={APP: after})))
    return rows


def test_it_lasts_from_the_window_that_shows_the_loss_until_all_new_standbys_are_warm() -> None:
    for windows, gap in (
        (1, None),
        (2, None),  # its agent may only be restarting
        (3, RedundancyGap(began_at=1030.0, seen_at=1030.0, lacking=4)),  # the group has not noticed it yet
        (4, RedundancyGap(began_at=1030.0, seen_at=1040.0, lacking=LACKING)),
        (7, RedundancyGap(began_at=1030.0, seen_at=1070.0, lacking=LACKING)),  # it may still come back
    ):
        assert gap_of(after_loss(windows)) == gap

    made = after_loss(7)
    adopted = of_type(Adopted, decision_of(made, 7, told(seen(7, lost=W0, taken=TAKEN), 0)))
    assert len(adopted.standbys) == LACKING
    warm, gap = not_none(adopted.warm), not_none(gap_of(made))
    assert (gap.planned_s, gap.bound_s) == (pytest.approx(50.0 + warm.seconds), pytest.approx(50.0 + warm.bound_s))

    rows = published(made, adopted)
    assert all(len(row) == 2 and W0 not in row for row in rows.values())
    for number, cold, epoch, lacking in ((8, 0, OLD, 8), (9, 2, NEW, 6), (10, 0, NEW, 0), (11, 0, NEW, 0)):
        decision_of(made, number, told(seen(number, lost=W0, taken=TAKEN), cold, epoch))
        assert not_none(gap_of(made)).lacking == lacking, "in the first one nobody knows the new placement yet"
    assert not_none(gap_of(made)).measured_s == 80.0
    assert made.known.concerns == ()


def test_no_standby_is_replaced_while_a_worker_is_lost_that_may_come_back() -> None:
    """The lost worker still counts as one that follows, so the loads after a loss are not what they seem."""
    made = decider(
        dict.fromkeys(OWNERS, ()) | {each: (owner, W3 if owner != W3 else W2) for each, owner in OWNERS.items()}
    )
    for number in range(7):
        lost, taken = (W0 if number else None), ({kg(place): W3 for place in range(4)} if number >= 3 else {})
        found = decision_of(made, number, told(seen(number, lost=lost, taken=taken), 0))
        assert isinstance(found, StandbysPlaced) is (number == 0), "at first all are at w3"


def test_of_plug_ins_that_do_not_say_what_is_warm_it_is_unknown_as_soon_as_nothing_else_is_missing() -> None:
    made = after_loss(3)
    assert gap_of(made) is not None
    decision_of(made, 3, told(seen(3), None))
    assert APP not in made.known.redundancy


def test_a_worker_that_only_reports_and_an_app_without_standbys_have_nothing_to_get_warm() -> None:
    made, window = decider(STANDBYS, band=50.0), told(seen(0), 0)
    silent = WorkerId("w9")
    nodes = (*window.nodes, replace(window.nodes[0], worker=silent, steering=False, cold=None, epoch=None))
    decision_of(made, 0, replace(window, nodes=nodes))
    assert gap_of(made) is None
    without = decider({})
    decision_of(without, 0, replace(window, nodes=tuple(replace(row, standbys=0, cold=None) for row in window.nodes)))
    assert gap_of(without) is None


def test_a_worker_that_restores_its_standbys_again_is_a_gap_of_its_own() -> None:
    made = decider(STANDBYS, band=50.0)
    for number, cold in enumerate((0, 3, 3, 0, 0, 1)):
        decision_of(made, number, told(seen(number), cold))
    assert gap_of(made) == RedundancyGap(began_at=1060.0, seen_at=1060.0, lacking=4)


@pytest.mark.parametrize(("planned_s", "most_s"), [(None, UNPLANNED_S), (20.0, 20.0 + LATE_S), (100.0, 200.0)])
def test_an_operator_hears_of_it_when_it_takes_clearly_longer_than_planned(
    planned_s: float | None, most_s: float
) -> None:
    gap = RedundancyGap(began_at=0.0, seen_at=most_s, lacking=3, planned_at=planned_s, bound_at=planned_s)
    late = replace(gap, seen_at=most_s + 1.0)
    assert [each.too_long for each in (gap, late, replace(late, lacking=0))] == [False, True, False]


def test_the_concern_says_what_lacks_and_what_was_planned() -> None:
    made = after_loss(7)
    adopted = of_type(Adopted, decision_of(made, 7, told(seen(7, lost=W0, taken=TAKEN), 0)))
    published(made, adopted)
    found: list[Concern] = []
    for number in range(8, 20):
        decision_of(made, number, told(seen(number, lost=W0, taken=TAKEN), 1, NEW))
        found += made.known.concerns
    assert {each.kind for each in found} == {ConcernKind.WITHOUT_STANDBY}
    assert found[0].detail == "3 key groups without an owner or a warm standby for 120 s; planned were 51 s, bound 51 s"


def test_what_was_due_before_it_began_takes_no_time() -> None:
    """A restore that should have ended is seen to last: the bound is in the past, and no client reads less than 0."""
    gap = RedundancyGap(began_at=100.0, seen_at=110.0, lacking=1).expected(planned_at=105.0, bound_at=99.0)
    assert (gap.planned_s, gap.bound_s) == (5.0, 0.0)
