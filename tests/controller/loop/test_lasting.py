"""A concern stays until windows in a row show that it does not hold, also after a takeover or a gap."""

from tests.controller.decider.deciders import BALANCED, window
from tests.controller.execution.execution_transcripts import APP
from tests.controller.loop.test_events import status
from trimtab_controller.decider.values.reasons import Concern, ConcernKind
from trimtab_controller.loop.telemetry import SETTLED, LastingConcerns
from trimtab_protocol.messages.status import ConcernStatus

OVER = Concern(kind=ConcernKind.OVER_CAPACITY, app=APP, workers=(), detail="w0 uses 120 %")
TOLD = status(concerns=(ConcernStatus(kind="over_capacity", app=APP, text=OVER.detail),
                        ConcernStatus(kind="of_a_later_version", app=APP, text="?")))  # fmt: skip


def after(made: LastingConcerns, *ends_s: float, found: tuple[Concern, ...] = ()) -> list[int]:
    """How many are kept after windows that end then."""
    kept = []
    for end_s in ends_s:
        made.observe(window(BALANCED, end_s).snapshot, found)
        kept.append(len(made.kept))
    return kept


def test_a_predecessors_concern_stays_until_so_many_windows_in_a_row_do_not_show_it() -> None:
    made = LastingConcerns(TOLD)
    assert made.kept == (OVER,)
    assert after(made, *(1000.0 + 10.0 * n for n in range(SETTLED))) == [1] * (SETTLED - 1) + [0]
    assert LastingConcerns(None).kept == ()


def test_a_repetition_shows_nothing_and_a_gap_begins_the_count_anew() -> None:
    made = LastingConcerns(TOLD)
    assert after(made, 1000.0, 1010.0, 1010.0, 1050.0, 1060.0, 1070.0, 1080.0) == [1] * 7
    assert after(made, 1090.0) == [0]


def test_what_a_window_shows_is_not_kept_besides_and_ends_with_the_next_one() -> None:
    made = LastingConcerns(None)
    assert after(made, *(1000.0 + 10.0 * n for n in range(SETTLED)), found=(OVER,)) == [0] * SETTLED
    assert after(made, 1050.0) == [0]


def test_a_concern_from_before_a_gap_stays_too() -> None:
    made = LastingConcerns(None)
    after(made, *(1000.0 + 10.0 * n for n in range(SETTLED)), found=(OVER,))
    assert after(made, 1100.0, 1110.0) == [1, 1]
    assert after(made, 1120.0, found=(OVER,)) == [0]


def test_that_a_worker_was_given_up_ends_with_the_first_window_that_does_not_show_it() -> None:
    made = LastingConcerns(None)
    crashed = Concern(kind=ConcernKind.WORKER_CRASHES, app=APP, workers=(), detail="w0 crashed")
    assert after(made, 1000.0, found=(crashed, OVER)) == [0]
    assert after(made, 1010.0) == [1]
    assert made.kept == (OVER,)
