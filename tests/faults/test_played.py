"""What the matrix decides by itself: how the load is shifted, which cells there are, and whose a violation is."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.controller.decider.decider_situations import a_load, a_node, a_window, kg
from tests.faults.played.campaign import Played
from tests.faults.played.cells import MEANINGFUL, all_cells, chosen, meaning_of
from tests.faults.played.faults import FAULTS
from tests.faults.played.moments import MOMENTS
from tests.faults.played.runs import Result, shared_out
from tests.faults.played.said import unsaid
from tests.faults.played.shift import NoShift, choose_shift
from tests.faults.played.table import as_document, as_table
from tests.faults.recorded.history import Strike
from tests.faults.recorded.verdict import Broken, Verdict, Violation
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

UNKNOWN: dict[str, Any] = dict.fromkeys(["tuples_in_s"])


def window(cpu: dict[tuple[str, int], float | None]) -> Snapshot:
    """One window with these loads of (worker, partition), in cores."""
    nodes = [a_node(worker, capacity=0.25) for worker in sorted({worker for worker, _ in cpu})]
    return a_window(10.0, nodes, [a_load(kg(number), worker, cores) for (worker, number), cores in cpu.items()])


BALANCED = window({(f"w{number % 2}", number): 0.005 for number in range(12)})


def test_a_shift_leads_as_far_beyond_the_band_as_is_asked() -> None:
    near, far = (choose_shift(BALANCED, {}, at_least=points) for points in (3.0, 12.0))
    assert near.factor < far.factor
    assert near.load_distance >= 3.0
    # Two of six key groups of w0 carry 0.005 * factor: their excess, over its capacity, less half of it on average.
    assert far.load_distance == pytest.approx(100 * 2 * 0.005 * (far.factor - 1) / 0.25 / 2)


def test_a_shift_is_reckoned_from_the_loads_at_speed_1() -> None:
    surged = dict.fromkeys(range(0, 12, 2), 4.0)
    measured = window({(f"w{number % 2}", number): 0.005 * surged.get(number, 1.0) for number in range(12)})
    assert choose_shift(measured, surged, at_least=12.0) == choose_shift(BALANCED, {}, at_least=12.0)


def test_another_worker_than_last_time_is_overloaded() -> None:
    assert choose_shift(BALANCED, {}, at_least=5.0).worker == "w0"
    assert choose_shift(BALANCED, {}, at_least=5.0, avoid=WorkerId("w0")).worker == "w1"


def test_no_shift_from_loads_that_are_not_known_or_too_small() -> None:
    with pytest.raises(NoShift, match="not known"):
        choose_shift(window({("w0", 0): None}), {}, at_least=1.0)
    with pytest.raises(NoShift, match="no shift by up to 16"):
        choose_shift(BALANCED, {}, at_least=99.0)


def test_every_fault_has_its_moments_and_a_reason_for_the_others() -> None:
    assert MEANINGFUL.keys() <= FAULTS.keys()
    for name in FAULTS:
        tried, why_not = meaning_of(name)
        assert tried
        assert set(tried) <= MOMENTS.keys()
        assert why_not or set(tried) == MOMENTS.keys(), name


def test_cells_are_chosen_by_fault_and_moment() -> None:
    assert chosen([]) == all_cells()
    assert [str(cell) for cell in chosen(["agent killed:release"])] == ["agent killed:release"]
    assert {cell.moment.name for cell in chosen(["broker killed"])} == MOMENTS.keys()
    assert {cell.fault.name for cell in chosen(["worker:window"])} == {"worker killed"}
    with pytest.raises(ValueError, match="'nobody:release', expected"):
        chosen(["nobody:release"])


def played(at: float, *, said: Counter[str] | None = None, failure: str | None = None) -> Played:
    strike = Strike(case="c", at=at, over_at=at + 1, steered_at=at + 2)
    cell = chosen(["solver never returns:idle"])[0]
    return Played(
        cell=cell,
        began_at=at - 1,
        target=None,
        strike=strike,
        said=Counter() if said is None else said,
        failure=failure,
    )


def test_a_violation_belongs_to_the_cell_that_was_played_when_it_happened() -> None:
    early, late, undated = (Violation(broken=Broken.LOST, text="", at=at) for at in (10.5, 25.0, None))
    verdict = Verdict(violations=(early, late, undated), costs=(), seen=Counter())
    assert shared_out(verdict, [played(10.0), played(20.0)]) == [[early], [late, undated]]


def test_each_fault_has_to_be_said_and_what_has_to_be_said_can_be_missing() -> None:
    for fault in FAULTS.values():
        assert fault.must_say
        assert unsaid(fault.must_say, Counter(["skip inside_band", "plan load_distance"])) == list(fault.must_say)


def test_that_a_topic_was_deleted_does_not_show_that_anybody_goes_on_with_the_new_one() -> None:
    lost = {fault.name: fault for fault in FAULTS.values() if fault.name.startswith("topic ")}
    assert len(lost) == 10
    for name, fault in lost.items():
        part = name.split()[1]
        assert len(unsaid(fault.must_say, Counter({f"rows of {part} lost": 7}))) == 1


def test_a_fault_that_nothing_shows_has_not_been_played() -> None:
    killed = "the solver exceeded its time limit"
    silent, half, loud, failed = (
        Result(cell=each.cell, logs=Path(), played=each)
        for each in (
            played(1.0),
            played(1.0, said=Counter([killed])),
            played(1.0, said=Counter([killed, "skip solver_failed"])),
            played(1.0, failure="not steered"),
        )
    )
    assert silent.not_played == [f"nobody said '{killed}'", "nobody said 'fallback|skip solver_failed'"]
    assert half.not_played == silent.not_played[1:]
    assert loud.not_played == []
    assert silent.broken == half.broken == loud.broken == []
    assert (failed.broken, failed.not_played) == (["not steered"], [])
    early = replace(failed, played=replace(played(1.0, failure="no round"), struck=False))
    assert (early.broken, early.not_played) == ([], ["its moment was not reached: no round"])
    assert replace(failed, impossible=True, played=None, failure="needs root").broken == []
    document = as_document([silent, loud], seed=7)
    assert [row["not_played"] for row in document["cells"]] == [silent.not_played, []]
    assert as_table([silent, loud, failed]).row_count == 3
