"""What the demo takes for noise: quantiles as in tables, variances worked out by hand, rare false alarms."""

import math
import random

import pytest

from flights.demo.noise import FALSE_ALARM, Spread, lower_limit, means, spreads, t_quantile
from trimtab_protocol.messages.names import WorkerId

W0, W1 = WorkerId("w0"), WorkerId("w1")


@pytest.mark.parametrize(
    ("level", "degrees", "expected"),
    [
        (0.025, 1, 12.706),
        (0.025, 2, 4.303),
        (0.001, 3, 10.215),
        (0.0005, 4, 8.610),
        (0.001, 10, 4.144),
        (0.0005, 20, 3.850),
    ],
)
def test_quantiles_are_those_of_the_tables(level: float, degrees: int, expected: float) -> None:
    assert t_quantile(level, degrees) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(("level", "degrees"), [(0.6, 5), (0.0, 5), (0.01, 0)])
def test_a_quantile_that_is_not_computed_is_refused(level: float, degrees: int) -> None:
    with pytest.raises(ValueError, match=r"expected 1e-9 to 0\.5, and at least 1"):
        t_quantile(level, degrees)


def test_spreads_are_about_the_mean_of_each_span() -> None:
    calm = [{W0: 9.0, W1: 1.0}, {W0: 11.0, W1: 1.0}]
    after = [{W0: 1.0, W1: 0.0}, {W0: 2.0}, {W0: 3.0}]
    found = spreads([calm, after])
    assert found[W0] == Spread(pp=pytest.approx(math.sqrt(4.0 / 3.0)), degrees=3)  # (1 + 1 + 1 + 0 + 1) / 3
    assert found[W1] == Spread(pp=0.0, degrees=1)
    assert means(after) == {W0: 2.0, W1: 0.0}
    assert spreads([[{W0: 1.0}]]) == {}


def test_the_limit_rises_with_the_windows_and_is_0_where_nothing_is_known() -> None:
    known = {W0: Spread(pp=0.4, degrees=20)}
    quantile = t_quantile(FALSE_ALARM / 11, 20)
    assert lower_limit([{W0: -5.0, W1: 9.0}], known, 11) == pytest.approx(5.0 - 0.4 * quantile)
    assert lower_limit([{W0: -5.0}] * 4, known, 11) == pytest.approx(5.0 - 0.2 * quantile)
    assert lower_limit([{W0: 0.1}] * 4, known, 11) == 0.0
    assert lower_limit([{W1: 9.0}], known, 11) == 0.0


def test_false_alarms_are_as_rare_as_stated_and_real_misses_are_seen() -> None:
    """Runs as the demo's: every worker at the limit of 1 pp, where false alarms are most frequent; then beyond it."""
    runs = 5_000
    assert alarms(runs, far_pp=1.0, seed=4) <= FALSE_ALARM * runs + 3 * (FALSE_ALARM * runs) ** 0.5
    assert alarms(200, far_pp=2.0, seed=5) == 200


def alarms(runs: int, *, far_pp: float, seed: int) -> int:
    chance = random.Random(seed)
    workers = [WorkerId(f"w{number}") for number in range(4)]
    phases = [workers, workers, workers[:3]]
    comparisons = sum(map(len, phases))
    found = 0
    for _ in range(runs):
        noise = {worker: chance.uniform(0.1, 0.4) for worker in workers}
        calm = [{worker: chance.gauss(5.0, noise[worker]) for worker in workers} for _ in range(7)]
        judged = [
            [{worker: chance.gauss(far_pp, noise[worker]) for worker in phase} for _ in range(6)] for phase in phases
        ]
        known = spreads([calm, *judged])
        found += any(lower_limit(span, known, comparisons) > 1.0 for span in judged)
    return found
