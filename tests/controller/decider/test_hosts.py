"""Hosts in the loop: shares, limits, and loads that are predicted on the host they go to."""

import random
from dataclasses import replace

import pytest

from tests.controller.decider.hosted_job import APP, HostedJob, Machine, kg
from trimtab_controller.decider.values.decision import Planned, Skip
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.execution.state import HandoverPhase
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId

H0, H1, H2 = map(HostId, ("h0", "h1", "h2"))
SUMS = OperatorId("sums")
W0, W1, W2, W3 = map(WorkerId, ("w0", "w1", "w2", "w3"))


def view_of(decider) -> SmoothedView:
    view = decider.known.views[APP]
    assert isinstance(view, SmoothedView)
    return view


def capacities(decider) -> dict[WorkerId, float]:
    return {worker.id: worker.capacity for worker in view_of(decider).workers}


def job(machines: dict[HostId, Machine], workers: dict[WorkerId, HostId], partitions: int = 24, rate: float = 50.0):
    names = list(workers)
    owners = {kg(number): names[number % len(names)] for number in range(partitions)}
    return HostedJob(machines=machines, workers=workers, owners=owners, rates=dict.fromkeys(owners, rate))


def test_workers_of_a_host_with_too_few_cores_share_them() -> None:
    made = job({H0: Machine(1.0), H1: Machine(4.0)}, {W0: H0, W1: H0, W2: H1})
    decider = made.decider()
    (decision,) = made.round(decider)
    assert capacities(decider) == {W0: 0.5, W1: 0.5, W2: 1.0}
    assert isinstance(decision, Planned)
    made.round(decider)
    assert made.used_on(H0) <= 1.0
    assert made.loads()[W2] == pytest.approx(2 * made.loads()[W0], abs=5.0)


def test_what_other_processes_use_is_not_there_for_workers_up_to_half_of_the_host() -> None:
    busy = job({H0: Machine(2.0, others=0.8), H1: Machine(2.0, others=1.9)}, {W0: H0, W1: H0, W2: H1, W3: H1})
    decider = busy.decider()
    busy.round(decider)
    assert capacities(decider) == pytest.approx({W0: 0.6, W1: 0.6, W2: 0.5, W3: 0.5})


def test_a_worker_alone_on_a_host_counts_with_its_capacity() -> None:
    made = job({H0: Machine(1.0, others=0.03), H1: Machine(8.0, others=3.0)}, {W0: H0, W1: H1})
    decider = made.decider()
    made.round(decider)
    assert capacities(decider) == {W0: 1.0, W1: 1.0}


def test_noise_in_what_others_use_changes_no_share() -> None:
    made = job({H0: Machine(2.0, others=0.8), H1: Machine(2.0, others=0.8)}, {W0: H0, W1: H0, W2: H1, W3: H1})
    decider, dice, seen = made.decider(), random.Random(1), set()
    for _ in range(20):
        for machine in made.machines.values():
            machine.others = 0.8 + dice.uniform(-0.05, 0.05)
        made.round(decider)
        seen.add(tuple(capacities(decider).values()))
    assert len(seen) == 1


def test_the_workers_of_other_apps_count_with_what_is_asked_of_them() -> None:
    made = job({H0: Machine(1.0), H1: Machine(4.0)}, {W0: H0, W1: H0, W2: H1}, partitions=0)
    other = AppId("other")
    made.owners = {kg(0): W0, kg(1): W2, kg(0, app=other): W1}
    made.rates = {kg(0): 100.0, kg(1): 100.0, kg(0, app=other): 500.0}
    decider = made.decider()
    made.round(decider)
    assert capacities(decider)[W0] == pytest.approx(1.0 - 0.52)


def test_a_plan_never_overfills_a_host_whatever_the_cluster() -> None:
    """Each plan is checked against the cores and links that were there, host by host, after it was carried out."""
    plans = full = busy_links = 0
    for seed in range(9):
        dice = random.Random(seed)
        machines = {
            HostId(f"h{n}"): Machine(
                dice.choice([0.5, 1.0, 2.0]), others=dice.choice([0, 0.2]), link=dice.choice([None, 0.5e6, 2e6])
            )
            for n in (0, 1, 2)
        }
        workers = {WorkerId(f"w{n}"): HostId(f"h{dice.randrange(3)}") for n in range(6)}
        made = job(machines, workers)
        made.owners = {
            each: dice.choice([WorkerId("w0"), WorkerId("w1"), WorkerId(f"w{dice.randrange(6)}")])
            for each in made.owners
        }
        made.rates = {each: dice.choice([20.0, 80.0, 200.0]) for each in made.owners}
        made.input_bytes, made.solve_s = 1000.0, 0.02
        decider = made.decider(max_migrations=dice.choice([3, 10, 50]))
        for _ in range(4):
            before = {host: made.used_on(host) for host in machines}
            received = {host: made.received_on(host) for host in machines}
            decisions = made.round(decider)
            plans += any(isinstance(each, Planned) for each in decisions)
            for host, machine in machines.items():
                available = max(machine.cores - machine.others, 0.5 * machine.cores)
                assert made.used_on(host) <= max(available, before[host]) + 1e-6
                full += made.used_on(host) > 0.9 * available
                if machine.link is not None:
                    assert made.received_on(host) <= max(0.9 * machine.link, received[host]) + 1e-6
                    busy_links += made.received_on(host) > 0.6 * machine.link
    assert plans >= 10
    assert full >= 10, "hosts were really full"
    assert busy_links >= 10, "links too"


