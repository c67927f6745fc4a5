"""Both schedulers and the metrics on random jobs, against dumb twins that look at every single instance."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab_models.instances.topology import Edge, ParallelOperator, Slot, Topology
from trimtab_models.placement import PlacementParams, Scheduler, extract_pipelines, job_of, score, solve
from trimtab_models.solving import Never, PlanStatus

quick = settings(max_examples=100)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to 5 operators in any acyclic graph, up to 6 slots on up to 3 nodes."""
    counts = draw(st.lists(st.integers(1, 5), max_size=5))
    names = draw(st.permutations([f"o{at}" for at in range(len(counts))]))
    pairs = [(source, target) for target in names for source in names[: names.index(target)]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=7)) if pairs else []
    edges = [Edge(source=source, target=target, keyed=draw(st.booleans())) for source, target in chosen]
    slots = draw(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9)), min_size=1, max_size=6, unique=True))
    return Topology(
        operators=tuple(ParallelOperator(id=f"o{at}", instances=count) for at, count in enumerate(counts)),
        edges=tuple(edges),
        slots=tuple(Slot(node=node, port=port) for node, port in slots),
        slots_wanted=draw(st.one_of(st.none(), st.integers(1, 8))),
    )


def instances_of(topology):
    return [(operator.id, number) for operator in topology.operators for number in range(operator.instances)]


def paper_pipelines(topology):
    """Algorithms 3 and 4 word by word, with recursion."""
    left = {operator.id: list(range(operator.instances)) for operator in topology.operators}

    def connect(now, pipeline):
        if now in pipeline or not left[now]:
            return
        pipeline[now] = left[now].pop(0)
        for edge in topology.edges:
            if edge.target == now:
                connect(edge.source, pipeline)
        for edge in topology.edges:
            if edge.source == now:
                connect(edge.target, pipeline)

    pipelines = []
    for operator in topology.operators:
        while left[operator.id]:
            pipeline = {}
            connect(operator.id, pipeline)
            pipelines.append(set(pipeline.items()))
    return pipelines


def dumb_cohesion(topology, slot_of):
    total = 0
    for edge in topology.edges:
        for sender in (each for each in slot_of if each[0] == edge.source):
            receivers = [each for each in slot_of if each[0] == edge.target]
            total += max(1 if slot_of[each] == slot_of[sender] else 1 / 40 for each in receivers)  # type: ignore[assignment]
    return total


def dumb_coupling(slot_of):
    total = 0
    for each, slot in slot_of.items():
        others = [1 if slot_of[other] == slot else 1 / 40 for other in slot_of if other[0] == each[0] and other != each]
        total += max(others, default=1 / 40)  # type: ignore[assignment]
    return total


def dumb_remote_senders(topology, slot_of):
    """Who receives tuples, spread instance by instance until nothing changes; then the contract's sentence."""
    fed = {edge.target for edge in topology.edges}
    receiving = {each for each in slot_of if each[0] not in fed}
    while True:
        more = set(receiving)
        for edge in topology.edges:
            targets = [each for each in slot_of if each[0] == edge.target]
            for sender in (each for each in receiving if each[0] == edge.source):
                local = [each for each in targets if slot_of[each] == slot_of[sender]]
                more.update(targets if edge.keyed or not local else local)
        if more == receiving:
            break
        receiving = more
    remote = set()
    for edge in topology.edges:
        if not edge.keyed:
            near = {slot_of[each] for each in receiving if each[0] == edge.target}
            remote |= {each for each in receiving if each[0] == edge.source and slot_of[each] not in near}
    return len(remote)


def planned(topology, *schedulers):
    job = job_of(topology)
    result = solve(job, stop=Never(), seed=0, params=PlacementParams(schedulers=schedulers))
    return job, result, dict(zip(instances_of(topology), result.placement, strict=True))


@quick
@given(topologies())
def test_pipelines_are_those_of_the_paper(topology):
    job = job_of(topology)
    number = instances_of(topology)
    assert [{number[each] for each in pipeline} for pipeline in extract_pipelines(job)] == paper_pipelines(topology)


@quick
@given(topologies())
def test_pipeline_shapes_are_the_components_of_the_operators_with_t_instances(topology):
    expected = defaultdict(int)
    for t in range(1, 6):
        groups = [{operator.id} for operator in topology.operators if operator.instances >= t]
        for edge in topology.edges:
            ends = [group for group in groups if edge.source in group or edge.target in group]
            if len(ends) == 2:
                groups = [group for group in groups if group not in ends] + [ends[0] | ends[1]]
        for group in groups:
            expected[frozenset(group)] += 1
    job, found = job_of(topology), defaultdict(int)
    for pipeline in extract_pipelines(job):
        found[frozenset(job.operators[job.operator_of[each]] for each in pipeline)] += 1
    assert found == expected


@quick
@given(topologies(), st.sampled_from([Scheduler.EVEN, Scheduler.LF]))
def test_the_score_is_what_a_look_at_every_instance_gives(topology, scheduler):
    _, result, slot_of = planned(topology, scheduler)
    assert result.score.cohesion == pytest.approx(dumb_cohesion(topology, slot_of))
    assert result.score.coupling == pytest.approx(dumb_coupling(slot_of))
    assert result.score.remote_senders == dumb_remote_senders(topology, slot_of)
    assert result.score.slots_used == len(set(slot_of.values()))


@quick
@given(topologies())
def test_even_puts_instance_i_into_slot_i_mod_r(topology):
    job, result, _ = planned(topology, Scheduler.EVEN)
    assert len(job.slots) == min(len(topology.slots), topology.slots_wanted or len(topology.slots))
    assert list(result.placement) == [at % len(job.slots) for at in range(len(result.placement))]


@quick
@given(topologies())
def test_lf_keeps_pipelines_whole_and_fills_the_least_loaded_slot(topology):
    job, result, _ = planned(topology, Scheduler.LF)
    loads = [0] * len(job.slots)
    for pipeline in result.pipelines:
        slots = {result.placement[each] for each in pipeline}
        assert slots == {loads.index(min(loads))}
        loads[slots.pop()] += len(pipeline)


@quick
@given(topologies())
def test_auto_is_never_worse_than_either_and_never_above_the_bound(topology):
    _, best, _ = planned(topology, Scheduler.EVEN, Scheduler.LF)
    for scheduler in (Scheduler.EVEN, Scheduler.LF):
        _, single, _ = planned(topology, scheduler)
        assert best.objective >= single.objective
        assert best.scores[scheduler] == single.score
    assert best.objective <= best.bound + 1e-9
    assert best.score == best.scores[best.scheduler]
    assert (best.status is PlanStatus.OPTIMAL) == (best.gap < 1e-9)


@quick
@given(topologies().filter(lambda topology: sum(each.instances for each in topology.operators) <= 5))
def test_the_bound_is_above_every_placement(topology):
    job = job_of(topology)
    bound = solve(job, stop=Never(), seed=0).bound
    slots, count = len(job.slots), len(job.operator_of)
    for code in range(slots**count):
        each = score(job, [code // slots**at % slots for at in range(count)])
        assert each.cohesion - each.coupling <= bound + 1e-9
