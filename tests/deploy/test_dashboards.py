"""The dashboards are those of the code, Grafana's own types read them, and they show metrics that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.__main__ import BOARDS, path_of, render
from tests.deploy.test_promtool import promtool
from tests.served_metrics import metrics, metrics_in
from trimtab_reference.rules import recorded

PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
CHOSEN = {"$cluster": "prod", "$app": "orders", "$__rate_interval": "1m"}


def fields(document: Any, name: str) -> Iterator[Any]:
    """The values of all fields of this name."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if key == name:
            yield value
        elif isinstance(value, dict | list):
            yield from fields(value, name)


def expressions(name: str, chosen: dict[str, str] = CHOSEN) -> list[str]:
    """The expressions of a dashboard, with these values for its variables."""
    found = list(fields(json.loads(path_of(name).read_text()), "expr"))
    for variable, value in chosen.items():
        found = [expression.replace(variable, value) for expression in found]
    return found


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_up_to_date(name: str) -> None:
    assert path_of(name).read_text() == render(name), f"{path_of(name).name} is stale: run `make dashboards`"


@pytest.mark.parametrize("name", BOARDS)
def test_grafana_s_types_read_a_dashboard_unchanged(name: str) -> None:
    document = json.loads(path_of(name).read_text())
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(document))) == document
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("name", BOARDS)
def test_every_series_in_a_dashboard_is_served_or_recorded(name: str) -> None:
    text = "\n".join(expressions(name))
    assert metrics_in(text) - metrics() == set()
    assert set(re.findall(r"\w+:trimtab_\w+:\w+", text)) - set(recorded()) == set()
    assert set(re.findall(r"\bprocess_\w+", text)) <= PROCESS
    assert len(metrics_in(text)) > 10


@pytest.mark.parametrize("name", BOARDS)
def test_every_expression_is_promql(name: str, tmp_path: Path) -> None:
    rules = [{"record": f"panel:{place}", "expr": each} for place, each in enumerate(expressions(name))]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": name, "rules": rules}]}))
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
