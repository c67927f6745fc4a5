"""The port of the metrics bears whatever is sent to it."""

import errno
import os
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from tests.waiting import wait_for
from trimtab_process import metrics_port
from trimtab_process.metrics_port import MAX_CONNECTIONS, MetricsServer, serve_metrics
from trimtab_protocol.settings.listen import Listen

NONSENSE = (
    b"\r\n\r\n",
    b"GET",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /metrics?name[]=%ff%00&" + b"&".join([b"name[]=x"] * 5_000) + b" HTTP/1.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n",
    random.Random(1).randbytes(50_000),
)


class Served:
    """A port with one figure on it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        Gauge("answer", "All there is.", registry=self.registry).set(42)
        listen = Listen(address="127.0.0.1", port=0)
        self.server: MetricsServer = serve_metrics(listen, self.registry, {"cluster": "c", "host": "h0"})
        self.address = self.server.server_address[:2]

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def page(self, query: str = "") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.address[1]}/metrics{query}", timeout=10) as page:
            return str(page.read().decode())

    def answers(self) -> bool:
        try:
            return 'answer{cluster="c",host="h0"} 42.0' in self.page()
        except OSError:
            return False

    def refused(self, reason: str) -> float:
        return self.registry.get_sample_value("trimtab_metrics_refused_connections_total", {"reason": reason}) or 0.0


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_each_series_bears_the_labels_of_the_process_beside_its_own(served: Served) -> None:
    shelf = Counter("books", "By shelf.", ["shelf"], registry=served.registry)
    shelf.labels("upper").inc()
    lines = [line for line in served.page().splitlines() if line[:1] != "#"]
    assert 'books_total{cluster="c",host="h0",shelf="upper"} 1.0' in lines
    assert [line for line in lines if 'cluster="c",host="h0"' not in line] == []
    assert any(line.startswith("process_cpu_seconds_total{") for line in lines)
    assert not any("_created" in line for line in lines)
    asked = served.page("?name[]=answer").splitlines()
    assert [line for line in asked if line[:1] != "#"] == ['answer{cluster="c",host="h0"} 42.0']


def test_connections_are_counted_from_zero(served: Served) -> None:
    assert (served.refused("connections"), served.refused("slow")) == (0.0, 0.0)
    assert served.registry.get_sample_value("trimtab_metrics_refused_connections_total", {"reason": "slow"}) == 0.0


def test_nonsense_does_not_keep_the_metrics_from_others(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    for nonsense in NONSENSE:
        with served.connect() as connection:
            connection.sendall(nonsense)
            wait_for(served.answers)
    assert not caplog.records


def test_requests_that_fail_are_said_a_few_times(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(15):
        with served.connect() as connection:
            connection.sendall(b"GET http://[ HTTP/1.1\r\n\r\n")
            assert connection.recv(1) == b""
    assert [record.getMessage() for record in caplog.records] == ["a request for metrics failed"] * 10


def test_a_place_that_cannot_be_used_is_one_line(served: Served) -> None:
    place = f"127.0.0.1:{served.address[1]}"
    with pytest.raises(OSError, match=f"^metrics.listen: found {place}, which cannot be used: Address already in use$"):
        serve_metrics(Listen(address="127.0.0.1", port=served.address[1]), served.registry, {})


def test_who_sends_half_a_request_holds_a_place_and_not_for_ever(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_port, "CONNECTION_LIMIT_S", 2.0)
    threads = threading.active_count()
    half = [served.connect() for _ in range(200)]
    try:
        for connection in half[:MAX_CONNECTIONS]:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        wait_for(lambda: served.refused("connections") + served.refused("slow") >= 200 - MAX_CONNECTIONS)
        assert threading.active_count() <= threads + MAX_CONNECTIONS
        wait_for(lambda: served.refused("slow") >= MAX_CONNECTIONS)
        wait_for(lambda: served.answers())
        assert half[0].recv(1) == b""
    finally:
        for connection in half:
            connection.close()


def test_who_does_not_read_the_answer_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "CONNECTION_LIMIT_S", 0.5)
    large = Gauge("large", "More than the sockets' buffers take.", ["name"], registry=served.registry)
    for number in range(5_000):
        large.labels(f"{number} {'x' * 2_000}").set(1)
    with served.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        wait_for(lambda: served.refused("slow") == 1)
    large.clear()
    wait_for(served.answers)


def test_without_a_free_descriptor_a_connection_is_waited_for_and_not_in_a_circle(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    listening = served.server.socket

    def accept() -> object:
        if len(waited) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return listening.accept()

    monkeypatch.setattr(metrics_port, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waited.append))
    monkeypatch.setattr(served.server, "socket", SimpleNamespace(accept=accept, close=listening.close))

    assert served.answers()
    assert waited == [metrics_port.RETRY_S] * 3
