"""Initial placement: the figures of the paper (Son, Moon 2020), what goes beyond it, and dumb twins on random jobs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.narrow import of_type
from trimtab_models.instances.topology import Edge, ParallelOperator, Slot, Topology
from trimtab_models.placement import (
    AUTO,
    Job,
    PlacementParams,
    PlacementResult,
    Scheduler,
    extract_pipelines,
    job_of,
    score,
    solve,
)
from trimtab_models.solving import Never, PlanStatus


def topology(counts, edges, slots):
    return Topology(
        operators=tuple(ParallelOperator(id=id_, instances=count) for id_, count in counts.items()),
        edges=tuple(Edge(source=source, target=target) for source, target in edges),
        slots=tuple(Slot(node=f"n{at}", port=1) for at in range(slots)),
    )


def auto_plan(job, params=AUTO):
    return solve(job, stop=Never(), seed=0, params=params)


def test_auto_takes_even_where_pipelines_outnumber_slots_and_lf_is_worse():
    result = auto_plan(job_of(topology({"a": 4, "b": 1, "c": 2}, ["ab", "bc"], slots=2)))
    lf = result.scores[Scheduler.LF]
    assert (result.scheduler, result.objective) == (Scheduler.EVEN, pytest.approx(3.05 - 4.075))
    assert (lf.cohesion, lf.coupling) == (pytest.approx(2.075), pytest.approx(5.05))


def test_auto_takes_lf_where_it_keeps_tuples_at_home_and_says_so():
    result = auto_plan(job_of(topology({"a": 2, "b": 4, "c": 2}, ["ab", "bc"], slots=4)))
    assert (result.scheduler, result.score.remote_senders) == (Scheduler.LF, 0)  # cohesion and coupling are equal


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


def paper_plan(job: Job, scheduler: Scheduler) -> PlacementResult:
    return of_type(PlacementResult, solve(job, stop=Never(), seed=0, params=PlacementParams(schedulers=(scheduler,))))


def compared(job: Job) -> tuple[PlacementResult, PlacementResult]:
    return paper_plan(job, Scheduler.EVEN), paper_plan(job, Scheduler.LF)


@pytest.mark.parametrize(("factor", "ports"), [(1, 1), (10, 10)], ids=["low", "high"])
@pytest.mark.parametrize("configuration", TABLE_3)
def test_section_4_2_cohesion_gain_at_equal_coupling(configuration, factor, ports):
    counts = tuple(factor * count for count in TABLE_3[configuration])
    even, lf = compared(chain(counts, nodes=8, ports=ports))
    assert 100 * (lf.score.cohesion / even.score.cohesion - 1) == pytest.approx(COHESION_GAIN[configuration], abs=0.005)
    assert lf.score.coupling == even.score.coupling
    assert lf.score.remote_senders < even.score.remote_senders


@pytest.mark.parametrize(
    ("counts", "slots_used", "remote_senders"),
    [((2, 2), (4, 2), (2, 0)), ((1, 1), (2, 1), (1, 0)), ((2, 3), (4, 3), (1, 0)), ((2, 4, 2), (4, 4), (2, 0))],
    ids=["resource overuse", "resource misuse", "partial locality", "no locality, which cohesion does not see"],
)
def test_problems_1_to_4_of_even_do_not_come_with_lf(counts, slots_used, remote_senders):
    even, lf = compared(chain(counts, nodes=4))
    assert (even.score.slots_used, lf.score.slots_used) == slots_used
    assert (even.score.remote_senders, lf.score.remote_senders) == remote_senders


def test_example_1_the_pipelines_of_figure_4():
    lf = paper_plan(chain((3, 2, 3), nodes=4), Scheduler.LF)
    # Sample 0-2, Extract 3-4, Count 5-7: two whole pipelines, then what is left is not contiguous
    assert lf.pipelines == ((0, 3, 5), (1, 4, 6), (2,), (7,))
    assert lf.score.slots_used == 4


def test_more_pipelines_than_slots_go_to_the_least_loaded_slot():
    lf = paper_plan(chain(TABLE_3["star"], nodes=8), Scheduler.LF)
    assert [len(pipeline) for pipeline in lf.pipelines] == [8, 8, 3, 3, 2, 2, 1, 1, 3, 3, 2, 2, 1, 1]
    # pipeline i in slot i mod 8, as the paper has it, would give 11, 11, 5, 5, 3, 3, 1, 1
    assert [lf.placement.count(slot) for slot in range(8)] == [8, 8, 4, 4, 4, 4, 4, 4]


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


def plan_by(topology, *schedulers):
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
@given(topologies(), st.sampled_from([Scheduler.EVEN, Scheduler.LF]))
def test_the_score_is_what_a_look_at_every_instance_gives(topology, scheduler):
    _, result, slot_of = plan_by(topology, scheduler)
    assert result.score.cohesion == pytest.approx(dumb_cohesion(topology, slot_of))
    assert result.score.coupling == pytest.approx(dumb_coupling(slot_of))
    assert result.score.remote_senders == dumb_remote_senders(topology, slot_of)
    assert result.score.slots_used == len(set(slot_of.values()))


@quick
@given(topologies())
def test_even_puts_instance_i_into_slot_i_mod_r(topology):
    job, result, _ = plan_by(topology, Scheduler.EVEN)
    assert len(job.slots) == min(len(topology.slots), topology.slots_wanted or len(topology.slots))
    assert list(result.placement) == [at % len(job.slots) for at in range(len(result.placement))]


@quick
@given(topologies())
def test_lf_keeps_pipelines_whole_and_fills_the_least_loaded_slot(topology):
    job, result, _ = plan_by(topology, Scheduler.LF)
    loads = [0] * len(job.slots)
    for pipeline in result.pipelines:
        slots = {result.placement[each] for each in pipeline}
        assert slots == {loads.index(min(loads))}
        loads[slots.pop()] += len(pipeline)


@quick
@given(topologies())
def test_auto_is_never_worse_than_either_and_never_above_the_bound(topology):
    _, best, _ = plan_by(topology, Scheduler.EVEN, Scheduler.LF)
    for scheduler in (Scheduler.EVEN, Scheduler.LF):
        _, single, _ = plan_by(topology, scheduler)
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
