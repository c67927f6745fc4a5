"""Settings of a worker of the flights job, from environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab_agent.engines.faust.settings import InPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """FLIGHTS_BROKER (host:port), _DATA_DIR, _WEB_PORT; optional _KEY_GROUPS, _WORK, _COMMIT_S, _SESSION_S, _PLUGIN,
    _LOCAL, _IN_PLACE.

    `web_port` must be unique per worker, because Faust uses it as the worker's identity.  `work` = CPU microseconds
    spent per event and operator, to make the job heavier.  `commit_s` = seconds between commits, at most which a killed
    worker repeats.  `session_s` = session time-out of the consumer group.  `plugin` = with Trimtab (1) or stock Faust
    (0).  `local` = delays skip the broker where both agents run in the same worker (1), see `install`.
    `in_place` = `off`, `leave` or `on`, see `InPlace`.
    """

    broker: str
    data_dir: Path
    web_port: int
    key_groups: int = 64
    work: int = 0
    commit_s: float = 1.0
    session_s: float = 60.0
    plugin: bool = True
    local: bool = False
    in_place: InPlace = InPlace.OFF

    def __post_init__(self) -> None:
        if self.key_groups < 1 or self.work < 0 or not self.commit_s > 0 or not self.session_s > 0:
            raise ValueError(f"FLIGHTS_*: out of range: {self}")


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings.  Raises ValueError, which names the variable."""
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
        local=bool(_number(environment, "FLIGHTS_LOCAL", 0)),
        in_place=InPlace(environment.get("FLIGHTS_IN_PLACE", InPlace.OFF)),
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    try:
        return int(text)
    except ValueError as exc:
        raise ValueError(f"{name}: found {text!r}, expected a whole number") from exc
