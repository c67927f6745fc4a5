"""The rules for Prometheus: what they say about themselves, and that each alert is tested."""

import re
from collections import defaultdict

import yaml

from tests.paths import ROOT
from tests.served_metrics import metrics, metrics_in
from trimtab_reference.rules import RULES, alerts, recorded

TESTS = sorted((RULES.parent / "tests").glob("*.test.yml"))
MONITOR = ROOT / "docs" / "guides" / "monitor.md"


def test_every_metric_in_a_rule_is_one_that_we_serve() -> None:
    expressions = [*recorded().values(), *(alert.expression for alert in alerts())]
    named = set().union(*map(metrics_in, expressions))
    assert named - metrics() == set()
    assert len(named) > 15


def test_every_alert_says_what_it_is_and_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    for rule in (rule for rule in rules if "alert" in rule):
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
        runbook = rule["annotations"]["runbook"].replace("{{ $labels.reason }}", "README")
        assert (ROOT / runbook).is_file(), runbook
        assert re.search(r"\$labels|`trimtab", rule["annotations"]["summary"]), rule["alert"]


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = defaultdict(set)
    for path in TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for case in test["alert_rule_test"]:
                cases[case["alertname"]].add(bool(case["exp_alerts"]))
    assert cases == {alert.name: {True, False} for alert in alerts()}


def test_the_guide_names_the_alerts_that_wake_somebody() -> None:
    [critical] = re.findall(r"^- `critical`: (.*?)(?=^- )", MONITOR.read_text(), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`(\w+)`", critical)) == {alert.name for alert in alerts() if alert.severity == "critical"}
