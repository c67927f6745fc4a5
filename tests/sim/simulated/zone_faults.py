"""What happens to a whole zone, in the clusters that have zones."""

from collections.abc import Callable

from tests.sim.simulated.faults import Fault, start_workers
from tests.sim.simulated.world import Heal, World


def lose_zone(world: World) -> Heal | None:
    """All hosts of a zone at once, and they come back."""
    zones = sorted({host.machine.zone for host in world.hosts.values() if host.machine.zone is not None})
    present = world.present()
    zone = world.random.choice(zones) if zones else None
    chosen = [name for name in present if world.hosts[name].machine.zone == zone]
    if zone is None or not chosen or len(chosen) == len(present):
        return None
    for name in chosen:
        world.kill_host(name)

    def heal() -> None:
        for name in chosen:
            world.start_agent(name)
            start_workers(world, name)

    return heal


def drain_zone(world: World) -> Heal | None:
    """An operator drains a zone, and takes it back; workers that were stopped are started by hand."""
    zones = sorted({host.machine.zone for host in world.hosts.values() if host.machine.zone is not None})
    zone = world.random.choice(zones) if zones else None
    names = [name for name, host in world.hosts.items() if zone is not None and host.machine.zone == zone]
    workers = [worker for name in names for worker in world.hosts[name].names]
    if not workers or len(workers) == len(world.workers()):
        return None
    for worker in workers:
        world.drain(worker)

    def heal() -> None:
        for worker in workers:
            world.undrain(worker)
        for name in names:
            start_workers(world, name)

    return heal


def noted(fault: Fault, note: Callable[[float], object]) -> Fault:
    """The same fault; `note` is told when it was inflicted."""

    def inflict(world: World) -> Heal | None:
        heal = fault(world)
        if heal is not None:
            note(world.timeline.now)
        return heal

    return inflict


ZONE_FAULTS: tuple[Fault, ...] = (lose_zone, lose_zone, lose_zone, drain_zone, drain_zone, drain_zone)
"""Only where hosts have zones."""
