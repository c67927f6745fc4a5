"""The settings of a sandbox, and the configuration files of its agents and its controller.

They are TOML, which the standard library can only read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trimtab_controller.security.keys import KeyFiles

TomlValue = str | bool | int | float | Path | list[str] | list[float]
Table = Mapping[str, "TomlValue | Table"]
LOOPBACK = "127.0.0.1"
MAX_WORKERS = 64


def to_toml(table: Table) -> str:
    """The table as a TOML document; tables in it become sections."""
    return "\n".join(_lines(table, ())) + "\n"


def _lines(table: Table, path: tuple[str, ...]) -> list[str]:
    lines = [f"[{'.'.join(map(_text, path))}]"] if path else []
    for key, value in table.items():
        if not isinstance(value, Mapping):
            lines.append(f"{_text(key)} = {_value(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, key))
    return lines


def _value(value: TomlValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return _text(str(value))


def _text(text: str) -> str:
    # A JSON string is a TOML string, except for surrogate pairs, so non-ASCII characters stay unescaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Settings of a sandbox: `workers` processes of one Faust app, each on a "host" of its own with an agent."""

    app: str
    """`module:attribute` of the Faust app."""
    app_folder: Path
    """Folder in which Python finds that module."""
    cluster: str = "sandbox"
    workers: int = 4
    pool: int = 0
    """How many of the workers, the last ones, are not started: their agents declare them for the app `app_id`."""
    app_id: str = ""
    """The app's id, as its workers report it; needed for a pool.  Without a pool, agents declare all workers for it."""
    capacity_cores: float | tuple[float, ...] = 0.25
    """Capacity per worker in cores: one value for all, or one each."""
    host_cores: float | None = None
    """Cores of each "host", of which only its worker and agent use any; None: each measures the whole machine."""
    host_types: tuple[str, ...] = ()
    """Type of each "host"; empty: as each agent finds it, so all are alike."""
    interval_s: float = 1.0
    """Seconds between two reports of an agent."""
    heap_mb: int = 384
    """Heap limit of the broker, in MiB."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the workers' environment.  `{broker}`, `{data}`, `{web_port}` and `{worker}` in a value are replaced by
    those of each worker."""
    pods: bool = False
    """Each "host" is a pod: its agent cannot start its worker, and no host is expected by its name."""
    controller: Mapping[str, Table] = field(default_factory=dict)
    """Section -> keys of controller.toml that replace the sandbox's own."""

    def __post_init__(self) -> None:
        module, colon, attribute = self.app.partition(":")
        if not (module and colon and attribute):
            raise ValueError(f"app: found {self.app!r}, expected module:attribute")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers: found {self.workers}, expected 1 to {MAX_WORKERS}")
        if not 0 <= self.pool < self.workers or (self.pool and not self.app_id):
            raise ValueError(
                f"pool: found {self.pool} of app {self.app_id!r}, expected fewer than all, and an app's id"
            )
        capacities = self.capacity_cores
        if isinstance(capacities, tuple) and len(capacities) != self.workers:
            raise ValueError(f"capacity_cores: found {len(capacities)} values for {self.workers} workers")
        if self.host_types and len(self.host_types) != self.workers:
            raise ValueError(f"host_types: found {len(self.host_types)} names for {self.workers} workers")
        if not all(0 < self.capacity_of(index) <= 1 for index in range(self.workers)):
            raise ValueError(f"capacity_cores: found {capacities}, expected a share of one core, above 0 and up to 1")

    @property
    def declared(self) -> range:
        """The places of the workers that their agents declare for the app."""
        return range(self.workers) if self.app_id and not self.pool else range(self.workers - self.pool, self.workers)

    @property
    def started(self) -> range:
        """The places of the workers that the sandbox starts."""
        return range(self.workers - self.pool)

    def capacity_of(self, index: int) -> float:
        """Capacity of one worker, in cores."""
        return self.capacity_cores[index] if isinstance(self.capacity_cores, tuple) else self.capacity_cores


def worker_name(index: int) -> str:
    """Name of a worker, its process and its log."""
    return f"w{index}"


def host_name(index: int) -> str:
    """Name of a host, of its agent's process and of the agent's log."""
    return f"h{index}"


CONTROLLER = "controller"
CONSOLE = "console"
BROKER = "broker"
LOAD = "load"


