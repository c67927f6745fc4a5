"""Connection settings and retry loop of the plug-in's own Kafka clients, and how all clients of a worker reconnect."""

import asyncio
import copy
import functools
import logging
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
)

from trimtab_agent.engines.faust.credentials import TLS_FILES
from trimtab_agent.engines.faust.transport.metadata import silence_of
from trimtab_protocol.messages.rate_limit import RateLimit
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

RETRY_S = 1.0
ASK_AGAIN_S = 3.0
"""Pause between two attempts to be answered."""
FIRST_WORD_S, LAST_WORD_S = 5.0, 80.0
"""How long a worker waits for brokers before it says so, and the longest pause between two lines; it doubles."""
PROBE_S = 3.0
"""How long a broker may take to answer a new connection."""
CONNECT = "connect"
"""What a worker needs brokers for from its start until its consumer subscribes, unless it is something else."""
NO_ANSWER = (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError, TimeoutError)

Connection = Mapping[str, Any]
"""Bootstrap servers and security settings of an aiokafka client."""


class NotPlain(Exception):
    """Settings that cannot be given to another process; the message says which."""


async def as_plain_data(connection: Connection) -> dict[str, Any]:
    """The settings for another process: files in the place of a TLS context, a token in the place of a provider.

    Raises NotPlain for a context that the app has made itself, and what a provider of tokens raises.
    """
    plain = dict(connection)
    if (context := plain.pop("ssl_context", None)) is not None:
        if (files := TLS_FILES.get(context)) is None:
            raise NotPlain("the app has made its TLS context itself, and not by broker_options")
        plain["tls"] = {"ca": files.ca, "certificate": files.certificate, "key": files.key}
    if (provider := plain.pop("sasl_oauth_token_provider", None)) is not None:
        plain["token"] = {"value": await provider.token(), "extensions": provider.extensions()}
    return plain


async def for_ever(work: Callable[[], Awaitable[None]], complaint: str) -> None:
    """Repeat the work until cancelled, whatever it raises.  Logs at most one error a minute."""
    complaints = RateLimit(rate=1 / 60, burst=1)
    while True:
        try:
            await work()
        except Exception as error:
            if complaints.spend(time.monotonic()):
                log.warning("%s: %r", complaint, error)
        await asyncio.sleep(RETRY_S)


def until_answered(
    ask: Callable[P, Awaitable[R]], *, limit_s: float | None = None, reset: Callable[[], None] = lambda: None
) -> Callable[P, Awaitable[R]]:
    """`ask`, repeated until the brokers answer; `BrokerWaits` says who does not.

    `reset` is called after an attempt that took `limit_s`: what it asked on may be dead.
    """

    @functools.wraps(ask)
    async def ask_again(*arguments: P.args, **options: P.kwargs) -> R:
        while True:
            try:
                async with asyncio.timeout(limit_s) as attempt:
                    return await ask(*arguments, **options)
            except NO_ANSWER as error:
                log.info("no answer from Kafka, the next attempt is in %g s: %r", ASK_AGAIN_S, error)
            if attempt.expired():
                reset()
            await asyncio.sleep(ASK_AGAIN_S)

    return ask_again


class BrokerWaits:
    """Says, less and less often, which brokers a worker waits for, and what for (patch brokers-awaited).

    `client` returns one that knows the brokers.  Everything runs on its event loop.
    """

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client
        self._telling: asyncio.Task[None] | None = None

    def begin(self, what: str | None) -> None:
        """From now on it is `what` that needs the brokers; None: nothing does."""
        if self._telling is not None:
            self._telling.cancel()
        self._telling = None if what is None else asyncio.ensure_future(self._tell(what))

    async def _tell(self, what: str) -> None:
        began, pause_s = time.monotonic(), FIRST_WORD_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_WORD_S)
            if silent := await silent_brokers(self._client()):
                log.warning("waiting for Kafka to %s, for %.0f s: %s", what, time.monotonic() - began, silent)


async def silent_brokers(client: Any, among: Collection[int] | None = None) -> str | None:
    """Which of these (all) brokers do not answer, as operators know them; None: all do."""
    if client._sync_task is None:  # it knows none yet
        return f"no broker answers at {first_few(sorted({f'{host}:{port}' for host, port, _ in client.hosts}))}"
    asked = sorted({broker.nodeId for broker in client.cluster.brokers()} if among is None else among)
    answered = await asyncio.gather(*(answers(client, broker, PROBE_S) for broker in asked))
    silent = [silence_of(client.cluster, broker) for broker, here in zip(asked, answered, strict=True) if not here]
    return first_few([each for each in silent if each is not None]) if silent else None


def ask_bootstrap_servers_again() -> None:
    """Let clients go on after all brokers that they know have got new addresses (patch bootstrap-again)."""
    ask: Any = AIOKafkaClient._metadata_update
    if hasattr(ask, "__wrapped__"):
        return

    @functools.wraps(ask)
    async def ask_known_brokers_first(client: Any, metadata: Any, topics: Collection[str]) -> bool:
        if await ask(client, metadata, topics):
            return True
        if client._sync_task is None:  # not started, or closed
            return False
        other = _apart(client)  # so that this one's metadata stays whole while another broker is asked
        other.cluster = ClusterMetadata(metadata_max_age_ms=client._metadata_max_age_ms)
        try:
            await other.bootstrap()
            updated: bool = await ask(other, metadata, topics)
        except KafkaError:
            return False
        finally:
            await other.close()
        return updated

    AIOKafkaClient._metadata_update = ask_known_brokers_first


def _apart(client: Any) -> Any:
    """A client with the same settings and connections of its own; to be closed."""
    other = copy.copy(client)
    for method in [name for name in vars(other) if hasattr(AIOKafkaClient, name)]:
        delattr(other, method)  # wrapped by the producer, for this client and its metadata
    other._conns, other._get_conn_lock_value, other._sync_task = {}, None, None
    return other


async def answers(client: Any, broker: int, limit_s: float) -> bool:
    """Whether a broker of the client's metadata takes a new connection within `limit_s`."""
    other = _apart(client)
    try:
        async with asyncio.timeout(limit_s):
            return bool(await other.ready(broker))
    except TimeoutError:
        return False
    finally:
        await other.close()


def reset_connections(client: Any) -> None:
    """End all connections now: of what the other side does not have yet nothing is sent, not by the kernel either."""
    for connection in list(client._conns.values()):
        if connection._writer is not None:
            linger = struct.pack("ii", 1, 0)
            connection._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection._writer.transport.abort()
            connection.close()
