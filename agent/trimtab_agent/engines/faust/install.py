"""`install(app)`: adds the plug-in to a Faust app."""

import functools
import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faust.exceptions import AlreadyConfiguredWarning
from faust.tables.wrappers import WindowWrapper
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth, server_list

from trimtab_agent.engines.faust.agent_link import Link
from trimtab_agent.engines.faust.group.assignor import PlacementAssignor
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.measure import Collector, KeyGroupSensor
from trimtab_agent.engines.faust.private_names import complaints
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.faust.steering.steering import FaustSteering
from trimtab_agent.engines.faust.transport.client import Connection
from trimtab_agent.engines.faust.transport.steered import SteeredTransport
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.messages.decode import NAME_PATTERN
from trimtab_protocol.messages.names import AppId, OperatorId, WorkerId
from trimtab_protocol.signing.keys import BadKey

log = logging.getLogger(__name__)

Operators = Mapping[str, Iterable[Any]]
"""Operator name -> its topics and tables, or their names."""


class NotConfigured(Exception):
    """An environment variable that the plug-in needs is missing or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """The parts that `install` added to the app."""

    steering: FaustSteering
    sensor: KeyGroupSensor


def install(app: Any, *, operators: Operators | None = None, settings: SteeringSettings | None = None) -> Plugin:
    """Let Trimtab measure and move this app's key groups.

    Call it once, anywhere between `faust.App(...)` and the start of the worker.  `operators` names topics and tables
    that belong together; all others form one operator per partition count.  Raises NotConfigured.

    Environment variables:

    - TRIMTAB_CLUSTER: name of the cluster.
    - TRIMTAB_WORKER: unique name of this process.
    - TRIMTAB_SOCKET: the agent's socket.  Without it the worker is steered by the placement alone.
    - TRIMTAB_TRUST: file of the keys that may sign placements.  Without it placements are not verified.
    """
    cluster, worker = _named("TRIMTAB_CLUSTER"), WorkerId(_named("TRIMTAB_WORKER"))
    shared = PluginState(cluster=cluster, app=AppId(app.conf.id), worker=worker, trust=_trust())
    shared.faust_standbys = app.conf.table_standby_replicas
    chosen = settings or SteeringSettings()
    steering = FaustSteering(
        app,
        shared,
        connection=_connection(app),
        named_topics=lambda: _topics(operators or {}),
        unfit_tables=lambda: unfit_tables(app),
        settings=chosen,
    )
    sensor = KeyGroupSensor(app)
    app.sensors.add(sensor)
    if reasons := [*complaints(), *unfit(app)]:
        shared.refuse("; ".join(reasons))
    else:
        _steer(app, shared, steering, chosen)
    if socket := os.environ.get("TRIMTAB_SOCKET"):
        collector = Collector(sensor, steering.status, worker=worker)
        options = {"app": shared.app, "worker": worker, "socket": Path(socket)}
        app.service(_link(executor=steering.executor, status=steering.status, collector=collector, **options))
    return Plugin(steering=steering, sensor=sensor)


def unfit(app: Any) -> Iterator[str]:
    """The app's settings that make steering impossible, each with the reason."""
    conf = app.conf
    if conf.processing_guarantee.value != "at_least_once":
        yield "processing_guarantee: exactly_once derives transactional ids from partitions, which move independently"
    if conf.stream_publish_on_commit:
        yield "stream_publish_on_commit: outputs would be published by a worker that has given the key group away"
    if conf.producer_threaded:
        yield "producer_threaded: its buffer cannot be flushed up to a mark"
    if not conf.stream_wait_empty:
        yield "stream_wait_empty=False: begun events would be processed twice"
    if conf.consumer_auto_offset_reset != "earliest":
        yield f"consumer_auto_offset_reset={conf.consumer_auto_offset_reset!r}: uncommitted events would be lost"
    if conf.consumer_group_instance_id:
        yield "consumer_group_instance_id: a static member keeps its key groups while it is away"
    if conf.broker_consumer[0].scheme not in ("kafka", "aiokafka"):
        yield f"broker driver {conf.broker_consumer[0].scheme!r}: expected kafka:// (aiokafka)"


def unfit_tables(app: Any) -> Iterator[str]:
    """The app's tables that make steering impossible, each with the reason."""
    for name, table in app.tables.items():
        if table.is_global:
            yield f"table {name}: a global table is on every worker"
        elif table.use_partitioner:
            yield f"table {name}: use_partitioner writes to other partitions than the event's"
        elif not getattr(table.data, "use_rocksdict", False):
            yield f"table {name}: store {table.data.url}, expected rocksdb:// with rocksdict (state on disk)"


def _steer(app: Any, shared: PluginState, steering: FaustSteering, settings: SteeringSettings) -> None:
    fence = Fence(app.conf.broker_session_timeout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlreadyConfiguredWarning)  # the worker has not started, nothing uses them yet
        app.conf.table_standby_replicas = 0  # standbys follow the placement, not Faust
        app.conf.PartitionAssignor = functools.partial(PlacementAssignor, shared)
    app.transport = SteeredTransport(app, fence=fence, settings=settings, watcher=steering.watcher)
    fence.guard(app.flow_control)

    stop_consumer = app._stop_consumer

    async def finish_and_stop() -> None:
        if fence.broken:
            return  # begun events must not be finished, and waiting for them would never end
        if app._consumer is not None:
            await app._consumer.finish()
        await stop_consumer()

    app._stop_consumer = finish_and_stop

    async def close(*_: Any, **__: Any) -> None:
        await steering.close()

    app.on_before_shutdown.connect(close, weak=False)


def _link(**options: Any) -> type[Link]:
    """A service class for the app.  Faust starts it after tables are restored, when the worker's state is known."""

    class AgentLink(Link):
        def __init__(self, **service: Any) -> None:
            super().__init__(**options, **service)

    return AgentLink


def _connection(app: Any) -> Connection:
    conf, transport = app.conf, SteeredTransport
    return {
        "bootstrap_servers": server_list(conf.broker_consumer, transport.default_port),
        "client_id": f"{conf.broker_client_id}-trimtab",
        "request_timeout_ms": int(conf.broker_request_timeout * 1000),
        **credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
    }


def _topics(operators: Operators) -> dict[OperatorId, frozenset[str]]:
    for name in operators:
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError(f"operators: found name {name!r}, expected letters, digits, '.', '_', '-'")
    return {
        OperatorId(name): frozenset(topic for part in parts for topic in _topics_of(part))
        for name, parts in operators.items()
    }


def _topics_of(part: Any) -> Iterable[str]:
    if isinstance(part, str):
        return [part]
    if isinstance(part, WindowWrapper):
        part = part.table
    if hasattr(part, "changelog_topic_name"):
        return [part.changelog_topic_name]
    return list(part.topics)


def _trust() -> TrustFile | None:
    path = os.environ.get("TRIMTAB_TRUST")
    if not path:
        log.warning(
            "placements are not verified: anyone who can write to their topic can move key groups; see TRIMTAB_TRUST"
        )
        return None
    try:
        return TrustFile(Path(path))
    except BadKey as error:
        raise NotConfigured(f"environment variable TRIMTAB_TRUST: {error}") from error


def _named(variable: str) -> str:
    found = os.environ.get(variable, "")
    if not NAME_PATTERN.fullmatch(found):
        raise NotConfigured(f"environment variable {variable}: found {found!r}, expected a name")
    return found
