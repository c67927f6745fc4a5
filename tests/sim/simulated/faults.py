"""What goes wrong: each fault is inflicted by chance, and says how it is healed."""

import math
from collections.abc import Callable

from tests.narrow import not_none
from tests.sim.simulated.kafka_client import CommitFate
from tests.sim.simulated.network import Weather
from tests.sim.simulated.rotation import TRUSTED_AFTER_S, Rotation
from tests.sim.simulated.world import Heal, World
from trimtab_protocol.messages.intents import PAUSE_KEY
from trimtab_protocol.messages.names import HostId

Fault = Callable[[World], Heal | None]
"""Inflicts it; None: not possible now."""


ROTATED_AFTER_S = 60.0
"""So long after the controllers began to be started with the new key the old one is trusted still."""


def nothing() -> None:
    """It heals by itself, or never."""


def kill_agent(world: World) -> Heal | None:
    """At once, or in the middle of one of its next writes."""
    if not (present := world.present()):
        return None
    name = world.random.choice(present)
    host = world.hosts[name]
    if world.random.random() < 0.5:
        host.machine.dies_after = world.random.randint(1, 8)
    elif host.agent is not None:
        host.agent.kill()

    def heal() -> None:
        host.machine.dies_after = None
        world.start_agent(name)

    return heal


def reread(world: World) -> Heal | None:
    """An agent reads commands again, from some time ago."""
    if not (present := world.present()):
        return None
    agent = not_none(world.hosts[world.random.choice(present)].agent)
    agent.turn_back(world.random.randint(1, 20))
    return nothing


def kill_controller(world: World) -> Heal | None:
    """The leader, at once, or while it commits: the transaction is there or not, and nobody learned of it."""
    controller = world.controller
    fate = world.random.choice((None, CommitFate(stored=True, killed=True), CommitFate(stored=False, killed=True)))
    if fate is None:
        controller.kill()
    else:
        controller.fate = iter([*[CommitFate()] * world.random.randint(0, 4), fate])

    def heal() -> None:
        controller.fate = iter(())
        if not controller.alive:
            world.start_controller()

    return heal


def kill_standby(world: World) -> Heal | None:
    """One that waits."""
    waiting = [process for process in world.living_controllers() if not process.in_office]
    if not waiting:
        return None
    world.random.choice(waiting).kill()
    return world.start_controller


def end_controller(world: World) -> Heal | None:
    """SIGTERM of the leader: it gives the lease up."""
    world.controller.terminate()
    return world.start_controller


def rough_commits(world: World) -> Heal | None:
    """Answers to commits are lost, transactions are aborted."""
    fates = (CommitFate(answered=False), CommitFate(stored=False), CommitFate())
    controller = world.controller
    controller.fate = iter(world.random.choices(fates, k=10))

    def heal() -> None:
        controller.fate = iter(())

    return heal


def stop_controller(world: World) -> Heal | None:
    """SIGSTOP of the leader, at once or in the middle of a publication, for shorter or longer than its lease."""
    controller = world.controller
    if world.random.random() < 0.5:
        controller.freeze()
    else:
        controller.fate = iter([*[CommitFate()] * world.random.randint(0, 2), CommitFate(frozen=True)])

    def heal() -> None:
        controller.fate = iter(())
        controller.thaw()

    return heal


def second_controller(world: World) -> Heal | None:
    """One more is started, and stays."""
    if len(world.living_controllers()) > 3:
        return None
    world.start_controller()
    return nothing


def lose_lease(world: World) -> Heal | None:
    """The group takes the lease from its leader: without a word, or in order."""
    holder, others = world.election.holder, [each for each in world.election.members if each.process.alive]
    if holder is None:
        return None
    if world.random.random() < 0.5:
        world.election.expel(holder)
    else:
        world.election.move(world.random.choice(others))
    return nothing


def cut_controller(world: World) -> Heal | None:
    """The leader does not reach the broker, or no controller does."""
    place = world.random.choice((world.controller.name, "controllers"))
    world.network.cut.add(place)
    return lambda: world.network.cut.discard(place)


def forge(world: World) -> Heal | None:
    """Somebody writes commands and placements who must not be obeyed."""
    struck = [world.intruder.strike() for _ in range(world.random.randint(1, 10))]
    return nothing if any(struck) else None


def rotate_keys(world: World) -> Heal | None:
    """The operator changes the key, step by step."""
    if world.rotating:
        return None
    rotation = Rotation(world)
    world.timeline.soon(TRUSTED_AFTER_S, 20.0, rotation.switch)

    def heal() -> None:
        world.timeline.after(TRUSTED_AFTER_S, rotation.switch)
        world.timeline.after(TRUSTED_AFTER_S + ROTATED_AFTER_S, rotation.finish)

    return heal


