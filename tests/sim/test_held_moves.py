"""Decider and execution in time: moves wait for a daily peak that passes, and for no shift that stays.

`python -m benchmarks.held_moves` plays more days, in shorter windows.
"""

from benchmarks.held_moves import AT_ONCE, HELD, Job, play


def test_moves_for_a_daily_peak_wait_and_those_for_a_shift_do_not() -> None:
    # Cut short on a busy machine, the solver would need a plan more in one of the two.
    found = play(Job(seed=0, window_s=300, peak_s=900.0, days=4, solver_s=3.0))
    held, at_once = found[HELD], found[AT_ONCE]
    assert at_once.moved >= 8, "it moves key groups away for the peak, and back"
    assert (held.plans, held.moved) == (0, 0)
    assert held.held >= 2
    assert held.mean <= at_once.mean, "the load distance is not worse for that"
    assert held.moved_s is not None
    assert held.moved_s == at_once.moved_s, "a load that rises as never before is moved for as soon"
