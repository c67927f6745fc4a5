"""An operator's word on the size of an app, by a real controller and a real broker; workers and agents are played."""

from dataclasses import replace

import pytest

from tests.e2e.played_cluster import APP, World, host_of, key_group, wait_until_it_acts
from trimtab_protocol.messages.commands import Command, CommandKind, Phase
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

pytestmark = pytest.mark.light


class Pool:
    """Adds w3 to every window, as a worker of the pool, until it runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._plain = world.snapshot
        world.snapshot = self.snapshot  # type: ignore[method-assign]

    def snapshot(self) -> Snapshot:
        plain = self._plain()
        if "w3" in self.world.workers:
            nodes = (replace(row, declared=APP) if row.worker == "w3" else row for row in plain.nodes)
            return replace(plain, nodes=tuple(nodes))
        idle = replace(
            plain.nodes[0],
            worker=WorkerId("w3"),
            host=host_of("w3"),
            app=None,
            state=WorkerState.AWAY,
            cpu=None,
            steering=False,
            operators=None,
            absence=Absence.STOPPED,
            declared=APP,
        )
        return replace(plain, nodes=(*plain.nodes, idle))


@pytest.fixture
def played(world: World) -> World:
    """Twelve key groups on three workers, and a worker in the pool; the controller only advises."""
    world.owners = {key_group(p): f"w{p % 3}" for p in range(12)}
    Pool(world)
    world.start()
    wait_until_it_acts(world)
    world.wait("placement", lambda: bool(world.placements), windows=True)
    return world


def restart(world: World) -> None:
    """kill -9 of the controller; the next one takes over."""
    world.running[-1].kill()
    world.running[-1].wait()
    acting = world.log_text().count("acting as generation")
    world.start()
    world.wait("takeover", lambda: world.log_text().count("acting as generation") > acting)


def leaving(status: dict) -> list[str]:
    return [worker for app in status["apps"] for worker in app["size"]["leaving"]]


def test_a_word_starts_a_worker_and_stops_it_also_under_a_successor(played: World) -> None:
    world = played
    assert "expected a number of workers" in world.trimtab("scale", APP, "many", code=2)
    assert "no app 'shop' reports" in world.trimtab("scale", "shop", "4", code=1)
    assert "but only 3 run, and 1 more can be started" in world.trimtab("scale", APP, "9")
    world.trimtab("scale", APP, "4", "--reason", "a sale")
    start = world.next_command(CommandKind.START, windows=True)
    assert (start.worker, start.host, start.app) == ("w3", "h3", APP)
    restart(world)
    again = repeated(world, start)
    world.ack(again, Phase.STARTED)
    world.workers.append("w3")
    world.next_command(CommandKind.PREPARE, windows=True)
    world.hand_over_rest()
    assert "w3" in world.owners.values()
    world.wait("calm", lambda: "0.0 measured" in world.log_text(), windows=True)
    assert world.metric(f'trimtab_controller_desired_workers{{app="{APP}"}}') == 4

    plans = len(world.commands)
    world.trimtab("scale", APP, "3")
    world.next_command(CommandKind.PREPARE, plans, windows=True)  # its key groups begin to leave w3
    assert world.executions()[-1].leaving == {"w3"}
    restart(world)
    world.status_when("that it leaves", lambda status: leaving(status) == ["w3"])
    stop = drained(world, plans)
    assert (stop.worker, stop.app, "w3" in world.owners.values()) == ("w3", APP, False)
    world.ack(stop, Phase.STOPPED, exit_code=0)
    world.workers.remove("w3")
    world.wait("the end", lambda: not world.executions()[-1].leaving, windows=True)
    world.publish_window()
    shown = world.status_when("the pool again", lambda status: [row["worker"] for row in status["pool"]] == ["w3"])
    assert [row["kind"] for row in shown["concerns"]] == []
    commands = len(world.commands)
    for _ in range(3):
        world.publish_window()
    world.follow()
    assert world.commands[commands:] == [], "it is stopped because it is not needed, and stays so"


def test_an_app_with_settings_of_its_own_grows_while_the_others_are_left_alone(world: World) -> None:
    world.owners = {key_group(p): f"w{p % 3}" for p in range(12)}
    Pool(world)
    text = world.config.read_text()
    world.config.write_text(f'{text}[scaling]\nmode = "off"\n[scaling.apps.{APP}]\nmin_workers = 20000\n')
    assert world.start().wait(60) != 0
    assert f"scaling.apps.{APP}.min_workers: found 20000, expected 1 to 10000" in world.log_text()
    own = 'mode = "act"\nmin_workers = 4\nscale_up_delay_s = 0.0'
    world.config.write_text(f'{text}[scaling]\nmode = "off"\n[scaling.apps.{APP}]\n{own}\n')
    world.start()
    wait_until_it_acts(world)
    start = world.next_command(CommandKind.START, windows=True)
    assert (start.worker, start.app) == ("w3", APP)
    size = world.status_when("its settings", lambda status: all(app["size"] for app in status["apps"]))["apps"][0][
        "size"
    ]
    assert size["own_settings"] == ["min_workers = 4", 'mode = "act"', "scale_up_delay_s = 0"]
    assert "own settings: min_workers = 4" in " ".join(world.trimtab("status").split())


def drained(world: World, after: int) -> Command:
    """Play the workers until the emptied one is stopped; the command that stops it."""
    done = {each.handover for each in world.commands[:after]}

    def stopped() -> bool:
        for prepare in [each for each in world.commands[after:] if each.kind is CommandKind.PREPARE]:
            if prepare.handover not in done:
                done.add(prepare.handover)
                world.hand_over(prepare)
        return any(each.kind is CommandKind.STOP for each in world.commands[after:])

    world.wait("stop", stopped, windows=True)
    return world.next_command(CommandKind.STOP, after)


def repeated(world: World, command: Command) -> Command:
    """The same command, published by the successor."""
    first = world.commands.index(command)
    world.wait("the command again", lambda: command.id in [each.id for each in world.commands[first + 1 :]])
    return world.commands[first + 1 :][[each.id for each in world.commands[first + 1 :]].index(command.id)]
