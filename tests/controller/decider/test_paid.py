"""What each move has brought: its load after the plan, and whether its two workers are nearer to the mean with it."""

import pytest

from tests.controller.decider.decider_situations import W0, W1, a_handover, a_round, a_worker, kg, owned, plannable
from trimtab_controller.decider.memory.predictions import measured_moves
from trimtab_controller.decider.window.view import PlannableView
from trimtab_controller.execution.state import HandoverPhase, Round
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.names import WorkerId

W2 = WorkerId("w2")


def view(*loads: tuple[WorkerId, float], draining: WorkerId | None = None) -> PlannableView:
    """Key groups 0, 1 and so on, each with its owner and load in percent of a core; workers have a core each."""
    workers = [a_worker(worker, draining=worker == draining) for worker in (W0, W1, W2)]
    return plannable(workers, [owned(kg(at), owner, load, 0) for at, (owner, load) in enumerate(loads)])


def moved(phase: HandoverPhase = HandoverPhase.DONE, kind: PlanReason | None = PlanReason.LOAD_DISTANCE) -> Round:
    """Key group 0 has moved from w0 to w1."""
    return a_round(900.0, a_handover(kg(0), phase=phase), kind=kind)


NOISE = 0.5


@pytest.mark.parametrize(
    ("loads", "paid"),
    [
        ([(W1, 20.0), (W0, 30.0), (W1, 10.0), (W2, 30.0)], True),  # 30, 30, 30: without it 50, 10, 30
        ([(W1, 20.0), (W0, 10.0), (W1, 30.0), (W2, 30.0)], False),  # 10, 50, 30: without it 30, 30, 30
        ([(W1, 20.0), (W0, 20.0), (W1, 20.0), (W2, 30.0)], None),  # 20, 40, 30: without it 40, 20, 30
        ([(W1, 0.4), (W0, 29.8), (W1, 29.8), (W2, 30.0)], None),  # nearer without it, but by less than the noise
    ],
)
def test_a_move_has_paid_if_its_workers_are_nearer_to_the_mean_than_without_it(
    loads: list[tuple[WorkerId, float]], paid: bool | None
) -> None:
    [found] = measured_moves(moved(), view(*loads), NOISE)
    assert (found.key_group, found.source, found.target) == (kg(0), W0, W1)
    assert (found.measured_pct, found.paid) == (loads[0][1], paid)


def test_what_was_not_made_or_has_moved_on_is_left_out_and_unknown_loads_are_unknown() -> None:
    loads = ((W1, 20.0), (W0, 10.0))
    assert measured_moves(moved(HandoverPhase.FAILED), view(*loads), NOISE) == ()
    assert measured_moves(moved(), view((W2, 20.0), (W0, 10.0)), NOISE) == ()
    [found] = measured_moves(moved(), view((W1, float("nan")), (W0, 10.0)), NOISE)
    assert (found.measured_pct, found.paid) == (None, None)
