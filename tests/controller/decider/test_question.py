"""The controller's question to the solver: the same problem as the file that `trimtab snapshot` writes, in arrays."""

import json
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

from tests.controller.decider.decider_situations import a_worker, owned, plannable
from tests.controller.decider.hosted_job import Ticks
from tests.narrow import of_type
from trimtab_controller.decider.policies.instance import instance_of, question_of
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.decider.window.view import PlannableView, Room
from trimtab_controller.solver.answer import Copies, Method
from trimtab_controller.solver.balance import OBSTACLES, answer, collocation_problem_of, limits_of, problem_of
from trimtab_models.albic.methods import METHODS as COLLOCATION
from trimtab_models.albic.problem import problem_of as collocation_problem_of_instance
from trimtab_models.balance.drain import Obstacle
from trimtab_models.balance.hosts import limits_in
from trimtab_models.balance.methods import METHODS as BALANCE
from trimtab_models.balance.problem import problem_of as problem_of_instance
from trimtab_models.instances.reading import parsed_instance
from trimtab_models.instances.snapshot import BalanceInstance
from trimtab_models.solving import Deadline
from trimtab_models.solving import PlanDocument as MethodPlan
from trimtab_protocol.messages.codec import document as written
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

APP = AppId("app")
ALBIC = Settings(method=Method.ALBIC, max_migrations=7, remote_tuple_cpu_s=1e-4)


def kg(operator: str, partition: int) -> KeyGroup:
    return KeyGroup(APP, OperatorId(operator), partition)


def view_of(seed: int, *, shuffled: bool) -> PlannableView:
    """Three operators on five workers, one of them drained; some state is unknown, some flows lead elsewhere."""
    random = np.random.default_rng(seed)
    workers = [WorkerId(f"w{place}") for place in range(5)]
    key_groups = [kg(operator, partition) for operator in ("in", "join", "sums") for partition in range(8)]
    rows = [
        owned(
            each,
            workers[random.integers(5)],
            float(random.exponential(5.0)),
            None if random.random() < 0.3 else int(random.integers(0, 1000)),
        )
        for each in key_groups
    ]
    flows = {
        (key_groups[random.integers(16)], key_groups[8 + random.integers(16)]): float(random.exponential(50.0))
        for _ in range(20)
    }
    elsewhere = {
        (kg("in", 0), kg("sums", 99)): 1.0,
        (kg("gone", 0), kg("sums", 0)): 1.0,
        (KeyGroup(AppId("other"), OperatorId("in"), 0), kg("sums", 0)): 1.0,
    }
    return plannable(
        [a_worker(name, "h", 1.0 + place, draining=place == 3) for place, name in enumerate(reversed(workers))],
        [rows[place] for place in random.permutation(len(rows))] if shuffled else rows,
        flows=flows | elsewhere,
    )


def same(one: object, other: object) -> bool:
    """Field by field; a problem has problems and arrays in it."""
    for each in fields(one):  # type: ignore[arg-type]
        left, right = getattr(one, each.name), getattr(other, each.name)
        if each.name in ("serialise_cost", "deserialise_cost", "send_cost", "receive_cost", "charge"):
            continue  # given per operator or on average: what flows cost is compared
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, each.name
            if each.name in ("sending", "receiving", "work"):
                assert np.allclose(left, right, rtol=1e-12, atol=1e-12), each.name
            else:
                assert np.array_equal(left, right), each.name
        elif hasattr(left, "__dataclass_fields__"):
            same(left, right)
        else:
            assert left == right, each.name
    return True


@pytest.mark.parametrize("seed", range(5))
def test_the_question_is_the_problem_of_the_instance(seed: int) -> None:
    view = view_of(seed, shuffled=False)
    instance, asked = instance_of(view, ALBIC), question_of(view, ALBIC, 1.0)
    arrived = pickle.loads(pickle.dumps(asked))
    assert same(problem_of(arrived), problem_of_instance(instance))
    assert len(instance.flows) == len(asked.flows.rate) > 10
    assert same(collocation_problem_of(arrived), collocation_problem_of_instance(instance))


