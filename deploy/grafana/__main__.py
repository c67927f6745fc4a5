"""Write the dashboards: `make dashboards`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.controller import controller
from deploy.grafana.overview import overview

HERE = Path(__file__).parent
BOARDS: Mapping[str, Callable[[], Dashboard]] = {"overview": overview, "controller": controller}


def path_of(name: str) -> Path:
    """The file of a dashboard."""
    return HERE / f"{name}.json"


def render(name: str) -> str:
    """The text of a dashboard's file."""
    return JSONEncoder(sort_keys=True, indent=2).encode(BOARDS[name]().build()) + "\n"


if __name__ == "__main__":
    for name in BOARDS:
        path_of(name).write_text(render(name), encoding="utf-8")
