"""A move must save what it costs: in the simulator, with costs from a recorded snapshot, and with costs per flow."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab_models.albic.problem import PAY_BACK_S, RESTORED_BYTES_S, problem_of, repaid_charge
from trimtab_models.albic.solve import solve
from trimtab_models.instances.snapshot import (
    BalanceInstance,
    MigrationBudget,
    Node,
    SnapshotKeyGroup,
    SnapshotOptions,
    TupleFlow,
)
from trimtab_models.simulation.rounds import policy_named, simulate
from trimtab_models.simulation.workloads import recorded
from trimtab_models.solving import Never


def six_flows(state_bytes: float, cost: float = 0.01) -> BalanceInstance:
    """Six key groups on each of two nodes; each of the first talks to one on the other node, a tuple per second."""
    sides = [(f"{name}{place}", name) for name in ("in", "out") for place in range(6)]
    nodes = {**{f"in{place}": f"n{place % 2}" for place in range(6)}}
    nodes |= {f"out{place}": f"n{(place + 1) % 2}" for place in range(6)}
    return BalanceInstance(
        nodes=(Node(id="n0", capacity=1.0), Node(id="n1", capacity=1.0)),
        key_groups=tuple(
            SnapshotKeyGroup(id=name, operator=operator, node=nodes[name], load=2.0, state_bytes=state_bytes)
            for name, operator in sides
        ),
        flows=tuple(TupleFlow(source=f"in{place}", target=f"out{place}", rate=1.0) for place in range(6)),
        budget=MigrationBudget(max_migrations=6),
        options=SnapshotOptions(serialise_cost=cost, deserialise_cost=cost),
    )


@pytest.mark.parametrize(("state_bytes", "cost", "moves"), [(1e9, 0.01, 0), (1e9, 0.5, 0), (1e6, 0.5, 6)])
def test_six_flows_of_a_tuple_a_second_between_gigabytes_move_nothing(state_bytes, cost, moves):
    """A gigabyte takes 100 s of a core, which half a percent at each end of a tuple a second repays in 10,000 s."""
    run = simulate(recorded([six_flows(state_bytes, cost)] * 5), policy_named("albic"), seed=1)
    assert sum(each.migrations for each in run.rounds) == moves


def test_a_charge_is_a_core_for_the_restore_over_the_time_to_pay_back():
    assert repaid_charge(np.array([RESTORED_BYTES_S * PAY_BACK_S])).tolist() == [100.0]
    assert repaid_charge(np.array([1e7]), bytes_s=1e6, unit_s=2.0, pay_back_s=120.0).tolist() == [10.0]


def test_only_flows_that_cost_something_are_brought_together():
    dear = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    problem = replace(problem_of(six_flows(1.0)), send_cost=dear, receive_cost=dear / 2)
    result = solve(problem, stop=Never(), seed=1)
    local = ~problem.remote(result.balance.allocation)
    assert local.tolist() == [True, False, True, False, False, False]
    assert problem.loads(result.balance.allocation).sum() == pytest.approx(24.0 - 2 * 1.5)


def test_costs_per_flow_are_those_on_average_where_all_are_alike():
    problem = problem_of(six_flows(1.0, 0.5))
    alike = replace(problem, send_cost=np.full(6, 0.5), receive_cost=np.full(6, 0.5))
    ours, theirs = (solve(each, stop=Never(), seed=3).balance.allocation.tolist() for each in (alike, problem))
    assert ours == theirs
    with pytest.raises(ValueError, match="one entry per flow"):
        replace(problem, send_cost=np.ones(5))
