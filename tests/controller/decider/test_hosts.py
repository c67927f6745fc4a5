"""Hosts in the loop: shares, limits, and loads that are predicted on the host they go to."""

import random
from dataclasses import replace

import pytest

from tests.controller.decider.hosted_job import APP, HostedJob, Machine, kg
from tests.controller.decider.sized_apps import facts, verdict, worker
from tests.narrow import of_type, only_one
from trimtab_controller.decider.events import IntentsChanged
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.memory.standbys import WRITTEN_S
from trimtab_controller.decider.values.decision import Decision, Planned, SizeDirection, Skip, StandbysPlaced
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.execution.state import HandoverPhase
from trimtab_controller.solver.answer import Method
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners

H0, H1, H2 = map(HostId, ("h0", "h1", "h2"))
SUMS = OperatorId("sums")
W0, W1, W2, W3 = map(WorkerId, ("w0", "w1", "w2", "w3"))


def view_of(decider) -> SmoothedView:
    return of_type(SmoothedView, decider.known.views[APP])


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


def test_what_a_worker_uses_besides_its_key_groups_is_known() -> None:
    machines = {H0: Machine(4.0, type="fast", speed=1.0), H1: Machine(4.0, type="slow", speed=0.5)}
    made = job(machines, {W0: H0, W1: H1}, partitions=8)
    made.fixed = 0.2
    decider = made.decider()
    made.round(decider)
    assert view_of(decider).fixed_use == pytest.approx(15.0), "20 % of the fast core, and 10 % at the slow one"


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


@pytest.mark.parametrize(("phase", "free"), [(HandoverPhase.WAITING, 1), (HandoverPhase.FAILED, 3)])
def test_state_goes_only_where_memory_is_left_and_what_other_apps_bring_counts(phase: HandoverPhase, free: int) -> None:
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
    assert "full: memory of h1" in plans[0].detail


@pytest.mark.parametrize(("settings", "room"), [({}, 4), ({"max_link": 0.81}, 2)])
def test_key_groups_go_only_where_the_link_has_room_for_their_traffic(settings: dict[str, float], room: int) -> None:
    """Each receives 50 kB/s; h1 has 1 MB/s, others use 0.7 of it, and plans fill 0.9 unless it is said: room for 4."""
    made = job({H0: Machine(4.0), H1: Machine(4.0, link=1e6, other_traffic=0.7e6)}, {W0: H0, W1: H1}, partitions=16)
    made.input_bytes = 1000.0
    made.owners = dict.fromkeys(made.owners, W0)
    decider = made.decider(**settings)
    decision = only_one(Planned, made.round(decider))
    assert len(decision.plan.moves) == room
    assert "full: incoming traffic of h1 (0." in decision.plan.detail
    assert [each for each in made.round(decider) if isinstance(each, Planned)] == []


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
    for name, its_speed in speed.items():
        promised = sum(load[each] for each, owner in made.owners.items() if owner == name) / its_speed
        assert measured[name] == pytest.approx(promised, rel=0.1)
    for _ in range(3):
        decisions = made.round(decider)
        assert all(isinstance(each, Skip) or not isinstance(each, Planned) for each in decisions)


def test_types_that_no_operator_has_run_on_are_compared_by_their_measured_speed() -> None:
    made = two_types(2.0, fast=1.2, slow=0.6)
    made.owners = {each: (W0, W1)[number % 2] for number, each in enumerate(made.owners)}
    decider = made.decider()
    made.round(decider)
    assert capacities(decider) == pytest.approx({W0: 1.0, W1: 1.0, W2: 0.5, W3: 0.5})


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


# ---- hosts that run out of CPU, memory, disk or link are told, whatever their workers' capacities say


def told(decider: Decider) -> list[tuple[AppId, tuple[WorkerId, ...], str]]:
    found = [each for each in decider.known.concerns if each.kind is ConcernKind.HOST_FULL]
    return [(each.app, each.workers, each.detail) for each in found]


def see(made: HostedJob, decider: Decider, windows: int = 1) -> list[tuple[AppId, tuple[WorkerId, ...], str]]:
    for _ in range(windows):
        snapshot = made.window()
        decider.record(snapshot.end_ms / 1000.0, snapshot)
    return told(decider)


