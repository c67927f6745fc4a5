"""What a worker of the flights job takes from its environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """FLIGHTS_BROKER (host:port), _DATA_DIR, _WEB_PORT; optional _KEY_GROUPS, _WORK, _COMMIT_S, _SESSION_S, _PLUGIN.

    The web port is unique per worker: Faust takes it for the worker's identity.  `work` = CPU microseconds burnt per
    event and operator: makes the job as heavy as wished.  `commit_s` = seconds between commits: what a
    killed worker repeats at most.  `session_s` = how long the broker waits for a sign of life of a worker before it
    gives its key groups to others.  `plugin` = whether Trimtab is installed (1) or the worker is stock Faust (0), to
    compare.
    """

    broker: str
    data_dir: Path
    web_port: int
    key_groups: int = 64
    work: int = 0
    commit_s: float = 1.0
    session_s: float = 60.0
    plugin: bool = True

    def __post_init__(self) -> None:
        if self.key_groups < 1 or self.work < 0 or not self.commit_s > 0 or not self.session_s > 0:
            raise ValueError(f"FLIGHTS_*: out of range: {self}")


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings.  Raises ValueError that names the variable."""
    missing = [name for name in ("FLIGHTS_BROKER", "FLIGHTS_DATA_DIR", "FLIGHTS_WEB_PORT") if not environment.get(name)]
    if missing:
        raise ValueError(f"environment: expected {', '.join(missing)}")
    return Settings(
        broker=environment["FLIGHTS_BROKER"],
        data_dir=Path(environment["FLIGHTS_DATA_DIR"]),
        web_port=_number(environment, "FLIGHTS_WEB_PORT", 0),
        key_groups=_number(environment, "FLIGHTS_KEY_GROUPS", 64),
        work=_number(environment, "FLIGHTS_WORK", 0),
        commit_s=_number(environment, "FLIGHTS_COMMIT_S", 1),
        session_s=_number(environment, "FLIGHTS_SESSION_S", 60),
        plugin=bool(_number(environment, "FLIGHTS_PLUGIN", 1)),
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    try:
        return int(text)
    except ValueError as exc:
        raise ValueError(f"{name}: found {text!r}, expected a whole number") from exc
