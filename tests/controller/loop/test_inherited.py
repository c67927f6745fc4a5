"""A new leader keeps its predecessor's concerns until its own windows show whether they hold."""

from tests.controller.decider.deciders import BALANCED, window
from tests.controller.execution.execution_transcripts import APP
from tests.controller.loop.test_events import status
from trimtab_controller.decider.concerns import Concern, ConcernKind
from trimtab_controller.loop.inherited import SETTLED, InheritedConcerns
from trimtab_protocol.messages.status import ConcernStatus

OVER = Concern(kind=ConcernKind.OVER_CAPACITY, app=APP, workers=(), detail="w0 uses 120 %")
TOLD = status(concerns=(ConcernStatus(kind="over_capacity", app=APP, text=OVER.detail),
                        ConcernStatus(kind="of_a_later_version", app=APP, text="?")))  # fmt: skip


def after(found: InheritedConcerns, *ends_s: float, own: tuple[Concern, ...] = ()) -> list[int]:
    return [len(found.see(window(BALANCED, end_s).snapshot, own)) for end_s in ends_s]


def test_it_stays_until_so_many_windows_in_a_row_do_not_show_it() -> None:
    found = InheritedConcerns(TOLD)
    assert found.left == (OVER,)
    assert after(found, *(1000.0 + 10.0 * n for n in range(SETTLED))) == [1] * (SETTLED - 1) + [0]


def test_a_gap_or_a_repetition_shows_nothing() -> None:
    found = InheritedConcerns(TOLD)
    assert after(found, 1000.0, 1010.0, 1010.0, 1050.0, 1060.0, 1070.0, 1080.0) == [1] * 7
    assert after(found, 1090.0) == [0]


def test_what_the_new_leader_finds_itself_is_its_own() -> None:
    found = InheritedConcerns(TOLD)
    assert after(found, 1000.0, own=(OVER,)) == [0]
    assert after(found, 1010.0) == [0]
    assert InheritedConcerns(None).left == ()