def test_workers_within_their_capacities_may_ask_for_more_than_their_host_has() -> None:
    """Two workers with a core each use 62 % of it, on a host with one core; what others use counts up to half of it."""
    made = job({H0: Machine(1.0), H1: Machine(4.0, others=3.9)}, {W0: H0, W1: H0, W2: H1}, partitions=36)
    decider = made.decider()
    assert see(made, decider, 2) == [], "two windows are not several"
    assert see(made, decider) == [(APP, (W0, W1), "h0: 124 % of its CPU is asked for; for 3 windows or longer")]
    made.cost /= 1.5
    assert see(made, decider) == []


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (Machine(4.0, memory_bytes=91, memory_limit_bytes=100), "memory 91 % used"),
        (Machine(4.0, disk_total_bytes=100, disk_free_bytes=19), "disk 81 % used"),
        (Machine(4.0, link=1000.0, other_traffic=710.0), "link 71 % used"),
        (
            Machine(4.0, memory_bytes=95, memory_limit_bytes=100, disk_total_bytes=100, disk_free_bytes=1),
            "disk 99 % used, memory 95 % used",
        ),
    ],
)
def test_memory_disk_and_link_have_limits(machine: Machine, said: str) -> None:
    made = job({H0: machine, H1: Machine(4.0)}, {W0: H0, W1: H1})
    decider = made.decider(max_disk=0.8, max_link=0.7)
    assert see(made, decider, 3) == [(APP, (W0,), f"h0: {said}; for 3 windows or longer")]


@pytest.mark.parametrize(
    "machine",
    [
        Machine(4.0, memory_bytes=90, memory_limit_bytes=100),
        Machine(4.0, memory_bytes=99),
        Machine(4.0, disk_total_bytes=100, disk_free_bytes=20, link=1000.0, other_traffic=700.0),
        Machine(4.0),
        Machine(0.0),
    ],
)
def test_up_to_the_limits_and_where_nothing_is_known_no_host_is_full(machine: Machine) -> None:
    made = job({H0: machine, H1: Machine(4.0)}, {W0: H0, W1: H1})
    assert see(made, made.decider(max_disk=0.8, max_link=0.7), 4) == []


# ---- disks as limits of hosts: no plan and no standby fills one beyond its limit, and staying is always allowed


TOTAL = 100_000


def disk(free: int | None) -> Machine:
    """A host with four cores; 10,000 of the bytes are above the limit of 90 %."""
    return Machine(4.0, disk_total_bytes=TOTAL, disk_free_bytes=free)


def disks_job(machines: dict[HostId, Machine], workers: dict[WorkerId, HostId], **changes: object) -> HostedJob:
    """16 key groups with 1,000 bytes each, all of them on the first worker."""
    owners = {kg(number): next(iter(workers)) for number in range(16)}
    made = HostedJob(machines=machines, workers=workers, owners=owners, rates=dict.fromkeys(owners, 50.0))
    return replace(made, **changes)  # type: ignore[arg-type]


def drain(decider: Decider, worker: WorkerId) -> None:
    decider.on_event(0.0, IntentsChanged(intents=(Drain(worker=worker, by="ann", at=1.0, reason="test"),)))


def planned(decisions: list[Decision]) -> Planned:
    (found,) = [each for each in decisions if isinstance(each, Planned)]
    return found


@pytest.mark.parametrize("free", [0, 10_000])
def test_on_a_disk_that_is_too_full_already_everything_may_stay(free: int) -> None:
    made = disks_job({H0: disk(free), H1: disk(free)}, {W0: H0, W1: H1})
    decider = made.decider()
    for _ in range(3):
        decisions = made.round(decider)
        assert not [each for each in decisions if isinstance(each, Planned)]
    assert set(made.owners.values()) == {W0}
    made.machines[H1].disk_free_bytes = 60_000
    assert len(planned(made.round(decider)).plan.moves) == 8, "it goes on when there is room"


def test_a_drain_takes_what_fits_and_the_host_is_named() -> None:
    made = disks_job({H0: disk(50_000), H1: disk(15_500)}, {W0: H0, W1: H1})
    decider = made.decider()
    drain(decider, W0)
    for _ in range(4):
        decisions = made.round(decider)
    assert list(made.owners.values()).count(W1) == 5
    assert "full: disk of h1" in str(decisions)
    made.machines[H1].disk_free_bytes = 60_000
    for _ in range(2):
        made.round(decider)
    assert set(made.owners.values()) == {W1}


