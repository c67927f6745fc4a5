"""A fleet in which somebody is always away, under the real decider, solver and execution, is balanced all the same."""

from benchmarks.never_whole import ONE_FOR_ALL, play


def test_forty_workers_each_away_2_percent_of_the_time_are_balanced_in_90_percent_of_the_windows() -> None:
    found = play(workers=40, away=0.02, windows=110, seeds=1)

    assert found.whole < 0.7 * found.windows, "too quiet: somebody should be away most of the time"
    assert found.decided >= 0.9 * found.windows
    assert found.balanced >= 0.9 * found.windows
    assert found.moved > 0


def test_where_one_worker_makes_its_app_wait_it_waits_most_of_the_time() -> None:
    """What the figure is compared with."""
    found = play(workers=40, away=0.02, windows=60, seeds=1, needs=ONE_FOR_ALL)

    assert found.decided < 0.8 * found.windows