def test_a_full_host_is_named_in_the_decision() -> None:
    made = job({H0: Machine(1.0), H1: Machine(1.0)}, {W0: H0, W1: H1}, partitions=20, rate=95.0)
    made.owners = {each: (W0 if number < 15 else W1) for number, each in enumerate(made.owners)}
    decider = made.decider()
    (decision,) = made.round(decider)
    assert isinstance(decision, Planned)
    assert "full: CPU of h" in decision.plan.detail
    assert made.used_on(H1) <= 1.0


def test_state_goes_only_where_memory_is_left() -> None:
    machines = {
        H0: Machine(4.0, memory_bytes=10**9, memory_limit_bytes=4 * 10**9),
        H1: Machine(4.0, memory_bytes=10**9, memory_limit_bytes=10**9 + 3500),
    }
    made = job(machines, {W0: H0, W1: H1}, partitions=16)
    made.owners = dict.fromkeys(made.owners, W0)
    decider = made.decider()
    (decision,) = made.round(decider)
    assert isinstance(decision, Planned)
    assert len(decision.plan.moves) == 3
    assert "full: memory of h1" in decision.plan.detail


@pytest.mark.parametrize(("phase", "free"), [(HandoverPhase.WAITING, 1), (HandoverPhase.FAILED, 3)])
def test_state_that_plans_of_other_apps_bring_is_no_free_memory(phase: HandoverPhase, free: int) -> None:
    """Two key groups of another app are on their way to the second host, or were."""
    machines = {
        H0: Machine(4.0, memory_bytes=10**9, memory_limit_bytes=4 * 10**9),
        H1: Machine(4.0, memory_bytes=10**9, memory_limit_bytes=10**9 + 3500),
    }
    made = job(machines, {W0: H0, W1: H1, W2: H0, W3: H1}, partitions=16)
    other = [kg(number, app=AppId("other")) for number in range(2)]
    made.owners = dict.fromkeys(made.owners, W0) | {other[0]: W2, other[1]: W2}
    made.rates |= dict.fromkeys(other, 1.0)
    made.solve_s = 1.0
    decider = made.decider()
    made.bring(decider, dict.fromkeys(other, (W2,)), W3, phase)
    plans = [each.plan for each in made.round(decider) if isinstance(each, Planned)]
    assert [(plan.app, len(plan.moves)) for plan in plans] == [(APP, free)]


@pytest.mark.parametrize(("settings", "room"), [({}, 4), ({"max_link": 0.81}, 2)])
def test_key_groups_go_only_where_the_link_has_room_for_their_traffic(settings: dict[str, float], room: int) -> None:
    """Each receives 50 kB/s; h1 has 1 MB/s, others use 0.7 of it, and plans fill 0.9 unless it is said: room for 4."""
    made = job({H0: Machine(4.0), H1: Machine(4.0, link=1e6, other_traffic=0.7e6)}, {W0: H0, W1: H1}, partitions=16)
    made.input_bytes = 1000.0
    made.owners = dict.fromkeys(made.owners, W0)
    decider = made.decider(**settings)
    (decision,) = made.round(decider)
    assert isinstance(decision, Planned)
    assert len(decision.plan.moves) == room
    assert "full: incoming traffic of h1 (0." in decision.plan.detail
    assert [each for each in made.round(decider) if isinstance(each, Planned)] == []


def test_a_host_whose_link_is_too_full_already_gets_nothing_more_and_stops_no_plan() -> None:
    machines = {H0: Machine(4.0), H1: Machine(4.0, link=1e6, other_traffic=0.95e6), H2: Machine(4.0)}
    made = job(machines, {W0: H0, W1: H1, W2: H2}, partitions=16)
    made.input_bytes = 1000.0
    made.owners = {each: W1 if number < 2 else W0 for number, each in enumerate(made.owners)}
    (decision,) = made.round(made.decider())
    assert isinstance(decision, Planned)
    assert {move.target for move in decision.plan.moves} <= {W0, W2}


