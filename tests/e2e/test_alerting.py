"""A controller stops, and somebody is told: Prometheus and Alertmanager beside a real cluster.

The rules are those of deploy/prometheus.  In `make test` only the times that an expression must hold are shorter;
promtool plays them as they are (tests/deploy), and so does the scenario.
"""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.grafana.__main__ import BOARDS
from tests.deploy.test_dashboards import expressions
from tests.e2e.monitoring import Monitoring, Webhook, scaled_rules, wait_for
from tests.paths import EXAMPLES
from tests.programs import program
from tests.served_metrics import metrics_in
from trimtab_reference.rules import RULES, alerts, recorded
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import CONTROLLER, LOOPBACK, SandboxSettings, host_name

NAME, ALERT = "alerting", "TrimtabNoLeader"
HOSTS = 2
LIMIT_S = 100.0
SHORT = 2.0
"""Seconds for each minute of `for`, in `make test`."""
WITH_VALUES = 15
"""Expressions of dashboards that have values before the first window."""
ANY = {"$cluster": ".*", "$app": ".*", "$__rate_interval": "10s"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCluster]:
    """A controller that acts, and two agents, one of them with a worker."""
    for name in ("prometheus", "prometheus-alertmanager"):
        program(name)
    settings = SandboxSettings(
        app="flights.app:app",
        app_folder=EXAMPLES,
        cluster=NAME,
        workers=HOSTS,
        environment=dict(FLIGHTS_ENVIRONMENT),
    )
    with SandboxCluster(settings, tmp_path_factory.mktemp("alerting") / "sandbox") as made:
        made.start_broker()
        partitions = {"flights": 64, "flights-delays": 64, "flights-totals": 4}
        made.broker.create_topics([Topic(name=name, partitions=count) for name, count in partitions.items()])
        made.start_controller(act=True)
        for index in range(HOSTS):
            made.start_agent(index)
        made.start_worker(0)
        yield made


def watch(cluster: SandboxCluster, rules: str, folder: Path, webhook: Webhook) -> Monitoring:
    """Prometheus that sees the controller lead, and both agents."""
    agents = [cluster.ports[host_name(index)][0] for index in range(HOSTS)]
    jobs = {"trimtab-controller": cluster.ports[CONTROLLER], "trimtab-agent": agents}
    monitoring = Monitoring(folder, cluster.processes, rules, jobs, webhook)
    leads = f'cluster:trimtab_controllers_leading:sum{{cluster="{NAME}"}} == 1'
    wait_for("a leader", lambda: monitoring.holds(leads), LIMIT_S)
    wait_for("agents", lambda: monitoring.holds(f'count(up{{job="trimtab-agent"}} == 1) == {HOSTS}'), LIMIT_S)
    return monitoring


def test_rules_and_dashboards_ask_for_what_is_served(cluster: SandboxCluster, tmp_path: Path) -> None:
    shown = [text for name in BOARDS for text in expressions(name, ANY)]
    with Webhook() as webhook:
        monitoring = watch(cluster, RULES.read_text(), tmp_path, webhook)
        lines = [line.split() for port in (CONTROLLER, host_name(0)) for line in page(cluster.ports[port][0])]
        served = {words[2] for words in lines if words[:2] == ["#", "TYPE"]}
        asked = [*recorded().values(), *(alert.expression for alert in alerts()), *shown]
        assert set().union(*map(metrics_in, asked)) - served == set()
        for text in shown:
            monitoring.ask(text)  # raises what Prometheus has against it
        wait_for("values", lambda: sum(map(monitoring.holds, shown)) >= WITH_VALUES, LIMIT_S)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(scaled_rules(SHORT), id="shorter times"),
        pytest.param(RULES.read_text(), id="as shipped", marks=pytest.mark.scenario),
    ],
)
def test_a_controller_that_stops_is_reported_and_so_is_its_return(
    cluster: SandboxCluster, rules: str, tmp_path: Path
) -> None:
    with Webhook() as webhook:
        monitoring = watch(cluster, rules, tmp_path, webhook)
        told = f'ALERTS{{alertname="{ALERT}", cluster="{NAME}"}}'
        wait_for("quiet", lambda: monitoring.holds(f"absent({told})"), LIMIT_S)
        webhook.heard.clear()

        assert cluster.stop(CONTROLLER) == 0
        after = wait_for("the alert", lambda: bool(webhook.of(ALERT, "firing")), LIMIT_S)
        [alert] = webhook.of(ALERT, "firing")
        assert alert["labels"] == {"alertname": ALERT, "cluster": NAME, "severity": "critical"}
        assert alert["annotations"]["summary"] == f"Cluster {NAME}: no controller leads"
        assert alert["annotations"]["runbook"] == "runbooks/no_leader.md"

        cluster.start_controller(act=True)
        over = wait_for("the end", lambda: bool(webhook.of(ALERT, "resolved")), LIMIT_S)
        print(f"\nthe alert came after {after:.1f} s, its end {over:.1f} s after the new start")


def page(port: int) -> list[str]:
    """The lines of /metrics."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode()).splitlines()
