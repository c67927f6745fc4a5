"""`trimtab controller run`: runs the controller as a process."""

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from confluent_kafka import KafkaException

from trimtab_controller.configuration import BadConfiguration, Configuration, load
from trimtab_controller.kafka.connection import Connection, MissingTopicsError
from trimtab_controller.kafka.publisher import FencedError, PublicationError
from trimtab_controller.leadership.driver import Candidacy, LeaseView
from trimtab_controller.leadership.group import MembershipError, own_name
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop.health import Health
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_controller.loop.run import ControllerRun
from trimtab_controller.loop.stream_process import StreamProcess, stream_command
from trimtab_process.logs import PlainFormatter, log_to_stderr
from trimtab_process.metrics_port import serve_metrics
from trimtab_process.service_manager import ServiceManager
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.keys import BadKey

log = logging.getLogger(__name__)

STREAM_MODULES = ("pyarrow", "pyspark", "zstandard")
ENDED, FAILED, BAD_CONFIGURATION, FENCED = 0, 1, 2, 3


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 ended by a signal, 1 a fault, 2 bad configuration, 3 another dry run has taken over."""
    log_to_stderr(PlainFormatter())
    try:
        configuration = load(args.config)
    except BadConfiguration as error:
        print(f"trimtab controller: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    _check_stream_modules(configuration)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        (_act if args.act else _look_on)(configuration, args.config, stopped.is_set)
    except BadKey as error:
        print(f"trimtab controller: signing: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    except FencedError as error:
        print(f"trimtab controller: {error}; this controller ends", file=sys.stderr)
        return FENCED
    except (PublicationError, MissingTopicsError, MembershipError, OSError) as error:
        print(f"trimtab controller: {error}", file=sys.stderr)
        return FAILED
    except KafkaException as error:
        print(f"trimtab controller: Kafka: {error.args[0].str()}", file=sys.stderr)
        return FAILED
    return ENDED


def _check_stream_modules(configuration: Configuration) -> None:
    """Raise ModuleNotFoundError now for packages that the stream's process would miss at each restart."""
    for name in STREAM_MODULES if configuration.stream.embedded else ():
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _serve(configuration: Configuration, health: Health) -> ProcessMetrics:
    metrics = ProcessMetrics()
    if (listen := configuration.metrics) is not None:
        serve_metrics(listen, metrics.registry, {"cluster": configuration.cluster}, health.checks())
        log.info("metrics and health on %s:%d", listen.address, listen.port)
    return metrics


def _noting(health: Health, stopping: Callable[[], bool]) -> Callable[[], bool]:
    """`stopping`, which is asked in each turn and in each wait, and so tells that the process is not stuck."""
    manager = ServiceManager()

    def asked() -> bool:
        health.turned()
        manager.tell(lambda: health.ready().text)
        return stopping()

    return asked


def _look_on(configuration: Configuration, path: Path, stopping: Callable[[], bool]) -> None:
    """Run a dry run; it sends no commands, so it takes no part in the election."""
    stream = StreamProcess(stream_command(path, acting=False)) if configuration.stream.embedded else None
    health = Health(configuration, stream)
    served, metrics = _serve(configuration, health), ControllerMetrics()
    served.show(metrics.registry)
    ControllerRun(
        configuration,
        acting=False,
        stopping=_noting(health, stopping),
        stream=stream,
        metrics=metrics,
        health=health,
    ).run()


def _act(configuration: Configuration, path: Path, stopping: Callable[[], bool]) -> None:
    settings = configuration.stream
    stream = StreamProcess(stream_command(path, acting=True), warm=settings.warm_standby) if settings.embedded else None
    warm = stream if settings.warm_standby else None
    health = Health(configuration, stream)
    served = _serve(configuration, health)
    if configuration.signing is not None:
        configuration.signing.load()  # a standby reports a bad key now, not when it takes over

    def new_term(lease: LeaseView) -> ControllerRun:
        metrics = ControllerMetrics()
        served.show(metrics.registry)
        return ControllerRun(
            configuration,
            acting=True,
            stopping=lease.over,
            suspended=lease.suspended,
            stream=stream,
            name=own_name(),
            metrics=metrics,
            health=health,
        )

    candidacy = Candidacy(
        Connection(kafka=configuration.kafka),
        Topics(configuration.cluster),
        configuration.lease_s,
        new_term=new_term,
        metrics=served,
        stopping=_noting(health, stopping),
        tend=warm.tick if warm is not None else lambda: None,
    )
    health.follow(candidacy)
    try:
        candidacy.run()
    finally:
        if stream is not None:
            stream.close()
