"""A change of the controller's key, step by step, as an operator does it."""

from tests.sim.simulated.controller import ControllerProcess
from tests.sim.simulated.world import World
from trimtab_process.credential_files import load_signing_key

TRUSTED_AFTER_S = 5.0
"""So long the trust file is on its way to a host at most."""
ONE_AFTER_ANOTHER_S = 3.0


class Rotation:
    """Begins when it is made: the hosts get to trust the next key too, one by one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._old_key = load_signing_key(world.keys.key)
        self._old_processes: list[ControllerProcess] = []
        self._switched = False
        world.rotating = True
        world.keys.begin()
        for host in world.hosts.values():
            world.timeline.soon(0.0, TRUSTED_AFTER_S, lambda machine=host.machine: world.send_trust(machine))  # type: ignore[misc]

    def switch(self) -> None:
        """The next key signs: every controller is started anew, one at a time.  Once more: nothing."""
        if self._switched:
            return
        self._switched = True
        world = self._world
        world.keys.switch()
        self._old_processes = world.living_controllers()
        for number, process in enumerate(self._old_processes):
            at = world.timeline.now + ONE_AFTER_ANOTHER_S * number
            world.timeline.at(at, process.terminate)
            world.timeline.at(at + 1.0, world.start_controller)

    def finish(self) -> None:
        """Nobody trusts the old key any more; whoever still has it is ended for good.  Not while nobody leads: the
        placements have not been signed anew."""
        world = self._world
        if world.election.holder is None:
            world.timeline.after(TRUSTED_AFTER_S, self.finish)
            return
        for process in self._old_processes:
            process.kill()
        world.keys.finish()
        for host in world.hosts.values():
            world.send_trust(host.machine)
        world.checker.excuse_unanswered()
        world.intruder.retired.append(self._old_key)
        world.rotating = False