def with_hosts(view: PlannableView, seed: int) -> PlannableView:
    """On three hosts, of which one is unknown in part, with copies of some states."""
    random = np.random.default_rng(seed)
    workers = tuple(replace(each, host=HostId(f"h{place % 3}")) for place, each in enumerate(view.workers))
    rooms = {
        HostId("h0"): Room(cpu=90.0, memory=5_000.0, disk=4_000.0, received=90.0, sent=np.inf),
        HostId("h1"): Room(cpu=np.inf, memory=4_000.0, disk=3_000.0, received=70.0, sent=70.0),
        HostId("h2"): Room(cpu=60.0, memory=np.inf, disk=5_000.0),
    }
    places = {each.id: place for place, each in enumerate(workers)}
    pairs = [
        (row, place)
        for row, each in enumerate(view.key_groups)
        for place in random.permutation(5)[:2].tolist()
        if place != places[each.owner]
    ]
    rows, at = (np.array(each, np.int32) for each in zip(*pairs, strict=True))
    lacking = random.choice([0.0, 0.0, 0.25, 0.5], len(rows))
    found = Copies(
        key_group=rows, worker=at, lacking=lacking, in_memory=(lacking == 0.0) & (random.random(len(rows)) < 0.7)
    )
    traffic = random.uniform(0.0, 20.0, (2, len(view.owned)))
    table = replace(view.owned, traffic=traffic)
    return replace(view, workers=workers, rooms=rooms, copies=found, key_groups=table, standbys=int(random.integers(2)))


@pytest.mark.parametrize("seed", range(4))
def test_the_instance_has_the_limits_of_the_hosts(seed: int) -> None:
    view = with_hosts(view_of(seed, shuffled=False), seed)
    asked = limits_of(question_of(view, ALBIC, 1.0))
    text = json.dumps(written(instance_of(view, ALBIC)), allow_nan=False)
    instance = parsed_instance(text, BalanceInstance)
    read = limits_in(instance)
    assert asked is not None
    assert read is not None
    order = [0, 2, 1, 3, 4]  # sorted by name: the disk comes before the memory
    places = np.arange(len(view.owned))[:, None], np.arange(5)
    np.testing.assert_array_equal(read.host, asked.host)
    np.testing.assert_array_equal(read.usage, asked.usage[order])
    np.testing.assert_array_equal(read.room[:, :3], asked.room[order])
    assert {order[row] for row in read.stays} == set(asked.stays)
    assert asked.spared is not None
    assert read.spared is not None
    np.testing.assert_allclose(read.spared.on(*places), asked.spared.on(*places)[order])
    assert not problem_of_instance(instance).limit.size, "no node has a limit of its own"
    home = problem_of_instance(instance).home
    for method in (BALANCE["milp"], COLLOCATION["albic"]):
        plan = of_type(MethodPlan, method.solve(instance, Deadline(Ticks(), 0.2), 0))
        nodes = {worker.id: place for place, worker in enumerate(view.workers)}
        moved = {each["key_group"]: nodes[each["to"]] for each in plan.document["moves"]}
        allocation = np.array([moved.get(each.id, at) for each, at in zip(instance.key_groups, home, strict=True)])
        assert asked.tolerating(home).keep(allocation)
        assert moved


def test_a_reader_of_limits_of_nodes_finds_none_that_binds() -> None:
    """By the file contract alone: the sum of what key groups use of a limit, node by node."""
    view = with_hosts(view_of(0, shuffled=False), 0)
    document = written(instance_of(view, ALBIC))
    assert {key for node in document["nodes"] for key in node} == {"id", "capacity", "removing", "limits"}
    for node in document["nodes"]:
        for name in node["limits"]:
            assert not [each for each in document["key_groups"] if name in each["usage"]]


def test_a_key_group_that_is_too_heavy_for_the_others_is_named_as_stuck() -> None:
    """Each worker has one key group; with that of the drained one another worker would be 48 pp above the mean."""
    workers = [WorkerId(f"w{place}") for place in range(5)]
    view = plannable(
        [a_worker(name, "h", draining=name == "w1") for name in workers],
        [owned(kg("in", place), name, 60.0 if name == "w1" else 50.0) for place, name in enumerate(workers)],
    )
    found = answer(question_of(view, replace(ALBIC, method=Method.MILP), 10.0))
    [stuck] = found.stuck
    assert (stuck.key_group, stuck.worker, stuck.obstacle) == (1, 1, OBSTACLES[Obstacle.LOAD])
