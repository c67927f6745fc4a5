"""Auto, and what goes beyond the paper: measured rates, capacities of slots, the running placement."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.instances.topology import Edge, ParallelOperator, Slot, Topology
from trimtab_models.placement import AUTO, PlacementParams, Scheduler, job_of, keep_running, score, solve
from trimtab_models.solving import Infeasible, Never, PlanStatus

LF_ONLY, EVEN_ONLY = PlacementParams(schedulers=(Scheduler.LF,)), PlacementParams(schedulers=(Scheduler.EVEN,))


def topology(counts, edges, slots):
    return Topology(
        operators=tuple(ParallelOperator(id=id_, instances=count) for id_, count in counts.items()),
        edges=tuple(Edge(source=source, target=target) for source, target in edges),
        slots=tuple(Slot(node=f"n{at}", port=1) for at in range(slots)),
    )


def planned(job, params=AUTO):
    return solve(job, stop=Never(), seed=0, params=params)


def test_auto_takes_even_where_pipelines_outnumber_slots_and_lf_is_worse():
    result = planned(job_of(topology({"a": 4, "b": 1, "c": 2}, ["ab", "bc"], slots=2)))
    lf = result.scores[Scheduler.LF]
    assert (result.scheduler, result.objective) == (Scheduler.EVEN, pytest.approx(3.05 - 4.075))
    assert (lf.cohesion, lf.coupling) == (pytest.approx(2.075), pytest.approx(5.05))


def test_auto_takes_lf_where_it_keeps_tuples_at_home_and_says_so():
    result = planned(job_of(topology({"a": 2, "b": 4, "c": 2}, ["ab", "bc"], slots=4)))
    assert (result.scheduler, result.score.remote_senders) == (Scheduler.LF, 0)  # cohesion and coupling are equal


def test_a_plan_that_meets_the_bound_is_optimal():
    result = planned(job_of(topology({"a": 1, "b": 1}, ["ab"], slots=2)))
    assert (result.status, result.gap) == (PlanStatus.OPTIMAL, 0)


def test_no_slot_is_infeasible():
    assert planned(job_of(topology({"a": 1}, [], slots=0))) == Infeasible(reason="there is no slot")


def test_measured_rates_weigh_edges_and_keep_the_average_weight_at_1():
    job = job_of(topology({"a": 2, "b": 1, "c": 1}, ["ab", "ac"], slots=2), rates=[300, 100])
    assert [stream.weight for stream in job.streams] == [1.5, 0.5]
    unweighted = job_of(topology({"a": 2, "b": 1, "c": 1}, ["ab", "ac"], slots=2), rates=[0, 0])
    assert [stream.weight for stream in unweighted.streams] == [1, 1]
    beside_b = score(job, [0, 1, 0, 1])  # each sender has one receiver in its slot; one of two kinds
    assert beside_b.cohesion == pytest.approx(1.5 * (1 + 1 / 40) + 0.5 * (1 + 1 / 40))


@pytest.mark.parametrize(("keyed", "remote"), [(False, 0), (True, 1)])
def test_a_keyed_edge_reaches_every_slot_of_its_receivers_and_whoever_it_reaches_may_send_far(keyed, remote):
    """a and b stand side by side, another b alone; c stands with the first.  Unkeyed, nothing comes to the other b."""
    job = job_of(
        Topology(
            operators=tuple(ParallelOperator(id=id_, instances=count) for id_, count in (("a", 1), ("b", 2), ("c", 1))),
            edges=(Edge(source="a", target="b", keyed=keyed), Edge(source="b", target="c")),
            slots=(Slot(node="n0", port=1), Slot(node="n1", port=1)),
        )
    )
    assert score(job, [0, 0, 1, 0]).remote_senders == remote


def limited(job_topology, demand, room):
    slots = {slot: (amount,) for slot, amount in zip(job_topology.slots, room, strict=True)}
    return job_of(job_topology, demand=[(amount,) for amount in demand], capacity=slots)


@pytest.mark.parametrize("params", [LF_ONLY, EVEN_ONLY])
def test_slots_without_room_are_passed_over(params):
    job = limited(topology({"a": 1, "b": 1}, ["ab"], slots=3), demand=[4, 4], room=[3, 8, 8])
    result = planned(job, params)
    assert 0 not in result.placement
    assert result.score.overloaded == 0


def test_a_pipeline_that_fits_nowhere_as_a_whole_is_parted():
    job = limited(topology({"a": 1, "b": 1}, ["ab"], slots=2), demand=[4, 4], room=[5, 5])
    assert planned(job, LF_ONLY).placement == (0, 1)


@pytest.mark.parametrize("params", [LF_ONLY, EVEN_ONLY])
def test_what_fits_nowhere_overloads_least_and_is_counted(params):
    job = limited(topology({"a": 1}, [], slots=2), demand=[4], room=[1, 2])
    result = planned(job, params)
    assert (result.placement, result.score.overloaded) == ((1,), 1)


def test_auto_takes_the_plan_that_overloads_fewer_slots_first():
    job = limited(topology({"a": 2, "b": 2}, ["ab"], slots=2), demand=[1, 3], room=[2, 6])
    plans = {
        scheduler: planned(job, PlacementParams(schedulers=(scheduler,)))
        for scheduler in (Scheduler.EVEN, Scheduler.LF)
    }
    best = planned(job)
    assert best.score.overloaded == min(plan.score.overloaded for plan in plans.values())


def running_of(job, placement):
    return {job.name(instance): job.slots[slot] for instance, slot in enumerate(placement)}


def test_a_good_running_placement_stays_as_it_is():
    cluster = topology({"a": 2, "b": 2}, ["ab"], slots=3)
    running = running_of(job_of(cluster), [2, 1, 1, 2])  # two whole pipelines, under other names than L/F gives
    result = planned(job_of(cluster, running=running))
    assert (result.scheduler, result.score.moved, result.placement) == (Scheduler.RUNNING, 0, (2, 1, 1, 2))


def test_a_poor_running_placement_is_left_when_the_gain_pays_for_the_moves():
    cluster = topology({"a": 2, "b": 2}, ["ab"], slots=4)
    job = job_of(cluster, running=running_of(job_of(cluster), [0, 1, 2, 3]))
    left = planned(job, PlacementParams(move_price=0.5))
    assert (left.scheduler, left.score.moved) == (Scheduler.LF, 2)  # renamed: two of four stay where they are
    assert planned(job, PlacementParams(move_price=1.5)).scheduler is Scheduler.RUNNING


def test_instances_whose_slot_is_gone_are_placed_and_do_not_count_as_moved():
    cluster = topology({"a": 2, "b": 2}, ["ab"], slots=2)
    gone = Slot(node="lost", port=1)
    running = {"a#0": gone, "b#0": cluster.slots[1], "a#1": gone, "b#1": cluster.slots[0]}
    result = planned(job_of(cluster, running=running))
    assert (result.score.moved, result.score.remote_senders) == (0, 0)
    assert result.placement[2:] == (1, 0)


def test_what_runs_in_part_is_no_plan_however_dear_moves_are():
    cluster = topology({"a": 2, "b": 2}, ["ab"], slots=2)
    job = job_of(cluster, running={"b#0": cluster.slots[0], "b#1": cluster.slots[0]})
    result = planned(job, PlacementParams(move_price=100.0))
    assert result.scheduler is not Scheduler.RUNNING
    assert min(result.placement) >= 0


@settings(max_examples=100)
@given(st.data())
def test_renaming_changes_nothing_but_names(data):
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    slots = data.draw(st.integers(1, 4))
    cluster = topology({f"o{at}": count for at, count in enumerate(counts)}, [], slots=slots)
    capacity = {slot: (data.draw(st.sampled_from([1.0, 2.0])),) for slot in cluster.slots}
    each = st.lists(st.integers(0, slots - 1), min_size=sum(counts), max_size=sum(counts))
    running, placement = data.draw(each), data.draw(each)
    plain = job_of(cluster)
    job = job_of(cluster, running=running_of(plain, running), capacity=capacity, demand=[(0.0,)] * len(counts))
    renamed, numbers = keep_running(job, placement)
    shape = [(placement[at], renamed[number], job.operator_of[at]) for at, number in enumerate(numbers)]
    assert sorted(numbers) == list(range(len(placement)))
    assert all(job.operator_of[number] == operator for number, (_, _, operator) in zip(numbers, shape, strict=True))
    names = {(old, new) for old, new, _ in shape}
    assert len(names) == len({old for old, _ in names}) == len({new for _, new in names})
    assert all(capacity[job.slots[old]] == capacity[job.slots[new]] for old, new in names)


def test_renaming_moves_as_few_as_any_renaming_of_instances():
    cluster = topology({"a": 4}, [], slots=2)
    job = job_of(cluster, running=running_of(job_of(cluster), [0, 0, 0, 1]))
    renamed, _ = keep_running(job, [1, 1, 0, 0])
    assert sum(now != then for now, then in zip(job.running, renamed, strict=True)) == 1
