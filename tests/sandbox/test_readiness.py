import sys

import pytest

from trimtab_agent.metrics import AgentMetrics
from trimtab_process.metrics_port import serve_metrics
from trimtab_protocol.settings.listen import Listen
from trimtab_sandbox.broker import free_ports
from trimtab_sandbox.readiness import WORKER_MODULES, connected_workers, missing_modules


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_modules() == []
    for name in ("faust", "rocksdict"):
        monkeypatch.setitem(sys.modules, name, None)
    assert missing_modules() == ["faust", "rocksdict"]
    assert set(missing_modules()) < set(WORKER_MODULES)


def test_an_agent_is_asked_how_many_workers_it_has() -> None:
    metrics = AgentMetrics()
    server = serve_metrics(Listen(address="127.0.0.1", port=0), metrics.registry, {"cluster": "c"})
    try:
        port = int(server.server_address[1])
        assert connected_workers(port) == 0
        metrics.workers_connected.set(2)
        assert connected_workers(port) == 2
    finally:
        server.shutdown()
        server.server_close()


def test_an_agent_that_does_not_answer_has_none() -> None:
    (port,) = free_ports(1)
    assert connected_workers(port) == 0