def test_standbys_are_placed_only_where_the_disk_has_room() -> None:
    made = disks_job({H0: disk(50_000), H1: disk(14_500), H2: disk(13_500)}, {W0: H0, W1: H1, W2: H2}, standbys=1)
    decider = made.decider(load_distance=1000.0)
    for _ in range(4):
        made.round(decider)
    assert sorted(made.followers.values()) == [(W1,)] * 4 + [(W2,)] * 3
    assert decider.known.missing_standbys == {APP: 9}
    made.machines[H2].disk_free_bytes = 60_000
    for _ in range(2 + int(WRITTEN_S / 10)):
        made.round(decider)
    assert decider.known.missing_standbys == {APP: 0}


def test_what_standbys_are_still_to_write_is_no_room_for_others() -> None:
    """They take 30 windows; meanwhile the disk looks as free as before."""
    made = disks_job({H0: disk(50_000), H1: disk(22_500)}, {W0: H0, W1: H1}, standbys=1, standby_windows=30)
    decider = made.decider(load_distance=1000.0)
    decisions = [each for _ in range(5) for each in made.round(decider)]
    assert sum(len(each.rows) for each in decisions if isinstance(each, StandbysPlaced)) == 12
    followed = {each for each, names in made.followers.items() if names == (W1,)}
    drain(decider, W0)
    moves = planned(made.round(decider)).plan.moves
    assert {move.key_group for move in moves} == followed, "what they write is counted once, and nothing else fits"


def test_a_move_to_a_standby_leaves_the_standbys_beside_it_their_room() -> None:
    """The disk has room for eight key groups; the second worker follows twelve already."""
    made = disks_job({H0: disk(50_000), H1: disk(18_000)}, {W0: H0, W1: H1}, standbys=1)
    made.followers = {kg(number): (W1,) for number in range(4, 16)}
    found = planned(made.round(made.decider()))
    assert (len(found.plan.moves), found.plan.to_standbys) == (8, 8)
    assert {each.partition for each, row in found.standbys.items() if W1 in row[1:]} == set(range(4))


@pytest.mark.parametrize("method", list(Method))
def test_a_full_disk_takes_what_it_has_a_standby_copy_of_and_nothing_else(method: Method) -> None:
    """Both ways: what W0 gives away, it follows afterwards, so the loads may change back as well."""
    made = disks_job({H0: disk(10_000), H1: disk(10_000)}, {W0: H0, W1: H1}, standbys=1)
    made.followers = {kg(number): (W1,) for number in range(0, 12, 2)}
    decider = made.decider(method=method, remote_tuple_cpu_s=1e-6)
    found = planned(made.round(decider)).plan
    assert {move.key_group for move in found.moves} == {kg(number) for number in range(0, 12, 2)}
    assert (found.to_standbys, made.machines[H1].disk_free_bytes) == (6, 10_000)
    made.followers = {move.key_group: (W0,) for move in found.moves}
    made.rates |= dict.fromkeys(made.followers, 400.0)
    made.place(decider)
    for _ in range(4):
        made.round(decider)
    back = [each for each in made.followers if made.owners[each] == W0]
    assert 0 < len(back) < 6
    assert all(owner == W0 for each, owner in made.owners.items() if each not in made.followers)


def test_what_a_copy_on_a_disk_lacks_counts() -> None:
    """There is room for 3,500 bytes.  Six copies lack 500 bytes each, and with them gone nothing whole fits."""
    made = disks_job({H0: disk(50_000), H1: disk(13_500)}, {W0: H0, W1: H1}, standbys=0)
    made.copies = {(kg(number), W1): 0.5 for number in range(10, 16)}
    found = planned(made.round(made.decider())).plan
    assert {move.key_group.partition for move in found.moves} == set(range(10, 16))
    assert found.to_copies == 6


def test_a_full_memory_takes_what_it_follows_and_leaving_frees_nothing_while_the_owner_stays_a_standby() -> None:
    for standbys, moved in ((1, 3), (0, 8)):
        full = Machine(4.0, memory_bytes=50_000, memory_limit_bytes=50_000)
        roomy = Machine(4.0, memory_bytes=0, memory_limit_bytes=50_000)
        made = disks_job({H0: roomy, H1: full if standbys else roomy}, {W0: H0, W1: H1}, standbys=standbys)
        made.followers = {kg(number): (W1,) for number in range(3)} if standbys else {}
        assert len(planned(made.round(made.decider())).plan.moves) == moved


