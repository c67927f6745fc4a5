"""The HTTP server on which agent and controller serve their metrics and their health.

Each connection takes a thread and a file descriptor.  So the number and the duration of connections are limited, also
for clients that send nothing, send slowly or do not read the answer.
"""

import logging
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from socketserver import ThreadingTCPServer
from types import MappingProxyType
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    MetricsHandler,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from trimtab_process.health import Check, answer_of
from trimtab_protocol.messages.rate_limit import RateLimit
from trimtab_protocol.settings.listen import Listen

MAX_CONNECTIONS = 20
"""Largest number of connections at a time; further ones are closed."""
CONNECTION_LIMIT_S = 5.0
"""Longest duration of a connection, from accept to the end of the answer."""
RETRY_S = 0.5
"""How long to wait after a connection could not be accepted."""

NO_CHECKS: Mapping[str, Check] = MappingProxyType({})

log = logging.getLogger(__name__)
M = TypeVar("M", Counter, Histogram)


class WithLabels:
    """The metrics of a registry, with the same labels added to every series.

    So a rule can be written per cluster, whatever labels a scrape configuration gives to its targets.
    """

    def __init__(self, metrics: Collector, labels: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        for metric in self._metrics.collect():
            labelled = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            labelled.samples = [each._replace(labels={**self._labels, **each.labels}) for each in metric.samples]
            yield labelled

    def restricted_registry(self, names: list[str]) -> "WithLabels":
        """Only the metrics of these names, which a request can ask for."""
        assert isinstance(self._metrics, CollectorRegistry)
        return WithLabels(self._metrics.restricted_registry(names), self._labels)


class Handler(MetricsHandler):
    """Answers one request."""

    def do_GET(self) -> None:  # noqa: N802 - so the standard library calls it
        """Serve the verdict of the check on this path, or else the metrics."""
        assert isinstance(self.server, MetricsServer)
        check = self.server.checks.get(self.path.partition("?")[0])
        if check is None:
            super().do_GET()
            return
        code, body = answer_of(check())
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class MetricsServer(ThreadingTCPServer):
    """Answers with the metrics, or a check's verdict on its path; counts connections closed without an answer."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        listen: Listen,
        registry: CollectorRegistry,
        labels: Mapping[str, str],
        checks: Mapping[str, Check] = NO_CHECKS,
    ) -> None:
        """Bind the address.  `labels` are added to every series.  Raises OSError if that fails."""
        self.address_family = socket.getaddrinfo(listen.address, listen.port, type=socket.SOCK_STREAM)[0][0]
        self.checks = checks
        super().__init__((listen.address, listen.port), Handler.factory(WithLabels(registry, labels)))
        self._refused = refusal_counter(registry)
        self._ends: dict[socket.socket, float] = {}
        self._complaints = RateLimit(rate=1 / 60, burst=10)

    def get_request(self) -> Any:
        """Accept a connection.  After a failure (no free descriptor) it waits, or the loop would use a whole core."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(RETRY_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread, or close the connection if there are too many."""
        if len(self._ends) >= MAX_CONNECTIONS:
            self._refused.labels("connections").inc()
            self.shutdown_request(request)
            return
        self._ends[request] = time.monotonic() + CONNECTION_LIMIT_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close and forget a connection."""
        self._ends.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Shut down connections past their limit, which wakes the threads that wait on them.  Called twice a second."""
        now = time.monotonic()
        for request, end in self._ends.copy().items():
            if end <= now and self._ends.pop(request, None) is not None:
                self._refused.labels("slow").inc()
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore client disconnects; log other errors at a limited rate, so that bad requests cannot fill the disk."""
        if not isinstance(sys.exception(), OSError) and self._complaints.spend(time.monotonic()):
            log.warning("a request for metrics failed", exc_info=True)


def refusal_counter(registry: CollectorRegistry) -> Counter:
    """Metric of connections that the port closed without an answer."""
    text = "Connections to the metrics port closed without an answer: too many, or too slow."
    counter = Counter("trimtab_metrics_refused_connections", text, ["reason"], registry=registry)
    return from_zero(counter, ("connections", "slow"))


def serve_metrics(
    listen: Listen, registry: CollectorRegistry, labels: Mapping[str, str], checks: Mapping[str, Check] = NO_CHECKS
) -> MetricsServer:
    """Start the server in its own thread, with the figures of this process (`process_cpu_seconds_total` and others).

    `labels` are added to every series; `checks` answer on paths of their own.  Raises OSError with a one-line message
    that names the address.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter
    ProcessCollector(registry=registry)
    try:
        server = MetricsServer(listen, registry, labels, checks)
    except OSError as exc:
        place = f"{listen.address}:{listen.port}"
        raise OSError(f"metrics.listen: found {place}, which cannot be used: {exc.strerror or exc}") from exc
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


class Followed(Counter):
    """Mirrors a total that is kept elsewhere.  When that total restarts at zero, Prometheus sees a counter reset."""

    def follow(self, count: int) -> None:
        """Set the total."""
        self._value.set(count)


def from_zero(metric: M, *values: Iterable[str]) -> M:
    """The metric, at zero for each combination of these values of its labels.

    A counter that appears with its first event shows no increase, so no alert would see that event.
    """
    for combination in product(*values):
        metric.labels(*combination)
    return metric