def shutdown_order(names: Iterable[str]) -> list[list[str]]:
    """Process names in the order of shutdown: [controllers, console, load], [workers], [agents], [broker]."""

    def rank(name: str) -> int:
        if name.startswith(BROKER):
            return 3
        if name in (CONSOLE, LOAD) or name.startswith(CONTROLLER):
            return 0
        return 1 if name.startswith("w") else 2

    present = list(names)
    return [[name for name in present if rank(name) == wanted] for wanted in range(4)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLaunch:
    """How a worker is started, by the sandbox or by its agent."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """Added to the environment of the process that starts it."""
    folder: Path
    """Working directory."""
    data: Path


def worker_launch(
    settings: SandboxSettings,
    index: int,
    *,
    python: str,
    bootstrap: str,
    web_port: int,
    socket: Path,
    trust: Path,
    data: Path,
) -> WorkerLaunch:
    """How one worker is started.

    Faust's environment variables override what an app sets in its code, so any app connects to the sandbox's broker.
    The web server stays off, but Faust uses its port to identify a worker on one machine.
    """
    given = {"broker": bootstrap, "data": str(data), "web_port": str(web_port), "worker": worker_name(index)}
    options = ("worker", "--without-web", "--web-port", str(web_port), "--loglevel", "info")
    return WorkerLaunch(
        command=(python, "-m", "faust", "-A", settings.app, *options),
        environment={
            "BROKER_URL": f"kafka://{bootstrap}",
            "APP_DATADIR": str(data),
            "PYTHONUNBUFFERED": "1",
            "TRIMTAB_CLUSTER": settings.cluster,
            "TRIMTAB_WORKER": worker_name(index),
            "TRIMTAB_SOCKET": str(socket),
            "TRIMTAB_TRUST": str(trust),
            **{name: _fill(text, given) for name, text in settings.environment.items()},
        },
        folder=settings.app_folder,
        data=data,
    )


def _fill(text: str, given: Mapping[str, str]) -> str:
    # Not str.format: the app may use other braces, such as those of JSON.
    for name, value in given.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def agent_configuration(
    settings: SandboxSettings,
    index: int,
    *,
    bootstrap: str,
    metrics_port: int,
    socket: Path,
    trust: Path,
    state: Path,
    launch: WorkerLaunch,
) -> Table:
    """The agent.toml of one host."""
    host: Table = {} if settings.host_cores is None else {"cores": settings.host_cores}
    if settings.host_types:
        host = {**host, "type": settings.host_types[index]}
    return {
        **({"host": host} if host else {}),
        "agent": {
            "cluster": settings.cluster,
            "host": host_name(index),
            "interval_s": settings.interval_s,
            "state_dir": state,
            "socket": socket,
        },
        "kafka": {"bootstrap_servers": bootstrap},
        "trust": {"file": trust},
        "workers": {
            worker_name(index): {
                "capacity": settings.capacity_of(index),
                "data_dir": launch.data,
                **({} if settings.pods else {"command": list(launch.command), "environment": launch.environment}),
                **({"app": settings.app_id} if index in settings.declared else {}),
            }
        },
        "metrics": {"listen": f"{LOOPBACK}:{metrics_port}"},
    }


def controller_configuration(
    settings: SandboxSettings, *, bootstrap: str, metrics_port: int, keys: KeyFiles, checkpoints: Path
) -> Table:
    """The controller.toml, with windows and waits short enough for a demonstration."""
    sections: dict[str, Table] = {
        "controller": {"cluster": settings.cluster},
        "kafka": {"bootstrap_servers": bootstrap},
        "signing": {"key_file": keys.key, "trust_file": keys.trust},
        "stream": {
            "window_s": 5.0,
            "watermark_s": 2.0,
            **({} if settings.pods else {"expected_hosts": [host_name(index) for index in range(settings.workers)]}),
            "checkpoint_dir": checkpoints,
            "embedded": True,
            "spark": {"spark.master": "local[2]"},
        },
        "balance": {"min_interval_s": 10.0, "max_disk": 1.0},  # all hosts are on this machine's disk, however full
        "metrics": {"listen": f"{LOOPBACK}:{metrics_port}"},
    }
    for name, replaced in settings.controller.items():
        sections[name] = {**sections.get(name, {}), **replaced}
    return sections
