"""Reads agent.toml: strict TOML into frozen values.  docs/reference/configuration.md lists the keys."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from trimtab_process.kafka_section import KafkaSection
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.codec import (
    CONFIGURATION,
    Key,
    Most,
    Name,
    Needed,
    NotSent,
    Range,
    Table,
    WrittenAs,
    converted,
)
from trimtab_protocol.messages.decode import MAX_NUMBER, BadMessage, Fault, step
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.report import MAX_SPEED
from trimtab_protocol.settings.listen import MetricsAddress
from trimtab_protocol.settings.paths import FilePath, read_path

MAX_WORKERS = 1_000
"""Largest number of workers in agent.toml."""
MAX_CRASHES = 10
"""Crashes in a row, unless configured.  Their back-off takes four minutes, so workers outlast a broker that is away for
that long."""
MAX_SOCKET_PATH_BYTES = 107
"""Longest path of the agent's socket; Linux allows 108 bytes with the closing zero."""


def _read_word(found: Any) -> str:
    if not isinstance(found, str) or not found:
        raise BadMessage(Fault.TYPE, "", found, "a word of the command line")
    if "\0" in found:
        raise BadMessage(Fault.RANGE, "", "a zero character", "none: the operating system ends a text there")
    return found


def _read_command(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words:
        raise BadMessage(Fault.RANGE, "", [], "a program and its arguments")
    return words


def _read_environment(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        raise BadMessage(Fault.TYPE, "", found, "a table of strings")
    for key, value in found.items():
        if not isinstance(value, str):
            raise BadMessage(Fault.TYPE, step(key), value, "a string")
        if not key or "=" in key or "\0" in key + value:
            raise BadMessage(
                Fault.RANGE, step(key), "an invalid name or value", "a name without '=', no zero character"
            )
    return found


def _read_socket(found: Any) -> Path:
    path = read_path(found)
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        limit = f"a path of at most {MAX_SOCKET_PATH_BYTES} bytes (the limit of Unix sockets)"
        raise BadMessage(Fault.RANGE, "", f"{length} bytes: {path}", limit)
    return path


Word = Annotated[str, WrittenAs(Any, str, _read_word)]
Command = Annotated[tuple[str, ...], WrittenAs(Annotated[tuple[Word, ...], Most(1000)], list, _read_command)]
Agent = Table("agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfiguration:
    """A worker of this host.

    `capacity`: in cores; None: one core, or less by quota.  `command`: command line with which the agent can start it.
    `app`: the app that this command runs; with it, the worker is in the pool of that app while it does not run, and a
    controller may stop it to make the app smaller.
    `data_dir`: folder of its state; the free space of its disk is reported, and checked by the guard.
    """

    worker: Annotated[WorkerId, NotSent()] = field(default=WorkerId(""))
    """The key of its table."""
    capacity: Annotated[float | None, Range(0.001, 10_000.0)] = None
    command: Command = ()
    environment: Annotated[Mapping[str, str], WrittenAs(Any, dict, _read_environment)] = field(default_factory=dict)
    data_dir: FilePath | None = None
    app: AppId | None = None


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

    cluster: Annotated[Name, Agent]
    host: Annotated[HostId, Agent]
    interval_s: Annotated[float, Range(0.1, 600.0), Agent] = 10.0
    state_dir: Annotated[FilePath, Agent]
    socket: Annotated[Path, WrittenAs(Any, str, _read_socket), Agent]
    kafka: KafkaSection
    machine: Annotated[HostConfiguration, Key("host")] = HostConfiguration()
    workers: Annotated[Mapping[WorkerId, WorkerConfiguration], Most(MAX_WORKERS)] = field(default_factory=dict)
    guard: GuardConfiguration = field(default_factory=GuardConfiguration)
    max_crashes: Annotated[int, Range(1, 1000), Agent] = MAX_CRASHES
    """The crash in a row after which a worker is not started again."""
    metrics: MetricsAddress = None
    trust: Annotated[FilePath | None, Table("trust"), Key("file"), Needed()] = None
    key: Annotated[FilePath | None, Table("signing"), Key("key_file"), Needed()] = None

    def __post_init__(self) -> None:
        named = {worker: replace(each, worker=worker) for worker, each in self.workers.items()}
        object.__setattr__(self, "workers", named)

    @property
    def data_folders(self) -> tuple[Path, ...]:
        """Where the workers keep their state, as far as that is known."""
        return tuple(each.data_dir for each in self.workers.values() if each.data_dir is not None)


def load_configuration(path: Path) -> AgentConfiguration:
    """Read the configuration from a file.  Raises BadConfiguration."""
    return read_toml(path, read_configuration)


def read_configuration(document: Mapping[str, Any]) -> AgentConfiguration:
    """Read the configuration from a parsed file.  Raises BadMessage with the key, what was found and expected."""
    return converted(dict(document), AgentConfiguration, defaults=CONFIGURATION)
