"""The health of a daemon over its metrics port."""

import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from trimtab_process.health import LIVE, READY, HealthVerdict, ask
from trimtab_process.metrics_port import MetricsServer, serve_metrics
from trimtab_protocol.settings.listen import Listen


@pytest.fixture
def verdicts() -> dict[str, HealthVerdict]:
    return {LIVE: HealthVerdict(True, "turns"), READY: HealthVerdict(False, "no window has come yet")}


@pytest.fixture
def server(verdicts: dict[str, HealthVerdict]) -> Iterator[MetricsServer]:
    registry = CollectorRegistry()
    Gauge("answer", "All there is.", registry=registry).set(42)
    checks = {path: lambda path=path: verdicts[path] for path in verdicts}
    made = serve_metrics(Listen(address="127.0.0.1", port=0), registry, {}, checks)
    yield made
    made.shutdown()
    made.server_close()


def port_of(server: MetricsServer) -> int:
    return int(server.server_address[1])


def test_a_verdict_arrives_as_it_is_now(server: MetricsServer, verdicts: dict[str, HealthVerdict]) -> None:
    listen = Listen(address="127.0.0.1", port=port_of(server))
    assert ask(listen, LIVE) == HealthVerdict(True, "ok: turns")
    assert ask(listen, READY) == HealthVerdict(False, "not ok: no window has come yet")
    verdicts[READY] = HealthVerdict(True, "leads")
    assert ask(listen, READY + "?from=probe") == HealthVerdict(True, "ok: leads")


def test_metrics_are_served_on_every_other_path(server: MetricsServer) -> None:
    for path in ("/metrics", "/", "/healthz2"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(server)}{path}", timeout=10) as page:
            assert b"answer 42.0" in page.read()


@pytest.mark.parametrize("address", ["0.0.0.0", "localhost"])
def test_a_daemon_that_listens_everywhere_is_asked_on_this_host(server: MetricsServer, address: str) -> None:
    assert ask(Listen(address=address, port=port_of(server)), LIVE).well


def test_no_answer_names_the_place(server: MetricsServer) -> None:
    port = port_of(server)
    server.shutdown()
    server.server_close()
    found = ask(Listen(address="127.0.0.1", port=port), READY)
    assert found == HealthVerdict(False, f"not ok: no answer on 127.0.0.1:{port}: [Errno 111] Connection refused")


def test_another_server_is_no_health() -> None:
    bare = serve_metrics(Listen(address="127.0.0.1", port=0), CollectorRegistry(), {})
    with_metrics_only = ask(Listen(address="127.0.0.1", port=port_of(bare)), READY)
    bare.shutdown()
    bare.server_close()
    assert with_metrics_only.text.endswith("answers 200 and no verdict: an agent or controller?")
    assert not with_metrics_only.well