@pytest.mark.parametrize(
    ("follower", "moved"),
    [
        pytest.param(W2, 8, id="the owner makes way for the standby on another host"),
        pytest.param(None, 0, id="the owner becomes the standby"),
        pytest.param(W3, 0, id="the standby is on the same host"),
    ],
)
def test_a_move_within_a_full_host_takes_memory_where_the_owner_becomes_a_standby(
    follower: WorkerId | None, moved: int
) -> None:
    full = Machine(4.0, memory_bytes=50_000, memory_limit_bytes=50_000)
    made = disks_job({H0: full, H1: full}, {W0: H0, W1: H0, W2: H1, W3: H0}, standbys=1)
    made.owners |= {kg(number): W2 for number in range(16, 24)} | {kg(number): W3 for number in range(24, 32)}
    made.rates |= dict.fromkeys(made.owners, 50.0)
    made.followers = {each: (follower,) for each, owner in made.owners.items() if follower and follower != owner}
    plans = [each.plan for each in made.round(made.decider()) if isinstance(each, Planned)]
    assert [move.target for plan in plans for move in plan.moves if move.source == W0] == [W1] * moved


@pytest.mark.parametrize(("standbys", "moved"), [((), 1), ((W3,), 3)])
def test_what_a_plan_of_another_app_gives_to_standbys_needs_no_disk(standbys: Owners, moved: int) -> None:
    made = disks_job({H0: disk(50_000), H1: disk(13_500)}, {W0: H0, W1: H1, W2: H0, W3: H1}, solve_s=1.0)
    other = [kg(number, app=AppId("other")) for number in range(2)]
    made.owners |= dict.fromkeys(other, W2)
    made.rates |= dict.fromkeys(other, 1.0)
    decider = made.decider()
    made.bring(decider, dict.fromkeys(other, (W2, *standbys)), W3, HandoverPhase.PREPARING)
    assert len(planned(made.round(decider)).plan.moves) == moved


def test_no_worker_leaves_while_the_other_disks_have_no_room_for_its_state() -> None:
    workers = tuple(worker(number, state_bytes=10_000, largest_bytes=1_000) for number in range(4))
    seen = replace(facts(4, 0.8), workers=workers)
    for free, wanted in ((11_000, 2), (9_000, 3), (4_000, 4)):
        found = verdict(replace(seen, disks={each.host: float(free) for each in workers}))
        assert (found.direction, found.wanted) == (SizeDirection.IN if wanted < 4 else SizeDirection.STAY, wanted)
    assert "have no room for the state of those that would leave" in found.detail
    partly = {each.host: 4_000.0 for each in workers[:3]}
    assert verdict(replace(seen, disks=partly)).wanted == 2, "a disk that nobody knows limits nothing"


def test_no_disk_is_overfilled_whatever_the_cluster() -> None:
    """Plans, drains and standbys of random clusters, checked disk by disk once everything is written."""
    plans = placed = full = 0
    for seed in range(8):
        dice = random.Random(seed)
        machines = {HostId(f"h{n}"): disk(dice.choice([None, 8_000, 14_000, 20_000, 40_000])) for n in (0, 1, 2)}
        workers = {WorkerId(f"w{n}"): HostId(f"h{dice.randrange(3)}") for n in range(5)}
        made = disks_job(machines, workers, standbys=dice.choice([None, 1, 2]), standby_windows=dice.randrange(4))
        made.owners = {each: WorkerId(f"w{dice.choice([0, 0, 1, 2])}") for each in made.owners}
        made.sizes = {each: dice.choice([300, 1_000, 3_000]) for each in made.owners}
        pairs = [(each, worker) for each, owner in made.owners.items() for worker in workers if worker != owner]
        others = random.Random(100 + seed)
        made.copies = {pair: others.choice([0.25, 0.5, 1.0]) for pair in others.sample(pairs, others.choice([0, 10]))}
        made.solve_s = 0.02
        before = {host: machine.disk_free_bytes for host, machine in machines.items()}
        decider = made.decider(max_migrations=dice.choice([3, 50]))
        if dice.random() < 0.5:
            drain(decider, WorkerId("w1"))
        for _ in range(4):
            plans += any(isinstance(each, Planned) for each in made.round(decider))
        placed += any(made.followers.values())
        made.settle(10**9)
        for host, machine in machines.items():
            free, was = machine.disk_free_bytes, before[host]
            if free is not None and was is not None:
                assert free >= min(TOTAL // 10, was), (seed, host)
                full += free < was and free < TOTAL // 10 + 1_000
    assert plans >= 5
    assert placed >= 3
    assert full >= 2, "disks were really filled"
