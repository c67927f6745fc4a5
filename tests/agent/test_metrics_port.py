"""The port of the metrics bears whatever is sent to it."""

import random
import socket
import urllib.request

from prometheus_client import start_http_server

from trimtab_agent.metrics import Metrics

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


def test_nonsense_does_not_keep_the_metrics_from_others() -> None:
    metrics = Metrics()
    metrics.broker_connected.set(True)
    server, thread = start_http_server(0, "127.0.0.1", metrics.registry)
    address = ("127.0.0.1", server.server_port)
    try:
        half = [socket.create_connection(address, timeout=5) for _ in range(20)]
        for connection in half:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        for nonsense in NONSENSE:
            with socket.create_connection(address, timeout=5) as connection:
                connection.sendall(nonsense)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as page:
            assert b"trimtab_agent_broker_connected 1.0" in page.read()
        for connection in half:
            connection.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