def kill_worker(world: World) -> Heal | None:
    """Its supervisor starts it again."""
    if not (workers := world.workers()):
        return None
    worker = world.random.choice(workers)
    worker.kill()
    return lambda: start_workers(world, worker.host)


def start_workers(world: World, name: HostId) -> None:
    """Those of a host that should run."""
    host = world.hosts[name]
    if not host.left:
        for worker in host.names:
            world.start_worker(name, worker)


def slow_worker(world: World) -> Heal | None:
    """Its standbys do not catch up, its begun events do not end."""
    if not (workers := world.workers()):
        return None
    worker = world.random.choice(workers)
    worker.slow = True

    def heal() -> None:
        worker.slow = False

    return heal


def rebalance(world: World) -> Heal | None:
    """The engine does so for a reason of its own."""
    world.group.rebalance()
    return nothing


def cut_host(world: World) -> Heal | None:
    """The broker cannot be reached from one host, or from some."""
    names = [name for name in world.present() if world.network.reaches(name)]
    if not names:
        return None
    chosen = world.random.sample(names, world.random.randint(1, max(1, len(names) // 2)))
    world.cut(chosen)
    return lambda: world.mend(chosen)


def broker_away(world: World) -> Heal | None:
    """For everybody."""
    chosen = [name for name in world.hosts if world.network.reaches(name)]
    world.cut(chosen)
    world.network.cut.add("controllers")

    def heal() -> None:
        world.network.cut.discard("controllers")
        world.mend(chosen)

    return heal


def rough_network(world: World) -> Heal | None:
    """Records are lost, stored twice, stored in another order, late."""
    world.network.weather = Weather(lost=0.2, answer_lost=0.2, delay_s=world.random.choice((0.5, 3.0)))

    def heal() -> None:
        world.network.weather = Weather()

    return heal


def join(world: World) -> Heal | None:
    """A new host."""
    if len(world.hosts) >= 7:
        return None
    world.add_host()
    return nothing


def leave(world: World) -> Heal | None:
    """A host, for good; one only, or it would be a loss of many."""
    present = world.present()
    if len(present) < 4 or any(host.left for host in world.hosts.values()):
        return None
    name = world.random.choice(present)
    world.hosts[name].left = True
    world.kill_host(name)
    return nothing


def lose_hosts(world: World) -> Heal | None:
    """40 % or more at once: hold, say so, do not heal."""
    present = world.present()
    count = math.ceil(world.random.choice((0.4, 0.6)) * len(world.hosts))
    if len(present) < count:
        return None
    chosen = world.random.sample(present, count)
    for name in chosen:
        world.kill_host(name)

    def heal() -> None:
        for name in chosen:
            world.start_agent(name)
            start_workers(world, name)

    return heal


def skew_clock(world: World) -> Heal | None:
    """An hour ahead or behind, on one host."""
    if not (present := world.present()):
        return None
    machine = world.hosts[world.random.choice(present)].machine
    machine.clock_ahead_s = world.random.choice((-3600.0, 3600.0))
    machine.clock_was_wrong = True

    def heal() -> None:
        machine.clock_ahead_s = world.random.uniform(-0.5, 0.5)

    return heal


def drain(world: World) -> Heal | None:
    """An operator drains a worker, and takes it back."""
    workers = world.workers()
    if len(workers) < 3:
        return None
    worker = world.random.choice(workers).id
    world.drain(worker)
    return lambda: world.undrain(worker)


def pause(world: World) -> Heal | None:
    """An operator pauses the controller for a while."""
    world.pause()
    return lambda: world.take_back(PAUSE_KEY)


def stop_plans(world: World) -> Heal | None:
    """An operator stops the plans in flight."""
    world.stop()
    return nothing


def shift_load(world: World) -> Heal | None:
    """What was light becomes heavy."""
    for account in world.ledger.accounts.values():
        if world.random.random() < 0.5:
            account.load = world.random.uniform(0.01, 0.04)
    return nothing


def silent_solver(world: World) -> Heal | None:
    """It has no answer."""
    controller = world.controller
    controller.solver_answers = False

    def heal() -> None:
        controller.solver_answers = True

    return heal


def kill_stream(world: World) -> Heal | None:
    """No snapshots for a while."""
    world.stream.kill()

    def heal() -> None:
        if not world.stream.alive:
            world.stream.start()

    return heal


FAULTS: tuple[Fault, ...] = (
    kill_agent,
    reread,
    kill_controller,
    kill_standby,
    end_controller,
    rough_commits,
    stop_controller,
    second_controller,
    lose_lease,
    cut_controller,
    forge,
    rotate_keys,
    kill_worker,
    slow_worker,
    rebalance,
    cut_host,
    broker_away,
    rough_network,
    join,
    leave,
    lose_hosts,
    skew_clock,
    drain,
    pause,
    stop_plans,
    shift_load,
    shift_load,
    silent_solver,
    kill_stream,
)
