"""Son, Moon 2020: the configurations of table 3, the figures of section 4.2, the problems of section 2.3."""

import pytest

from trimtab_models.instances.topology import Edge, ParallelOperator, Slot, Topology
from trimtab_models.placement import Job, PlacementParams, PlacementResult, Scheduler, job_of, solve
from trimtab_models.solving import Never

TABLE_3 = {
    "linear": (1, 1, 1, 1, 1, 1, 1, 1),
    "ascent": (1, 2, 3, 4, 5, 6, 7, 8),
    "descent": (8, 7, 6, 5, 4, 3, 2, 1),
    "diamond": (2, 4, 6, 8, 8, 6, 4, 2),
    "star": (8, 6, 4, 2, 2, 4, 6, 8),
}
COHESION_GAIN = {"linear": 3900, "ascent": 71.78, "descent": 71.02, "diamond": 32.03, "star": 59.45}


def chain(counts: tuple[int, ...], *, nodes: int, ports: int = 1, keyed: bool = False) -> Job:
    """Operators one behind the other, with slots on `nodes` nodes."""
    operators = tuple(ParallelOperator(id=f"PO{at}", instances=count) for at, count in enumerate(counts, 1))
    edges = tuple(Edge(source=f"PO{at}", target=f"PO{at + 1}", keyed=keyed) for at in range(1, len(counts)))
    slots = tuple(Slot(node=f"n{node}", port=6700 + port) for node in range(nodes) for port in range(ports))
    return job_of(Topology(operators=operators, edges=edges, slots=slots))


def planned(job: Job, scheduler: Scheduler) -> PlacementResult:
    result = solve(job, stop=Never(), seed=0, params=PlacementParams(schedulers=(scheduler,)))
    assert isinstance(result, PlacementResult)
    return result


def compared(job: Job) -> tuple[PlacementResult, PlacementResult]:
    return planned(job, Scheduler.EVEN), planned(job, Scheduler.LF)


@pytest.mark.parametrize(("factor", "ports"), [(1, 1), (10, 10)], ids=["low", "high"])
@pytest.mark.parametrize("configuration", TABLE_3)
def test_section_4_2_cohesion_gain_at_equal_coupling(configuration, factor, ports):
    counts = tuple(factor * count for count in TABLE_3[configuration])
    even, lf = compared(chain(counts, nodes=8, ports=ports))
    assert 100 * (lf.score.cohesion / even.score.cohesion - 1) == pytest.approx(COHESION_GAIN[configuration], abs=0.005)
    assert lf.score.coupling == even.score.coupling
    assert lf.score.remote_senders < even.score.remote_senders


@pytest.mark.parametrize("configuration", TABLE_3)
def test_section_4_2_ten_times_the_job_has_ten_times_cohesion_and_coupling(configuration):
    low = planned(chain(TABLE_3[configuration], nodes=8), Scheduler.LF).score
    ten = tuple(10 * count for count in TABLE_3[configuration])
    high = planned(chain(ten, nodes=8, ports=10), Scheduler.LF).score
    assert (high.cohesion, high.coupling) == (pytest.approx(10 * low.cohesion), pytest.approx(10 * low.coupling))


def test_problem_1_resource_overuse():
    even, lf = compared(chain((2, 2), nodes=4))
    assert (even.score.slots_used, lf.score.slots_used) == (4, 2)


def test_problem_2_resource_misuse():
    even, lf = compared(chain((1, 1), nodes=4))
    assert (even.score.remote_senders, lf.score.remote_senders) == (1, 0)


def test_problem_3_partial_locality():
    even, lf = compared(chain((2, 3), nodes=4))
    assert (even.score.remote_senders, lf.score.remote_senders) == (1, 0)


def test_problem_4_no_locality_which_cohesion_does_not_see():
    even, lf = compared(chain((2, 4, 2), nodes=4))
    assert even.score.cohesion == lf.score.cohesion
    assert (even.score.remote_senders, lf.score.remote_senders) == (2, 0)


def test_example_1_the_pipelines_of_figure_4():
    lf = planned(chain((3, 2, 3), nodes=4), Scheduler.LF)
    # Sample 0-2, Extract 3-4, Count 5-7: two whole pipelines, then what is left is not contiguous
    assert lf.pipelines == ((0, 3, 5), (1, 4, 6), (2,), (7,))
    assert lf.score.slots_used == 4


def test_more_pipelines_than_slots_go_to_the_least_loaded_slot():
    lf = planned(chain(TABLE_3["star"], nodes=8), Scheduler.LF)
    assert [len(pipeline) for pipeline in lf.pipelines] == [8, 8, 3, 3, 2, 2, 1, 1, 3, 3, 2, 2, 1, 1]
    # pipeline i in slot i mod 8, as the paper has it, would give 11, 11, 5, 5, 3, 3, 1, 1
    assert [lf.placement.count(slot) for slot in range(8)] == [8, 8, 4, 4, 4, 4, 4, 4]
