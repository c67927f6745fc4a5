"""`trimtab stop` while a plan of 1,000 moves is under way on a real broker, with played workers: it ends within 5 s."""

import time
from dataclasses import dataclass, field, replace

import pytest

from tests.e2e.played_cluster import APP, LIMIT_S, World, key_group, wait_until_it_acts
from trimtab_controller.execution.journal import decode_entry
from trimtab_controller.execution.state import ENDED, HandoverPhase, Round
from trimtab_protocol.messages.commands import Command, CommandKind, Phase
from trimtab_protocol.messages.intents import Stop, encode_intent

pytestmark = pytest.mark.scenario

MOVES = 1_000
CPU = 0.0001
"""Cores of one key group: all of them together fit on one worker."""
ENDS_WITHIN_S = 5.0
QUIET_WINDOWS = 3


@dataclass
class Agents:
    """Plays the agents of all workers: each carries out at once what it is told, and again if it is told again."""

    world: World
    seen: int = 0
    prepares: dict[str | None, Command] = field(default_factory=dict)
    taken: set[str | None] = field(default_factory=set)

    def look(self) -> None:
        """Answer the commands that are new."""
        self.world.follow()
        del self.world.journal[:-1]
        for command in self.world.commands[self.seen :]:
            self.seen += 1
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command.kind:
            case CommandKind.PREPARE if command.handover in self.taken:
                self.world.take(command)
            case CommandKind.PREPARE:
                self.prepares[command.handover] = command
                self.world.ack(command, Phase.PREPARED, generation=3, lag_records=0)
            case CommandKind.RELEASE:
                self.taken.add(command.handover)
                self.world.ack(command, Phase.RELEASED)
                self.world.take(self.prepares[command.handover])
            case CommandKind.ABANDON:
                self.world.ack(command, Phase.ABANDONED)
            case other:
                raise AssertionError(f"nobody asked for {other}")

    def until_moved(self, moves: int) -> Round:
        """Go on until so many key groups have moved."""
        deadline = time.monotonic() + 2 * LIMIT_S
        while (row := self.last_round()) is None or row.key_groups(HandoverPhase.DONE) < moves:
            assert time.monotonic() < deadline, self.world.log_text()
            self.look()
        return row

    def until_ended(self) -> Round:
        """Go on until the plan has ended."""
        deadline = time.monotonic() + LIMIT_S
        while (row := self.last_round()) is None or row.ended_at is None:
            assert time.monotonic() < deadline, self.world.log_text()
            self.look()
        return row

    def last_round(self) -> Round | None:
        """The plan, by the journal."""
        return decode_entry(self.world.journal[-1]).execution.rounds.get(APP) if self.world.journal else None


def pass_window(world: World) -> None:
    rows = (replace(row, cpu=CPU) for row in world.snapshot().key_groups)
    world.publish_window(key_groups=tuple(rows))
    world.follow()


def begin(world: World) -> Agents:
    """An operator moves 1,000 key groups from the first worker to the second."""
    world.owners = {key_group(number): "w0" for number in range(MOVES)}
    many = "handovers_in_flight = 32\nrestores_at_first = 32\nhandovers_per_host = 32"
    world.config.write_text(world.config.read_text().replace("handovers_in_flight = 1\n", f"{many}\n"))
    world.config.write_text(world.config.read_text() + "[plans]\nmode = 'approve'\n")  # it wants nothing by itself
    world.start()
    wait_until_it_acts(world)
    while not world.placements:
        pass_window(world)
    told = world.trimtab("move", *map(str, world.owners), "w1", "--reason", "bench")
    assert f"{MOVES} key groups of {APP} to w1" in told
    agents = Agents(world)
    deadline = time.monotonic() + LIMIT_S
    while (row := agents.last_round()) is None or row.ended_at is not None:
        assert time.monotonic() < deadline, world.log_text()
        pass_window(world)
        del world.journal[:-1]
    assert sum(len(each.key_groups) for each in row.handovers) == MOVES
    return agents


def stop(world: World) -> Stop:
    said = Stop(app=None, by="ann", at=time.time(), reason="fire")
    world.produce(world.topics.intents, said.key.encode(), encode_intent(said))
    return said


def new_leader(world: World) -> float:
    """The leader dies, and is started again; when it acts (epoch seconds)."""
    world.running[-1].kill()
    world.running[-1].wait()
    acting = world.log_text().count("acting as generation")
    world.start()
    deadline = time.monotonic() + LIMIT_S
    while world.log_text().count("acting as generation") == acting:
        assert time.monotonic() < deadline, world.log_text()
        time.sleep(0.02)
    return time.time()


@pytest.mark.parametrize(
    ("moved", "kill_leader"),
    [
        pytest.param(0, False, id="just begun"),
        pytest.param(500, False, id="half of it done"),
        pytest.param(100, True, id="the leader dies"),
    ],
)
def test_a_plan_of_a_thousand_moves_ends_within_seconds(world: World, moved: int, kill_leader: bool) -> None:
    agents = begin(world)
    begun = agents.until_moved(moved)

    since = stop(world).at
    if kill_leader:
        since = new_leader(world)
    ended = agents.until_ended()

    assert ended.ended_at is not None
    done = ended.key_groups(HandoverPhase.DONE)
    print(f"{done} of {MOVES} moved, ended {ended.ended_at - since:.2f} s after the stop")
    assert (ended.plan, ended.stopped) == (begun.plan, "stopped by ann: fire")
    assert ended.ended_at - since <= ENDS_WITHIN_S
    assert moved <= done < MOVES, "some had arrived, and not all"
    assert {each.phase for each in ended.handovers} <= ENDED
    assert {name for name, owner in world.owners.items() if owner == "w1"} == {
        name for each in ended.handovers if each.phase is HandoverPhase.DONE for name in each.key_groups
    }
    pass_window(world)
    while agents.seen < len(world.commands):
        agents.look()
    commands = len(world.commands)
    for _ in range(QUIET_WINDOWS):
        pass_window(world)
        agents.look()
    assert {each.kind for each in world.commands[commands:]} <= {CommandKind.ABANDON}, "nothing moves any more"
    world.check_placements()
