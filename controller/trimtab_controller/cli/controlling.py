"""The controller in this process, once its configuration is known to be good and its stream starts.

`cli.controller` imports it then: that takes a second of CPU, in which Spark can start.
"""

import logging
import sys
from collections.abc import Callable

from confluent_kafka import KafkaException

from trimtab_controller.configuration import Configuration
from trimtab_controller.kafka.connection import Connection, MissingTopicsError
from trimtab_controller.kafka.publisher import FencedError, PublicationError
from trimtab_controller.leadership.driver import Candidacy
from trimtab_controller.leadership.group import MembershipError, own_name
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop.health import Health
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_controller.loop.run import ControllerRun
from trimtab_controller.loop.stream_process import StreamProcess
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED, FENCED
from trimtab_process.metrics_port import serve_metrics
from trimtab_process.service_manager import ServiceManager
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.keys import BadKey

log = logging.getLogger(__name__)


def control(
    configuration: Configuration, stream: StreamProcess | None, stopping: Callable[[], bool], *, acting: bool
) -> int:
    """Run until `stopping`; the exit code of `cli.controller.run`."""
    try:
        (_act if acting else _look_on)(configuration, stream, stopping)
    except BadKey as error:
        print(f"trimtab controller: signing: {error}", file=sys.stderr)
        return BAD_USAGE
    except FencedError as error:
        print(f"trimtab controller: {error}; this controller ends", file=sys.stderr)
        return FENCED
    except (PublicationError, MissingTopicsError, MembershipError, OSError) as error:
        print(f"trimtab controller: {error}", file=sys.stderr)
        return FAILED
    except KafkaException as error:
        print(f"trimtab controller: Kafka: {error.args[0].str()}", file=sys.stderr)
        return FAILED
    return DONE


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


def _look_on(configuration: Configuration, stream: StreamProcess | None, stopping: Callable[[], bool]) -> None:
    """Run a dry run; it sends no commands, so it takes no part in the election."""
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


def _act(configuration: Configuration, stream: StreamProcess | None, stopping: Callable[[], bool]) -> None:
    warm = stream if configuration.stream.warm_standby else None
    health = Health(configuration, stream)
    served = _serve(configuration, health)
    if configuration.signing is not None:
        configuration.signing.load()  # a standby reports a bad key now, not when it takes over

    def new_term(lease: Candidacy) -> ControllerRun:
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
    candidacy.run()
