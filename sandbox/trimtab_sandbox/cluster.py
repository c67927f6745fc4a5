"""A complete cluster on one machine: broker, topics, Faust workers, an agent per worker, and the controller."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import trimtab_agent
from trimtab_controller.security.keys import KeyFiles
from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings
from trimtab_sandbox.broker import Broker, Topic, free_ports, log_end
from trimtab_sandbox.configuration import (
    BROKER,
    CONSOLE,
    CONTROLLER,
    LOAD,
    LOOPBACK,
    MAX_WORKERS,
    SandboxSettings,
    Table,
    WorkerLaunch,
    agent_configuration,
    controller_configuration,
    host_name,
    shutdown_order,
    to_toml,
    worker_launch,
    worker_name,
)
from trimtab_sandbox.processes import Child, LeftOver, Processes
from trimtab_sandbox.readiness import connected_workers
from trimtab_sandbox.state import SOCKETS_PREFIX, SandboxState, StartedProcess

CONSOLE_USER, CONSOLE_ROLE = "sandbox", "operator"
"""Whom intents of the sandbox's console name, and what they may do."""
TOKEN_LIMIT_S = 120.0
CONTROLLER_TOML = Path(CONTROLLER, "controller.toml")
"""Where the controller's configuration lies in the folder of a sandbox."""
AGENT_READY_LIMIT_S = 60.0
POLL_S = 0.2
SOCKET_PATH_BYTES = 100
"""Longest path of a Unix socket that every system allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAccess:
    """Where the console is, and a token with which everything may be done there."""

    address: str
    token: str

    @property
    def link(self) -> str:
        """Logs a browser in: the part behind # is not sent to a server, and the page removes it from the address."""
        return f"{self.address}#token={self.token}"


def operator_token(folder: Path, command: Sequence[str]) -> str:
    """The token in this folder; `command`, a call of `trimtab`, makes it when there is none.

    Raises OSError, subprocess.SubprocessError.
    """
    file, config = folder / f"{CONSOLE_ROLE}.token", folder / "console.toml"
    if not file.exists():
        arguments = ["console", "token", CONSOLE_USER, "--role", CONSOLE_ROLE, "--config", str(config)]
        made = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=TOKEN_LIMIT_S)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(made.stdout)
    return file.read_text(encoding="utf-8").strip()


class ClusterError(Exception):
    """A part of the cluster did not start, or has ended."""


