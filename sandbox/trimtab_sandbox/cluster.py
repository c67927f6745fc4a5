"""A whole cluster on one machine: broker, topics, Faust workers, an agent for each, and the controller."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import trimtab_agent
from trimtab_controller.security.keys import KeyFiles
from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings
from trimtab_sandbox.broker import Broker, Detour, Topic, free_ports, log_end
from trimtab_sandbox.configuration import (
    BROKER,
    CONTROLLER,
    LOOPBACK,
    MAX_WORKERS,
    SandboxSettings,
    WorkerLaunch,
    agent_configuration,
    controller_configuration,
    host_name,
    in_order_of_end,
    worker_launch,
    worker_name,
)
from trimtab_sandbox.cpu import CpuMeter, Part
from trimtab_sandbox.processes import Child, LeftOver, Processes
from trimtab_sandbox.readiness import connected_workers
from trimtab_sandbox.state import SOCKETS_PREFIX, SandboxState, StartedProcess
from trimtab_sandbox.toml import to_toml

AGENT_READY_LIMIT_S = 60.0
POLL_S = 0.2
SOCKET_PATH_BYTES = 100
"""Every system allows so many for the path of a Unix socket, and hardly more."""


class ClusterError(Exception):
    """A part of the cluster did not come up, or is gone."""


class Cluster:
    """The parts of a sandbox, each to be started, stopped and killed alone.

    As a context it is ended in order (controller, workers, agents, broker), by id, however the block is left; a guard
    process does so when this one is killed. `left_over()` says afterwards whether anything remained.
    """

    def __init__(
        self, settings: SandboxSettings, folder: Path, *, detours: Mapping[str, Detour] = MappingProxyType({})
    ) -> None:
        """Starts nothing yet. `folder` receives data, configuration and logs.

        `detours`: how a host (its agent and its worker) or the controller reaches the broker, when not directly.
        """
        self.settings = settings
        self.folder = folder.absolute()
        self.logs = self.folder / "logs"
        self.topics = Topics(settings.cluster)
        self.processes = Processes(self.logs)
        self.broker = Broker(
            self.folder / "broker", self.processes, heap_mb=settings.heap_mb, detours=tuple(detours.values())
        )
        self.environments: dict[str, Mapping[str, str]] = {}
        """What a process is to find in its environment besides, by its name, from its next start on."""
        self._detours = detours
        self.sockets = make_socket_folder(self.folder)
        self.keys = make_keys(self.folder / "keys")
        self._web_ports = free_ports(settings.workers)
        self._metrics_ports = free_ports(settings.workers + 1)
        self._children: dict[str, Child] = {}
        self._released = False
        self._meter = CpuMeter().start()

    def start(self, topics: Sequence[Topic] = (), *, act: bool = False) -> None:
        """Start everything: broker, Trimtab's topics and the app's, agents, workers, controller."""
        self.start_broker()
        self.broker.create_topics(topics)
        for index in range(self.settings.workers):
            self.start_agent(index)
        for index in range(self.settings.workers):
            self.start_worker(index)
        self.start_controller(act=act)

    def start_broker(self) -> None:
        """Start the broker, anew after `stop` or `kill`; the first time with Trimtab's own topics."""
        fresh = not self.broker.ports
        self.broker.start()
        self._adopt(BROKER, self.broker.process, Part.BROKER)
        if fresh:
            self.broker.create_topics([_own_topic(settings) for settings in topic_settings(self.topics)])

    def start_worker(self, index: int) -> Child:
        """Start one worker; it joins the app's consumer group by itself."""
        launch = self._launch(index)
        return self._run(worker_name(index), Part.WORKERS, launch.command, launch.environment, launch.folder)

    def start_agent(self, index: int) -> Child:
        """Start one agent and return when workers can reach it. Raises ClusterError with the end of its log."""
        name, socket = host_name(index), self._socket(index)
        table = agent_configuration(
            self.settings,
            index,
            bootstrap=self._way_of(name),
            metrics_port=self._metrics_ports[index],
            socket=socket,
            trust=self.keys.trust,
            state=self._made(self.folder / name),
            launch=self._launch(index),
        )
        path = self.folder / name / "agent.toml"
        path.write_text(to_toml(table), encoding="utf-8")
        socket.unlink(missing_ok=True)  # of a killed predecessor
        command = program(f"{trimtab_agent.__name__}.cli", "run", "--config", str(path))
        # In the app's folder, from where it may have to start a worker.
        child = self._run(name, Part.AGENTS, command, _PYTHON, self.settings.app_folder)
        _wait_for_socket(child, socket)
        return child

    def start_controller(self, *, act: bool) -> Child:
        """Start the controller, to act or to say only what it would do."""
        path = self.write_controller_toml()
        command = program("trimtab_controller.cli", "controller", "run", "--config", str(path))
        return self._run(CONTROLLER, Part.DECIDER, [*command, "--act"] if act else command, _PYTHON)

    @property
    def controller_toml(self) -> Path:
        """The controller's configuration, for `trimtab status` and its like; there from `write_controller_toml` on."""
        return self.folder / CONTROLLER / "controller.toml"

    def write_controller_toml(self) -> Path:
        """Write the controller's configuration, as its start does; returns its path."""
        table = controller_configuration(
            self.settings,
            bootstrap=self._way_of(CONTROLLER),
            metrics_port=self._metrics_ports[-1],
            keys=self.keys,
            checkpoints=self._made(self.folder / CONTROLLER / "checkpoints"),
        )
        self.controller_toml.write_text(to_toml(table), encoding="utf-8")
        return self.controller_toml

    def stop(self, name: str) -> int:
        """Stop one process in order, by its name (`broker`, `w0`, `h0`, `controller`); returns its exit code."""
        return self.child(name).stop()

    def kill(self, name: str) -> None:
        """kill -9 of one process, by its name."""
        self.child(name).kill()

    def child(self, name: str) -> Child:
        """The process of that name that was started last."""
        if name not in self._children:
            raise ClusterError(f"{name} was never started; started were: {', '.join(self._children) or 'none'}")
        return self._children[name]

    def wait_for_workers(self, limit_s: float) -> list[str]:
        """Wait until every worker has reached its agent; returns those that had not within the limit.

        Raises ClusterError, with the end of its log, for a process that has ended.
        """
        deadline = time.monotonic() + limit_s
        hosts = range(self.settings.workers)
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
        """Process ids by name, of those that live."""
        return {name: child.pid for name, child in self._children.items() if child.alive}

    @property
    def ports(self) -> dict[str, tuple[int, ...]]:
        """The ports that are listened on, by name of the process."""
        hosts = {host_name(index): (port,) for index, port in enumerate(self._metrics_ports[:-1])}
        return {BROKER: self.broker.ports, **hosts, CONTROLLER: self._metrics_ports[-1:]}

    def cpu_seconds(self) -> dict[Part, float]:
        """CPU seconds by part up to now, with those of processes that have ended."""
        return self._meter.seconds()

    def left_over(self) -> LeftOver:
        """What still lives of all that was ever started here, and which ports are still bound."""
        return self.processes.left_over(port for ports in self.ports.values() for port in ports)

    def close(self) -> None:
        """End everything in order, unless it was released; may be called again."""
        if self._released:
            return
        try:
            self._meter.stop()
            for phase in in_order_of_end(self._children):
                for name in phase:
                    self._children[name].terminate()
                for name in phase:
                    self._children[name].stop()
        finally:
            self.processes.close()
            shutil.rmtree(self.sockets, ignore_errors=True)

    def release(self) -> None:
        """Let everything outlive this process; `state()` is the way back to it."""
        self._meter.stop()
        self.processes.release()
        self._released = True

    def state(self) -> SandboxState:
        """What is needed to see and to end the cluster from another process."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(
        self, name: str, part: Part, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> Child:
        given = {**environment, **self.environments.get(name, {})}
        return self._adopt(name, self.processes.start(name, command, environment=given, folder=folder), part)

    def _adopt(self, name: str, child: Child, part: Part) -> Child:
        self._children[name] = child
        self._meter.add(child.pid, part)
        return child

    def _launch(self, index: int) -> WorkerLaunch:
        return worker_launch(
            self.settings,
            index,
            python=sys.executable,
            bootstrap=self._way_of(host_name(index)),
            web_port=self._web_ports[index],
            socket=self._socket(index),
            trust=self.keys.trust,
            data=self._made(self.folder / worker_name(index)),
        )

    def _way_of(self, name: str) -> str:
        """`host:port` of the broker for a host or the controller."""
        detour = self._detours.get(name)
        return self.broker.address if detour is None else f"{LOOPBACK}:{detour.proxy}"

    def _socket(self, index: int) -> Path:
        return self.sockets / f"{host_name(index)}.sock"

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder


_PYTHON = {"PYTHONUNBUFFERED": "1"}
"""Logs are read while their processes run."""


def make_socket_folder(folder: Path) -> Path:
    """A folder for the agents' sockets: in the sandbox's, or a temporary one where that path would be too long."""
    inside = folder / "sockets"
    if len(os.fsencode(inside / f"{host_name(MAX_WORKERS)}.sock")) > SOCKET_PATH_BYTES:
        return Path(tempfile.mkdtemp(prefix=SOCKETS_PREFIX))
    inside.mkdir(parents=True, exist_ok=True)
    return inside


def make_keys(folder: Path) -> KeyFiles:
    """The key that the sandbox's controller signs with, and the trust file of its hosts; made when not there."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = KeyFiles(key=folder / "controller.pem", trust=folder / "trusted.keys")
    if not files.key.exists():
        files.create()
    return files


def program(module: str, *arguments: str) -> list[str]:
    """The command line of a console script, but for the interpreter that runs now, wherever its scripts are."""
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
