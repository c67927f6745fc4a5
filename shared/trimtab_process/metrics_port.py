"""The port on which agent and controller serve their metrics.

Whoever reaches it gets a thread and a descriptor of the process: so there are few connections, none for long, whether
its other end sends nothing, sends little by little or does not read the answer.
"""

import logging
import socket
import sys
import threading
import time
from contextlib import suppress
from socketserver import ThreadingTCPServer
from typing import Any

from prometheus_client import CollectorRegistry, Counter, MetricsHandler

from trimtab_protocol.messages.rate_limit import RateLimit
from trimtab_protocol.settings.listen import Listen

MAX_CONNECTIONS = 20
"""Connections at a time; further ones are closed."""
CONNECTION_LIMIT_S = 5.0
"""How long a connection may last, from its beginning to the end of the answer."""
RETRY_S = 0.5
"""After a connection that could not be accepted."""

log = logging.getLogger(__name__)


class MetricsServer(ThreadingTCPServer):
    """Answers each request with the metrics, and counts among them the connections that it closed unanswered."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, listen: Listen, registry: CollectorRegistry) -> None:
        """Raises OSError."""
        self.address_family = socket.getaddrinfo(listen.address, listen.port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((listen.address, listen.port), MetricsHandler.factory(registry))
        self._refused = refusal_counter(registry)
        self._ends: dict[socket.socket, float] = {}
        self._complaints = RateLimit(rate=1 / 60, burst=10)

    def get_request(self) -> Any:
        """Accept a connection.  One for which no descriptor is free stays: asked for at once again, it takes a core."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(RETRY_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """A connection was accepted."""
        if len(self._ends) >= MAX_CONNECTIONS:
            self._refused.labels("connections").inc()
            self.shutdown_request(request)
            return
        self._ends[request] = time.monotonic() + CONNECTION_LIMIT_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        self._ends.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Twice a second: end what has lasted too long.  Its thread finds it closed, whatever it waits for."""
        now = time.monotonic()
        for request, end in self._ends.copy().items():
            if end <= now and self._ends.pop(request, None) is not None:
                self._refused.labels("slow").inc()
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up is nobody's news; of the rest little is said, or whoever sends nonsense could fill the disk."""
        if not isinstance(sys.exception(), OSError) and self._complaints.spend(time.monotonic()):
            log.warning("a request for metrics failed", exc_info=True)


def refusal_counter(registry: CollectorRegistry) -> Counter:
    """The port's own metric."""
    text = "Connections to the metrics' own port that were closed: too many, or too slow"
    return Counter("trimtab_metrics_refused_connections", text, ["reason"], registry=registry)


def serve_metrics(listen: Listen, registry: CollectorRegistry) -> MetricsServer:
    """Serve them from now on, in a thread of their own; raises OSError with one line that names the address."""
    try:
        server = MetricsServer(listen, registry)
    except OSError as exc:
        place = f"{listen.address}:{listen.port}"
        raise OSError(f"metrics.listen: found {place}, which cannot be used: {exc.strerror or exc}") from exc
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
