"""The number of workers under the real decider, solver and execution: it follows the load, and nothing else."""

from benchmarks.scaling import POOL, WORKERS, play
from trimtab_controller.decider.values.reasons import ConcernKind


def test_a_load_that_triples_and_falls_back_takes_the_workers_along_without_a_flap() -> None:
    found = play(hours=4.0, seed=0, noise=0.1)

    sizes = [size for _, size in found.sizes]
    assert found.flaps == 0
    assert WORKERS < max(sizes) < WORKERS + POOL
    assert sizes[-1] == WORKERS
    assert found.saturated < 30, "the first workers come before the load has outgrown those that are there"


def test_a_blocked_job_is_not_scaled() -> None:
    """It asks for a fifth of its CPU, and three times the inputs wait: neither is a reason."""
    found = play(hours=2.0, seed=2, noise=0.1, blocked=True)

    assert found.sizes == ((0.0, WORKERS),)
    assert ConcernKind.BLOCKED in found.concerns