class SandboxCluster:
    """The parts of a sandbox.  Each can be started, stopped and killed alone.

    Leaving the context ends all parts by process id, in order: controller, workers, agents, broker.  If this process is
    killed, a guard process ends them.  `left_over()` then tells whether anything remains.
    """

    def __init__(self, settings: SandboxSettings, folder: Path) -> None:
        """Starts nothing yet.  `folder` receives data, configuration and logs."""
        self.settings = settings
        self.folder = folder.absolute()
        self.logs = self.folder / "logs"
        self.topics = Topics(settings.cluster)
        self.processes = Processes(self.logs)
        self.broker = Broker(self.folder / "broker", self.processes, heap_mb=settings.heap_mb)
        self.environments: dict[str, Mapping[str, str]] = {}
        """Process name -> additional environment variables, from the next start of that process on."""
        self.sockets = make_socket_folder(self.folder)
        self.keys = make_keys(self.folder / "keys")
        self._web_ports = free_ports(settings.workers)
        *self._metrics_ports, controller_port, self._console_port = free_ports(settings.workers + 2)
        self._controller_ports = {CONTROLLER: controller_port}
        self._children: dict[str, Child] = {}
        self._released = False

    def start(self, topics: Sequence[Topic] = (), *, act: bool = False) -> None:
        """Start everything: broker, the topics of Trimtab and of the app, agents, workers, controller."""
        self.start_broker()
        self.broker.create_topics(topics)
        for index in range(self.settings.workers):
            self.start_agent(index)
        for index in self.settings.started:
            self.start_worker(index)
        self.start_controller(act=act)

    def start_broker(self) -> None:
        """Start the broker, also after `stop` or `kill`.  The first start creates Trimtab's topics."""
        fresh = not self.broker.ports
        self.broker.start()
        self._children[BROKER] = self.broker.process
        if fresh:
            self.broker.create_topics([_own_topic(settings) for settings in topic_settings(self.topics)])

    def start_worker(self, index: int) -> Child:
        """Start one worker.  It joins the app's consumer group by itself."""
        launch = self._launch(index)
        return self._run(worker_name(index), launch.command, launch.environment, launch.folder)

    def start_agent(self, index: int) -> Child:
        """Start one agent and return when workers can reach it. Raises ClusterError with the end of its log."""
        name, socket = host_name(index), self._socket(index)
        path = self._folder(self.folder / name) / "agent.toml"
        path.write_text(to_toml(self.agent_table(index)), encoding="utf-8")
        socket.unlink(missing_ok=True)  # of a killed predecessor
        command = program(f"{trimtab_agent.__name__}.cli", "run", "--config", str(path))
        # An agent starts workers in its own working directory, so it runs in the app's folder.
        child = self._run(name, command, _PYTHON, self.settings.app_folder)
        _wait_for_socket(child, socket)
        return child

    def agent_table(self, index: int) -> Table:
        """The agent.toml of one host."""
        name = host_name(index)
        return agent_configuration(
            self.settings,
            index,
            bootstrap=self.bootstrap_of(name),
            metrics_port=self._metrics_ports[index],
            socket=self._socket(index),
            trust=self.keys.trust,
            state=self.folder / name,
            launch=self._launch(index),
        )

    def start_controller(self, *, act: bool, name: str = CONTROLLER) -> Child:
        """Start the controller, or another one of this name beside it; `act` False = dry run."""
        path = self.write_controller_toml(name)
        command = program("trimtab_controller.cli", "controller", "run", "--config", str(path))
        return self._run(name, [*command, "--act"] if act else command, _PYTHON)

    def start_console(self) -> ConsoleAccess:
        """Start the console; its pages are there a second later."""
        folder = self._folder(self.folder / CONSOLE)
        table: Table = {
            "console": {
                "cluster": self.settings.cluster,
                "port": self._console_port,
                "trust_file": str(self.keys.trust),
            },
            "access": {"tokens": str(folder / "tokens.toml")},
            "kafka": {"bootstrap_servers": self.broker.address},
        }
        path = folder / "console.toml"
        path.write_text(to_toml(table), encoding="utf-8")
        trimtab = program("trimtab_controller.cli")
        try:
            token = operator_token(folder, trimtab)
        except (OSError, subprocess.SubprocessError) as error:
            raise ClusterError(f"no token could be made for the console: {error}") from error
        self._run(CONSOLE, [*trimtab, "console", "--config", str(path)], _PYTHON)
        return ConsoleAccess(address=f"http://{LOOPBACK}:{self._console_port}/", token=token)

    def start_load(self, module: str, *arguments: str) -> Child:
        """Start a Python module of the app's folder, which sends the app its input."""
        command = [sys.executable, "-m", module, *arguments]
        self._children[LOAD] = self.processes.start(LOAD, command, environment=_PYTHON, folder=self.settings.app_folder)
        return self._children[LOAD]

    @property
    def controller_toml(self) -> Path:
        """Path of the controller's configuration, also for `trimtab status`; `write_controller_toml` creates it."""
        return self.folder / CONTROLLER_TOML

    def write_controller_toml(self, name: str = CONTROLLER) -> Path:
        """Write the configuration of a controller; returns its path."""
        if name not in self._controller_ports:
            (self._controller_ports[name],) = free_ports(1)
        table = controller_configuration(
            self.settings,
            bootstrap=self.bootstrap_of(name),
            metrics_port=self._controller_ports[name],
            keys=self.keys,
            checkpoints=self._folder(self.folder / name / "checkpoints"),
        )
        path = self.folder / name / CONTROLLER_TOML.name
        path.write_text(to_toml(table), encoding="utf-8")
        return path

    def stop(self, name: str) -> int:
        """Stop the process of this name (`broker`, `w0`, `h0`, `controller`) by SIGTERM; returns its exit code."""
        return self.child(name).stop()

    def kill(self, name: str) -> None:
        """`kill -9` the process of this name."""
        self.child(name).kill()

    def child(self, name: str) -> Child:
        """The process of this name that was started last."""
        if name not in self._children:
            raise ClusterError(f"{name} was never started; started were: {', '.join(self._children) or 'none'}")
        return self._children[name]

    def wait_for_workers(self, limit_s: float) -> list[str]:
        """Wait until every started worker is connected to its agent; returns those that were not within the limit.

        Raises ClusterError, with the end of its log, for a process that has ended.
        """
        deadline = time.monotonic() + limit_s
        hosts = self.settings.started
        while True:
            for child in self._children.values():
                if not child.alive:
                    raise _ended(child)
            away = [index for index in hosts if not connected_workers(self._metrics_ports[index])]
            if not away or time.monotonic() > deadline:
                return [worker_name(index) for index in away]
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise ClusterError, with the end of its log, for a process that failed by itself."""
        for child in self._children.values():
            if child.exit_code and not child.ended_here:
                raise _ended(child)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the running processes, by name.  Threads may ask while others start some."""
        return {name: child.pid for name, child in list(self._children.items()) if child.alive}

    @property
    def ports(self) -> dict[str, tuple[int, ...]]:
        """The ports on which each process listens, by its name."""
        hosts = {host_name(index): (port,) for index, port in enumerate(self._metrics_ports)}
        console = {CONSOLE: (self._console_port,)} if CONSOLE in self._children else {}
        controllers = {name: (port,) for name, port in self._controller_ports.items()}
        return {BROKER: self.broker.ports, **hosts, **controllers, **console}

    def left_over(self) -> LeftOver:
        """How many processes of this sandbox still run, and how many of its ports are still bound."""
        return self.processes.left_over(port for ports in self.ports.values() for port in ports)

    def close(self) -> None:
        """End everything in order, unless it was released; may be called again."""
        if self._released:
            return
        try:
            for phase in shutdown_order(self._children):
                for name in phase:
                    self._children[name].terminate()
                for name in phase:
                    self._children[name].stop()
        finally:
            self.processes.close()
            shutil.rmtree(self.sockets, ignore_errors=True)

    def release(self) -> None:
        """Leave everything running when this process ends; `state()` describes how to find it again."""
        self.processes.release()
        self._released = True

    def state(self) -> SandboxState:
        """What another process needs to inspect and to end this cluster."""
        return SandboxState(
            cluster=self.settings.cluster,
            mark=self.processes.mark,
            bootstrap_servers=self.broker.address,
            sockets=self.sockets,
            processes={name: StartedProcess(pid=child.pid, log=child.log) for name, child in self._children.items()},
            ports=self.ports,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> Child:
        given = {**environment, **self.environments.get(name, {})}
        self._children[name] = self.processes.start(name, command, environment=given, folder=folder)
        return self._children[name]

    def _launch(self, index: int) -> WorkerLaunch:
        return worker_launch(
            self.settings,
            index,
            python=sys.executable,
            bootstrap=self.bootstrap_of(host_name(index)),
            web_port=self._web_ports[index],
            socket=self._socket(index),
            trust=self.keys.trust,
            data=self._folder(self.folder / worker_name(index)),
        )

    def bootstrap_of(self, name: str) -> str:
        """`host:port` at which this host, or the controller, reaches the broker."""
        return self.broker.address

    def _socket(self, index: int) -> Path:
        return self.sockets / f"{host_name(index)}.sock"

    @staticmethod
    def _folder(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder


_PYTHON = {"PYTHONUNBUFFERED": "1"}
"""Unbuffered, because logs are read while their processes run."""


def make_socket_folder(folder: Path) -> Path:
    """A folder for the agents' sockets: in the sandbox's folder, or a temporary one if that path is too long."""
    inside = folder / "sockets"
    if len(os.fsencode(inside / f"{host_name(MAX_WORKERS)}.sock")) > SOCKET_PATH_BYTES:
        return Path(tempfile.mkdtemp(prefix=SOCKETS_PREFIX))
    inside.mkdir(parents=True, exist_ok=True)
    return inside


def make_keys(folder: Path) -> KeyFiles:
    """The controller's signing key and the trust file of its hosts; created if missing."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = KeyFiles(key=folder / "controller.pem", trust=folder / "trusted.keys")
    if not files.key.exists():
        files.create()
    return files


def program(module: str, *arguments: str) -> list[str]:
    """A command line that runs the `main` of a module with this interpreter, like its console script."""
    return [sys.executable, "-c", f"from {module} import main; raise SystemExit(main())", *arguments]


def _own_topic(settings: TopicSettings) -> Topic:
    return Topic(name=settings.name, partitions=settings.partitions, settings=settings.configuration)


def _ended(child: Child) -> ClusterError:
    return ClusterError(f"{child.name} ended with exit code {child.exit_code}:\n{log_end(child.log)}")


def _wait_for_socket(child: Child, socket: Path) -> None:
    deadline = time.monotonic() + AGENT_READY_LIMIT_S
    while not socket.exists():
        if not child.alive or time.monotonic() > deadline:
            state = "still runs" if child.alive else f"ended with exit code {child.exit_code}"
            raise ClusterError(f"{child.name} opened no socket and {state}:\n{log_end(child.log)}")
        time.sleep(0.02)
