import os
import shutil
import sys
from pathlib import Path

import pytest

from trimtab_agent.metrics import AgentMetrics
from trimtab_process.metrics_port import serve_metrics
from trimtab_protocol.settings.listen import Listen
from trimtab_sandbox.broker import free_ports
from trimtab_sandbox.cluster import SOCKET_PATH_BYTES, make_socket_folder
from trimtab_sandbox.readiness import WORKER_MODULES, connected_workers, missing_modules


def test_sockets_are_in_the_sandboxs_folder(tmp_path: Path) -> None:
    assert make_socket_folder(tmp_path) == tmp_path / "sockets"
    assert (tmp_path / "sockets").is_dir()


def test_sockets_are_elsewhere_when_the_path_would_be_too_long(tmp_path: Path) -> None:
    folder = make_socket_folder(tmp_path / ("x" * SOCKET_PATH_BYTES))
    try:
        assert tmp_path not in folder.parents
        assert folder.is_dir()
        assert len(os.fsencode(folder / "h64.sock")) <= SOCKET_PATH_BYTES
    finally:
        shutil.rmtree(folder)


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
