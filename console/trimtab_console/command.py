"""`trimtab console`: reads the topics in threads of its own, and serves pages and API."""

import argparse
import logging
import ssl
import sys
import threading
import time
from functools import partial

import uvicorn
from confluent_kafka import KafkaException

from trimtab_console.access.entrance import Entrance
from trimtab_console.access.tokens import TokenFile
from trimtab_console.api.source import Source
from trimtab_console.configuration import ConsoleConfiguration, ConsoleTls, literal, load
from trimtab_console.connection import BrowserConnection, FewFaults, Loop
from trimtab_console.desk import Desk
from trimtab_console.reader import Reader
from trimtab_console.server import application
from trimtab_console.watch import Known, Watch
from trimtab_console.why import Explainer, TopicsLook
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.intents import write_intents
from trimtab_process.credential_files import load_trust
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED, refuse
from trimtab_process.logs import fields, log_to_stderr
from trimtab_process.private_files import read_private
from trimtab_process.service_manager import ServiceManager
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.keys import BadKey

log = logging.getLogger(__name__)

END_LIMIT_S = 3
"""How long open connections may last when the console ends."""
WRITE_LIMIT_S = 10.0
"""How long a change waits until the broker has stored it."""
NOTIFY_S = 1
"""How often the server's loop looks whether systemd is to be told that it still turns."""


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; the exit code."""
    if args.config is None:
        return refuse("trimtab console", "name the configuration: --config console.toml", BAD_USAGE)
    try:
        configuration = load(args.config)
        trusted = load_trust(configuration.trust_file) if configuration.trust_file else None
        tokens = TokenFile(configuration.tokens, time.time) if configuration.tokens else None
        if configuration.tls is not None:
            check_tls(configuration.tls)
    except (BadConfiguration, BadKey) as error:
        return refuse("trimtab console", str(error), BAD_USAGE)
    log_to_stderr()
    stopped, topics, connection = (
        threading.Event(),
        Topics(configuration.cluster),
        Connection(kafka=configuration.kafka),
    )
    watch = Watch(topics, time.time, trusted=trusted)
    write = partial(write_intents, connection, topics, limit_s=WRITE_LIMIT_S)
    source = Source(
        cluster=configuration.cluster,
        watch=watch,
        clock=time.time,
        stopping=stopped.is_set,
        entrance=Entrance(tokens, time.time),
        desk=Desk(watch, write, time.time),
        explainer=Explainer(watch, TopicsLook(configuration.cluster, connection, watch, trusted), time.time),
    )
    try:
        threads = Reader(connection, topics, watch, stopped.is_set).start()
    except KafkaException as error:
        print(f"trimtab console: Kafka: {error.args[0].str()}", file=sys.stderr)
        return FAILED
    served = _serve(configuration, source, stopped)
    stopped.set()
    for thread in threads:
        thread.join(END_LIMIT_S)
    return DONE if served else FAILED


def check_tls(tls: ConsoleTls) -> None:
    """Raises BadConfiguration unless the files are a certificate and its key, which only its owner may read."""
    try:
        read_private(tls.key)
        tls.certificate.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except ssl.SSLError as error:
        expected = "a certificate and its key, both PEM, the key not encrypted"
        raise BadConfiguration(f"{tls.certificate}, {tls.key}: {error.reason or error}, expected {expected}") from error
    except OSError as error:
        raise BadConfiguration(f"{error.filename or tls.key}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{tls.key}: not PEM: {error}") from error


def _no_password() -> str:
    """Else OpenSSL would ask for one on the terminal."""
    return ""


def settings_of(configuration: ConsoleConfiguration, source: Source) -> uvicorn.Config:
    """How the server is to serve this source."""
    tls = configuration.tls
    manager = ServiceManager()

    async def tell() -> None:
        manager.tell(lambda: in_a_line(source.cluster, source.watch.known, source.clock()))

    return uvicorn.Config(
        application(source, (*configuration.hosts, literal(configuration.address))),
        host=configuration.address,
        port=configuration.port,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
        access_log=False,
        log_config=None,
        server_header=False,
        http=BrowserConnection,
        loop=f"{Loop.__module__}:{Loop.__name__}",
        proxy_headers=False,  # who sends them would choose the address that limits and log go by
        timeout_graceful_shutdown=END_LIMIT_S,
        callback_notify=tell,
        timeout_notify=NOTIFY_S,
    )


def _serve(configuration: ConsoleConfiguration, source: Source, stopped: threading.Event) -> bool:
    """Serve until a signal; whether it could listen."""

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: object) -> None:
            # Uvicorn's own would raise the signal again at the end, and so take the exit code.
            stopped.set()  # ends the open streams, for which uvicorn waits
            self.should_exit = True

    logging.getLogger("uvicorn.error").addFilter(FewFaults())
    server = Server(settings_of(configuration, source))
    access = "by token" if source.entrance.asks_for_tokens else "anybody on this machine reads, nobody changes anything"
    log.info("console listens", **fields(cluster=configuration.cluster, address=configuration.url, access=access))
    try:
        server.run()
    except SystemExit:  # it cannot listen, and has said why
        return False
    return True


def in_a_line(cluster: str, known: Known, now: float) -> str:
    """What the console knows of the cluster, for systemd."""
    if known.fault is not None:
        return f"the topics of cluster {cluster} cannot be read: {known.fault}"
    if not known.read:
        return f"reads the topics of cluster {cluster}"
    seen = known.seen(now)
    if seen is None:
        return f"no controller has reported on cluster {cluster} yet"
    return f"shows cluster {cluster}; the last status is {seen.silent_s:.0f} s old"
