"""What `trimtab status` says of plans in flight, and of those that have ended."""

from dataclasses import replace

from tests.controller.cli.status_examples import NOW, ROUND, STATUS, shown


def test_a_round_that_cannot_be_compared_shows_no_measured_load_distance() -> None:
    lines = shown(replace(STATUS, rounds=(replace(ROUND, after=None, incomparable="w2 joined"),)), width=120)
    assert any("8.6 -> 0.4 planned, 13 key groups moved, cannot be compared: w2 joined" in line for line in lines)


def test_a_plan_in_flight_says_how_far_it_is() -> None:
    flying = replace(
        ROUND, ended_at=None, handovers={"done": 2, "releasing": 1, "waiting": 1, "failed": 0}, migrations=6
    )
    lines = shown(replace(STATUS, rounds=(flying,)))
    where = lines.index("plans in flight")
    assert lines[where + 1 : where + 4] == [
        "  3.14 of orders, started 90 s ago: load distance 8.6 above 5.0",
        "  load distance 8.6 -> 0.4 planned (bound 0.3)",
        "  4 hand-overs: 2 done, 1 releasing, 1 waiting; 6 key groups moved so far",
    ]
    assert "last plans" not in lines


def test_when_all_restores_should_be_warm_is_said_and_later_when_they_were() -> None:
    expected = replace(ROUND, recovery_planned_s=12.34, recovery_bound_s=9.0)
    flying = shown(replace(STATUS, rounds=(replace(expected, ended_at=None),)))
    assert "  all warm after 12.3 s planned (bound 9.0 s)" in flying
    ended = shown(replace(STATUS, rounds=(replace(expected, recovery_s=13.0),)), width=140)
    assert any("13 key groups moved, warm after 13.0 s (12.3 planned, bound 9.0)" in line for line in ended)


def test_a_plan_for_collocation_says_what_it_saved_beside_what_it_was_to_save() -> None:
    saved = replace(ROUND, ended_at=NOW, after=0.7, saved_planned_pp=3.28, saved_pp=3.46)
    lines = shown(replace(STATUS, rounds=(saved,)), width=140)
    assert any("13 key groups moved, 3.5 pp of load saved by collocation, 3.3 planned" in line for line in lines)
