"""`trimtab console`: reads the topics in threads of its own, and serves pages and API."""

import argparse
import logging
import sys
import threading
import time

import uvicorn
from confluent_kafka import KafkaException

from trimtab_console.api.source import Source
from trimtab_console.configuration import BadConfiguration, Configuration, load
from trimtab_console.reader import Reader
from trimtab_console.server import application
from trimtab_console.watch import Watch
from trimtab_controller.kafka.connection import Connection
from trimtab_process.credential_files import load_trust
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.keys import BadKey

log = logging.getLogger(__name__)

ENDED, FAILED, BAD_CONFIGURATION = 0, 1, 2
END_LIMIT_S = 3
"""How long open connections may last when the console ends."""
MAX_CONNECTIONS = 200
"""Connections that are served at the same time."""


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        configuration = load(args.config)
        trusted = load_trust(configuration.trust_file) if configuration.trust_file else None
    except (BadConfiguration, BadKey) as error:
        print(f"trimtab console: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    stopped, topics = threading.Event(), Topics(configuration.cluster)
    watch = Watch(topics, time.time, trusted=trusted)
    try:
        threads = Reader(Connection(kafka=configuration.kafka), topics, watch, stopped.is_set).start()
    except KafkaException as error:
        print(f"trimtab console: Kafka: {error.args[0].str()}", file=sys.stderr)
        return FAILED
    served = _serve(configuration, watch, stopped)
    stopped.set()
    for thread in threads:
        thread.join(END_LIMIT_S)
    return ENDED if served else FAILED


def _serve(configuration: Configuration, watch: Watch, stopped: threading.Event) -> bool:
    """Serve until a signal; whether it could listen."""
    listen = configuration.listen

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: object) -> None:
            # Uvicorn's own would raise the signal again at the end, and so take the exit code.
            stopped.set()  # ends the open streams, for which uvicorn waits
            self.should_exit = True

    source = Source(cluster=configuration.cluster, watch=watch, clock=time.time, stopping=stopped.is_set)
    server = Server(
        uvicorn.Config(
            application(source, configuration.hosts),
            host=listen.address,
            port=listen.port,
            access_log=False,
            log_config=None,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=END_LIMIT_S,
        )
    )
    where = f"[{listen.address}]" if ":" in listen.address else listen.address
    log.info("console of cluster %s: http://%s:%d/", configuration.cluster, where, listen.port)
    try:
        server.run()
    except SystemExit:  # it cannot listen, and has said why
        return False
    return True
