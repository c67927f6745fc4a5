"""Generated workloads."""

from itertools import islice

import numpy as np
import pytest

from trimtab_models.simulation.workloads import (
    DriftingJob,
    JobEdge,
    periods,
    problem_at,
    real_job_1,
    real_job_2,
    real_job_3,
)

JOBS = [real_job_1(), real_job_2(), real_job_3()]


def first_problem(job, placement=None):
    period = next(periods(job, 0))
    return problem_at(job, period, job.placement() if placement is None else placement)


@pytest.mark.parametrize("job", JOBS, ids=["job 1", "job 2", "job 3"])
def test_jobs_start_about_half_loaded_with_nothing_that_is_alike_together(job):
    problem = first_problem(job)
    assert problem.balance.load.sum() / job.nodes == pytest.approx(50, rel=0.05)
    source, target, alike = job.flows()
    placed = job.placement()
    assert not (placed[source[alike]] == placed[target[alike]]).any()
    assert np.ptp(np.bincount(placed)) == 0


def test_job_2_loses_half_of_its_load_when_all_is_local_and_job_3_a_quarter():
    for job, share in ((real_job_2(), 0.5), (real_job_3(), 0.75)):
        problem = first_problem(job)
        together = np.tile(job.placement()[: job.key_groups], len(job.operators))
        assert problem.loads(together).sum() / problem.balance.load.sum() == pytest.approx(share, abs=0.03)


def test_the_load_is_work_and_remote_tuples_wherever_the_key_groups_are():
    job = real_job_2(4, 2)
    apart = first_problem(job)
    together = np.tile(job.placement()[: job.key_groups], 2)
    assert first_problem(job, together).balance.load == pytest.approx(apart.loads(together))
    assert first_problem(job, together).work == pytest.approx(apart.work)


def test_the_same_seed_gives_the_same_periods_and_they_drift():
    job = real_job_3(4, 2)
    one, same, other = (list(islice(periods(job, seed), 3)) for seed in (1, 1, 2))
    assert all((a.rate == b.rate).all() for a, b in zip(one, same, strict=True))
    assert (one[0].rate != other[0].rate).all()
    assert (one[0].work != one[1].work).all()


def test_what_an_operator_receives_is_what_was_sent_to_it():
    job = real_job_3(4, 2)
    period = next(periods(job, 0))
    source, target, alike = job.flows()
    sent = np.bincount(source, period.rate, job.size)
    received = np.bincount(target, period.rate, job.size)
    assert sent[: job.key_groups].sum() == pytest.approx(2 * received[job.key_groups : 2 * job.key_groups].sum())
    assert period.rate[alike].sum() == pytest.approx(period.rate[~alike].sum())


@pytest.mark.parametrize(
    "changes", [{"nodes": 0}, {"operators": ()}, {"memory": 1.0}, {"communication": 1.0}, {"skew": -1.0}]
)
def test_a_job_that_makes_no_sense_is_refused(changes):
    fields = {name: getattr(real_job_2(), name) for name in DriftingJob.__dataclass_fields__}
    with pytest.raises(ValueError):
        DriftingJob(**fields | changes)


def test_rates_belong_to_their_flows_in_whatever_order_the_edges_are_given():
    edges = (JobEdge(source=0, target=1, alike=True), JobEdge(source=1, target=2, alike=False))
    shape = {"nodes": 2, "key_groups": 4, "operators": ("a", "b", "c"), "skew": 0.2, "drift": 0.1, "memory": 0.5}
    ordered, reversed_ = (DriftingJob(edges=given, communication=0.3, **shape) for given in (edges, edges[::-1]))
    for mine, theirs in zip(ordered.flows(), reversed_.flows(), strict=True):
        assert mine.tolist() == theirs.tolist()
    assert next(periods(ordered, 0)).rate.tolist() == next(periods(reversed_, 0)).rate.tolist()