def test_of_links_and_traffic_that_nobody_knows_nothing_is_limited() -> None:
    made = job({H0: Machine(4.0), H1: Machine(4.0, link=1.0)}, {W0: H0, W1: H1}, partitions=16)
    made.owners = dict.fromkeys(made.owners, W0)
    (decision,) = made.round(made.decider())
    assert isinstance(decision, Planned)
    assert len(decision.plan.moves) == 8


def two_types(slowness: float, **names: float | None) -> HostedJob:
    """Two fast and two slow hosts; all key groups alike."""
    machines = {
        H0: Machine(2.0, type="fast", speed=names.get("fast")),
        H1: Machine(2.0, type="fast", speed=names.get("fast")),
        H2: Machine(2.0, slowness=slowness, type="slow", speed=names.get("slow")),
        HostId("h3"): Machine(2.0, slowness=slowness, type="slow", speed=names.get("slow")),
    }
    return job(machines, {W0: H0, W1: H1, W2: H2, W3: HostId("h3")}, partitions=48, rate=40.0)


def test_loads_are_predicted_on_the_host_they_go_to() -> None:
    """A host that is twice as fast: what the plan promises is what is measured, within 10 % of each worker's load."""
    made = two_types(2.0)
    decider = made.decider()
    for _ in range(12):
        before = dict(made.owners)
        decisions = made.round(decider)
        if before != made.owners and set(capacities(decider).values()) == {1.0, 0.5}:
            break
    (plan,) = [each.plan for each in decisions if isinstance(each, Planned)]
    measured = made.loads()
    distance = max(abs(load - plan.planned) for load in (max(measured.values()) - min(measured.values()),))
    assert distance <= 10.0
    view, speed = view_of(decider), {W0: 1.0, W1: 1.0, W2: 0.5, W3: 0.5}
    load = {row.key_group: row.load for row in view.key_groups}
    for worker, its_speed in speed.items():
        promised = sum(load[each] for each, owner in made.owners.items() if owner == worker) / its_speed
        assert measured[worker] == pytest.approx(promised, rel=0.1)
    for _ in range(3):
        decisions = made.round(decider)
        assert all(isinstance(each, Skip) or not isinstance(each, Planned) for each in decisions)


def test_a_type_that_is_away_for_a_window_keeps_its_speed() -> None:
    made = two_types(2.0)
    decider = made.decider(load_distance=1000.0)
    for _ in range(8):
        made.round(decider)
    assert capacities(decider) == pytest.approx({W0: 1.0, W1: 1.0, W2: 0.5, W3: 0.5})
    costs, whole = decider.known.capacity.costs, made.window()
    for gone in ("fast", "slow"):
        there = tuple(each for each in whole.hosts if each.type != gone)
        assert not costs.observe(replace(whole, hosts=there))
    assert not costs.observe(whole)
    assert costs.of_hosts() == pytest.approx({H0: 1.0, H1: 1.0, H2: 0.5, HostId("h3"): 0.5})


def test_types_that_no_operator_has_run_on_are_compared_by_their_measured_speed() -> None:
    made = two_types(2.0, fast=1.2, slow=0.6)
    made.owners = {each: (W0, W1)[number % 2] for number, each in enumerate(made.owners)}
    decider = made.decider()
    made.round(decider)
    assert capacities(decider) == pytest.approx({W0: 1.0, W1: 1.0, W2: 0.5, W3: 0.5})


def test_hosts_of_one_type_are_equally_fast_whatever_their_key_groups_cost() -> None:
    made = two_types(1.0)
    for machine in made.machines.values():
        machine.type = "same"
    decider = made.decider()
    for _ in range(8):
        made.round(decider)
    assert set(capacities(decider).values()) == {1.0}


def test_the_costs_predict_the_cpu_of_workers() -> None:
    made = two_types(2.0)
    decider = made.decider()
    for number in range(10):
        made.rates = {each: 20.0 + (each.partition * 7 + number * 13) % 40 for each in made.rates}
        made.round(decider)
    assert decider.known.capacity.accuracies[APP] > 0.92
    costs = decider.known.capacity.costs.costs
    assert costs[APP, SUMS, "fast"].per_input == pytest.approx(0.1, rel=0.05)
    assert costs[APP, SUMS, "slow"].per_input == pytest.approx(0.2, rel=0.05)


def test_cores_that_are_not_known_limit_nothing() -> None:
    made = job({H0: Machine(1.0), H1: Machine(1.0)}, {W0: H0, W1: H0, W2: H1})
    decider = made.decider()
    snapshot = made.window()
    decider.record(
        snapshot.end_ms / 1000.0, replace(snapshot, hosts=tuple(replace(h, cores=None) for h in snapshot.hosts))
    )
    assert set(capacities(decider).values()) == {1.0}
    assert {room.cpu for room in view_of(decider).rooms.values()} == {float("inf")}
