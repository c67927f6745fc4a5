"""The alerts and recording rules for Prometheus, as deploy/prometheus/trimtab.rules.yml has them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from trimtab_reference import ROOT

RULES = ROOT / "deploy" / "prometheus" / "trimtab.rules.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alerting rule.  `runbook`: its name; None: the label `reason` is the name."""

    name: str
    expression: str
    severity: str
    lasts: str
    """How long the expression must hold, such as `5m`; empty: not at all."""
    runbook: str | None


def recorded() -> dict[str, str]:
    """Name of a recorded series -> its expression."""
    return {rule["record"]: rule["expr"] for rule in _rules() if "record" in rule}


def alerts() -> list[Alert]:
    """All alerts, with recorded series in their expressions written out."""
    return [_alert(rule) for rule in _rules() if "alert" in rule]


def _alert(rule: dict[str, Any]) -> Alert:
    expression = rule["expr"]
    for name, written_out in recorded().items():
        expression = expression.replace(name, written_out)
    named = re.fullmatch(r"runbooks/(\w+)\.md", rule["annotations"]["runbook"])
    return Alert(
        name=rule["alert"],
        expression=expression,
        severity=rule["labels"]["severity"],
        lasts=rule.get("for", ""),
        runbook=named[1] if named else None,
    )


@cache
def _document() -> Any:
    return yaml.safe_load(RULES.read_text(encoding="utf-8"))


def _rules() -> Iterator[dict[str, Any]]:
    for group in _document()["groups"]:
        yield from group["rules"]
