"""Reads agent.toml: strict TOML into frozen values.  docs/reference/configuration.md lists the keys."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from trimtab_process.private_files import read_private
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.codec import Name, Range, section
from trimtab_protocol.messages.decode import MAX_NUMBER, BadMessage, Fault, Fields, step
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import MAX_SPEED
from trimtab_protocol.settings.kafka import KafkaSettings, read_kafka
from trimtab_protocol.settings.listen import Listen, read_listen
from trimtab_protocol.settings.paths import checked, read_path

T = TypeVar("T")

MAX_WORKERS = 1_000
"""Largest number of workers in agent.toml."""
MAX_CRASHES = 10
"""Crashes in a row, unless configured.  Their back-off takes four minutes, so workers outlast a broker that is away for
that long."""
MAX_SOCKET_PATH_BYTES = 107
"""Longest path of the agent's socket; Linux allows 108 bytes with the closing zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfiguration:
    """A worker of this host.

    `capacity`: in cores; None: one core, or less by quota.  `command`: command line with which the agent can start it.
    `app`: the app that this command runs; with it, the worker is in the pool of that app while it does not run, and a
    controller may stop it to make the app smaller.
    `data_dir`: folder of its state; the free space of its disk is reported, and checked by the guard.
    """

    worker: WorkerId
    capacity: float | None = None
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    data_dir: Path | None = None
    app: AppId | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "environment", MappingProxyType(dict(self.environment)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfiguration:
    """What the workers of the host may use together, and what the host is; None: as the system tells or is measured."""

    cores: Annotated[float | None, Range(0.001, 10_000.0)] = None
    """None: the cgroup quota, or the host's cores."""
    link_bytes_s: Annotated[float | None, Range(1.0, MAX_NUMBER)] = None
    """What its network can carry each way."""
    type: Name | None = None
    """A name for all hosts that need the same CPU for the same work; None: the model and number of the cores."""
    speed: Annotated[float | None, Range(0.001, MAX_SPEED)] = None
    """Of one core, relative to other types; None: measured when the agent starts."""
    zone: Name | None = None
    """A name for all hosts that may fail together, such as those of one rack; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfiguration:
    """Bytes that must be free before state or a process is added to this host; 0 = not checked."""

    min_free_disk_bytes: int = 0
    min_free_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfiguration:
    """The agent's configuration.

    `trust`: file of the keys that may sign commands; None: commands are not verified.  `key`: file of this host's
    private key, which signs reports and acks; None: they are not signed.
    """

    cluster: str
    host: HostId
    interval_s: float
    state_dir: Path
    socket: Path
    kafka: KafkaSettings
    machine: HostConfiguration = HostConfiguration()
    workers: Mapping[WorkerId, WorkerConfiguration] = field(default_factory=dict)
    guard: GuardConfiguration = field(default_factory=GuardConfiguration)
    max_crashes: int = MAX_CRASHES
    """The crash in a row after which a worker is not started again."""
    metrics: Listen | None = None
    trust: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", MappingProxyType(dict(self.workers)))

    @property
    def data_folders(self) -> tuple[Path, ...]:
        """Where the workers keep their state, as far as that is known."""
        return tuple(each.data_dir for each in self.workers.values() if each.data_dir is not None)


def load_configuration(path: Path) -> AgentConfiguration:
    """Read the configuration from a file.  Raises BadConfiguration."""
    return read_toml(path, read_configuration)


def read_configuration(document: Mapping[str, Any]) -> AgentConfiguration:
    """Read the configuration from a parsed file.  Raises BadMessage with the key, what was found and expected."""
    fields = Fields(dict(document), "")
    agent = fields.fields("agent")
    kafka = fields.fields("kafka")
    host = fields.optional("host", fields.fields)
    guard = fields.optional("guard", fields.fields)
    metrics = fields.optional("metrics", fields.fields)
    trust = fields.optional("trust", fields.fields)
    signing = fields.optional("signing", fields.fields)
    workers = fields.optional("workers", lambda name: _read_workers(fields, name))
    fields.done()
    max_crashes = agent.optional("max_crashes", lambda name: agent.integer(name, low=1, high=1_000))
    configuration = AgentConfiguration(
        cluster=agent.name("cluster"),
        host=HostId(agent.name("host")),
        interval_s=agent.optional("interval_s", lambda name: agent.number(name, low=0.1, high=600.0)) or 10.0,
        state_dir=read_path(agent, "state_dir"),
        socket=_read_socket(agent),
        kafka=read_kafka(kafka, read_private),
        machine=section(HostConfiguration(), host),
        workers=workers or {},
        guard=section(GuardConfiguration(), guard),
        max_crashes=MAX_CRASHES if max_crashes is None else max_crashes,
        metrics=read_listen(metrics) if metrics else None,
        trust=_read_file(trust, "file") if trust else None,
        key=_read_file(signing, "key_file") if signing else None,
    )
    agent.done()
    return configuration


def _read_socket(agent: Fields) -> Path:
    path = read_path(agent, "socket")
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        limit = f"a path of at most {MAX_SOCKET_PATH_BYTES} bytes (the limit of Unix sockets)"
        raise BadMessage(Fault.RANGE, agent.at("socket"), f"{length} bytes: {path}", limit)
    return path


def _read_workers(fields: Fields, name: str) -> dict[WorkerId, WorkerConfiguration]:
    return {
        WorkerId(worker): _read_worker(WorkerId(worker), Fields(table, path))
        for worker, path, table in fields.members(name, limit=MAX_WORKERS)
    }


def _read_worker(worker: WorkerId, table: Fields) -> WorkerConfiguration:
    configuration = WorkerConfiguration(
        worker=worker,
        capacity=table.optional("capacity", lambda name: table.number(name, low=0.001, high=10_000.0)),
        command=_read_command(table) if table.has("command") else (),
        environment=table.optional("environment", lambda name: _read_environment(table, name)) or {},
        data_dir=table.optional("data_dir", lambda name: read_path(table, name)),
        app=table.optional("app", lambda name: AppId(table.name(name))),
    )
    table.done()
    return configuration


def _read_command(table: Fields) -> tuple[str, ...]:
    words = list(table.items("command", limit=1000))
    for path, word in words:
        if not isinstance(word, str) or not word:
            raise BadMessage(Fault.TYPE, path, word, "a word of the command line")
        checked(word, path)
    if not words:
        raise BadMessage(Fault.RANGE, table.at("command"), [], "a program and its arguments")
    return tuple(word for _, word in words)


def _read_environment(table: Fields, name: str) -> dict[str, str]:
    found = table.take(name)
    if not isinstance(found, dict):
        raise BadMessage(Fault.TYPE, table.at(name), found, "a table of strings")
    for key, value in found.items():
        path = f"{table.at(name)}.{step(key)}"
        if not isinstance(value, str):
            raise BadMessage(Fault.TYPE, path, value, "a string")
        if not key or "=" in key or "\0" in key + value:
            raise BadMessage(Fault.RANGE, path, "an invalid name or value", "a name without '=', no zero character")
    return found


def _read_file(table: Fields, name: str) -> Path:
    path = read_path(table, name)
    table.done()
    return path
