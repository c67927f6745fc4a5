"""The baselines of `benchmarks.worker_hours`: the HPA keeps to Kubernetes' rule, and the lag is that of the inputs."""

import random

import pytest

from benchmarks.worker_hours import STABILISED_S, SYNC_S, Autoscaler, Week


@pytest.mark.parametrize(
    ("used", "starting", "size"),
    [
        ([0.7, 0.7], 0, 2),
        ([0.76, 0.76], 0, 2),  # within the tolerance
        ([0.8, 0.8], 0, 3),
        ([1.0, 1.0], 0, 3),
        ([1.0, 1.0], 1, 3),  # with the new one as idle it is within the tolerance
        ([1.0, 1.0], 2, 4),  # with two it would turn to fewer
        ([3.5] * 2, 0, 6),  # at most four more at once
        ([1.4] * 10, 0, 20),
        ([0.35, 0.35, 0.35], 1, 2),
    ],
)
def test_an_autoscaler_keeps_to_the_rule(used: list[float], starting: int, size: int) -> None:
    assert Autoscaler(0.7).size(0.0, used, starting) == size


def test_an_autoscaler_goes_down_to_the_highest_size_of_the_last_five_minutes() -> None:
    autoscaler = Autoscaler(0.7)
    steps = round(STABILISED_S / SYNC_S)

    first = autoscaler.size(0.0, [0.7] * 4, 0)
    held = [autoscaler.size(SYNC_S * step, [0.35] * 4, 0) for step in range(1, steps)]

    assert (first, set(held)) == (4, {4})
    assert autoscaler.size(STABILISED_S, [0.35] * 4, 0) == 2


def test_the_lag_is_weighted_by_inputs() -> None:
    week = Week(random.Random(0), 0.0, False)
    week.lags, week.weights = [9.0, 0.0, 2.0], [0.5, 97.5, 2.0]

    assert week.lag() == 2.0


def test_key_groups_given_out_evenly_are_more_even_than_by_count() -> None:
    week = Week(random.Random(0), 0.0, False)
    heaviest = []
    for even in (False, True):
        week.give_out(list(week.running), even)
        heaviest.append(
            max(
                sum(week.share[each] for each, owner in week.owner.items() if owner == worker)
                for worker in week.running
            )
        )

    assert 0.25 <= heaviest[1] < 0.251 < heaviest[0]
