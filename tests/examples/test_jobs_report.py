"""What a run of a job reports, and how its two placements are compared in turn."""

import pytest

from jobs.alternate import moves_to, order_of
from jobs.catalogue import JOBS
from jobs.oracle import Verdict
from jobs.outcome import Outcome, Phase, Saturated
from jobs.report import report
from trimtab_protocol.messages.intents import RequestedMove
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId


def phase(
    worker_us: float, latency_ms: float | None = None, direct: float | None = 0.5, rate: float | None = None
) -> Phase:
    return Phase(
        worker_us=worker_us,
        broker_us=worker_us / 2,
        rate=100.0,
        collocation=0.5,
        local_sends=direct,
        load=0.001,
        load_distance=1.0,
        latencies_ms=None if latency_ms is None else (latency_ms, 3 * latency_ms),
        saturated=None if rate is None else Saturated(rate=rate, worker_us=worker_us / 4, broker_us=worker_us / 8),
    )


def rows(*turns: tuple[Phase, Phase]) -> dict[str, str]:
    saturated = Saturated(rate=1000.0, worker_us=500.0, broker_us=100.0)
    found = Outcome(
        job="views",
        method="albic",
        before=phase(1000.0),
        after=phase(800.0),
        rounds=(),
        steps=(),
        obtainable=None,
        saturated=(saturated, saturated),
        turns=turns,
        sent=10,
        verdict=Verdict(results=10, keys=1, lost=0, repeated=0, wrong=0),
    )
    lines = report(JOBS["views"], {"albic": found}).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[2] for row in cells}


def test_placements_measured_in_turn_are_reported_by_their_medians_and_each() -> None:
    found = rows(
        (phase(1000.0, 40.0), phase(800.0, 30.0)),
        (phase(1100.0, 50.0), phase(850.0, 20.0)),
        (phase(2000.0, 45.0), phase(700.0, 25.0)),
    )
    assert found["in turn: CPU of workers per record, µs"] == (
        "1,100 to 800 (1,000 to 800, 1,100 to 850, 2,000 to 700)"
    )
    assert found["in turn: latency, mean, ms"] == "45.0 to 25.0 (40.0 to 30.0, 50.0 to 20.0, 45.0 to 25.0)"
    assert found["in turn: latency, 99th percentile, ms"].startswith("135.0 to 75.0 ")
    assert found["in turn: tuples that skip the broker"].startswith("50% to 50% ")


def test_bursts_are_compared_in_turn_too() -> None:
    found = rows((phase(1000.0, rate=500.0), phase(800.0, rate=900.0)))
    assert found["in turn: at saturation: records per second"] == "500 to 900 (500 to 900)"
    assert found["in turn: at saturation: CPU of workers per record, µs"] == "250 to 200 (250 to 200)"
    assert found["in turn: at saturation: CPU of the broker per record, µs"] == "125 to 100 (125 to 100)"
    assert rows((phase(1000.0), phase(800.0)))["in turn: at saturation: records per second"] == "not noted"


def test_what_was_not_measured_in_a_turn_is_not_a_figure() -> None:
    found = rows((phase(1000.0, direct=None), phase(800.0)))
    assert found["in turn: latency, mean, ms"] == "not noted"
    assert found["in turn: tuples that skip the broker"] == "not noted"
    assert not [name for name in rows() if name.startswith("in turn")]


@pytest.mark.parametrize(("turn", "expected"), [(0, (1, 2)), (1, (2, 1)), (2, (1, 2))])
def test_the_placement_that_comes_first_changes_from_turn_to_turn(turn: int, expected: tuple[int, int]) -> None:
    first, last = phase(1.0), phase(2.0)
    assert tuple(each.worker_us for each in order_of(turn, first, last)) == expected
    assert order_of(turn, *order_of(turn, first, last)) == (first, last)


def test_only_key_groups_that_are_elsewhere_move() -> None:
    one, two = (KeyGroup(AppId("views"), OperatorId("view"), partition) for partition in (0, 1))
    a, b = WorkerId("a"), WorkerId("b")
    assert moves_to({one: a, two: b}, {one: b, two: b}) == (RequestedMove(key_group=one, worker=a),)
    assert moves_to({one: a}, {one: a}) == ()
