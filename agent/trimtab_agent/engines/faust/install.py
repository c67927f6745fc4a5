"""`install(app)`: adds the plug-in to a Faust app."""

import functools
import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import faust
from faust.assignor.partition_assignor import PartitionAssignor
from faust.exceptions import AlreadyConfiguredWarning
from faust.tables.wrappers import WindowWrapper
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth, server_list

from trimtab_agent.engines.faust.agent_link import AgentConnection
from trimtab_agent.engines.faust.collect import Collector
from trimtab_agent.engines.faust.group.assignor import PlacementAssignor
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.local.consumer import LocalSensor, LocalTransport
from trimtab_agent.engines.faust.local.hop import LocalHop, LocalSettings, local_hop
from trimtab_agent.engines.faust.measure import KeyGroupSensor
from trimtab_agent.engines.faust.private_names import complaints
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.safety.open_files import raise_limit
from trimtab_agent.engines.faust.settings import InPlace, SteeringSettings
from trimtab_agent.engines.faust.steering.steering import FaustSteering
from trimtab_agent.engines.faust.transport.chained import gathered
from trimtab_agent.engines.faust.transport.client import Connection, ask_bootstrap_servers_again
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer, SteeredTransport
from trimtab_agent.engines.faust.transport.in_place import HEARTBEATS, in_place_rebalance_s
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.messages.decode import MAX_NAME, NAME_PATTERN
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
    hop: LocalHop | None = None
    """The local hop; None if no topic is local."""


def install(
    app: Any,
    *,
    operators: Operators | None = None,
    settings: SteeringSettings | None = None,
    local: Iterable[Any] = (),
    local_settings: LocalSettings | None = None,
) -> Plugin:
    """Let Trimtab measure and move this app's key groups.

    Call it once, anywhere between `faust.App(...)` and the start of the worker.  `operators` names topics and tables
    that belong together; all others form one operator per partition count.  `local` = topics whose events skip the
    broker where their reader runs in the same worker, see `local`.  Raises NotConfigured, and ValueError for a topic
    that cannot be local.

    Environment variables:

    - TRIMTAB_CLUSTER: name of the cluster.
    - TRIMTAB_WORKER: unique name of this process.
    - TRIMTAB_SOCKET: the agent's socket.  Without it the worker is steered by the placement alone.
    - TRIMTAB_TRUST: file of the keys that may sign placements.  Without it placements are not verified.
    """
    cluster, worker = _named("TRIMTAB_CLUSTER"), WorkerId(_named("TRIMTAB_WORKER"))
    raise_limit()
    os.environ["SPT_NOENV"] = "1"  # setproctitle, which Faust uses, erases the environment that the agent knows it by
    _speak_after_logging(app)
    shared = PluginState(cluster=cluster, app=AppId(app.conf.id), worker=worker, trust=_trust())
    shared.faust_standbys = app.conf.table_standby_replicas
    chosen = settings or SteeringSettings()
    steering = FaustSteering(
        app,
        shared,
        connection=_connection(app),
        named_topics=lambda: _topics(operators or {}),
        unfit_parts=lambda: (*unfit_settings(app), *unfit_tables(app), *unfit_agents(app), *unfit_topics(app)),
        settings=chosen,
    )
    hop, reasons = None, [*complaints(), *unfit(app)]
    if local_topics := _single_names(local):
        reasons += unfit_for_local(app)
        if not reasons:
            hop = local_hop(
                app,
                local_topics,
                connection=_connection(app),
                refused=lambda: shared.refusal is not None,
                tell=functools.partial(setattr, shared, "not_local"),
                settings=local_settings or LocalSettings(),
            )
    sensor = (
        KeyGroupSensor(app, gathered=gathered) if hop is None else LocalSensor(app, hop.take_direct, gathered=gathered)
    )
    app.sensors.add(sensor)
    if reasons:
        shared.refuse("; ".join(reasons))
    else:
        _steer(app, shared, steering, chosen, hop)
    if socket := os.environ.get("TRIMTAB_SOCKET"):
        collector = Collector(sensor, steering.status, worker=worker)
        options = {"app": shared.app, "worker": worker, "socket": Path(socket)}
        link = _link(app, executor=steering.executor, status=steering.status, collector=collector, **options)
        app._extra_services.insert(0, link)  # Faust starts one after the other: an own one may never have started
    return Plugin(steering=steering, sensor=sensor, hop=hop)


def unfit(app: Any) -> Iterator[str]:
    """What makes steering impossible before anything is installed, each with the reason."""
    yield from unfit_settings(app)
    if app.conf.PartitionAssignor is not PartitionAssignor:
        yield "PartitionAssignor: the plug-in assigns by the placement, not by one of the app's own"
    made = {"producer": app._producer, "consumer": app._consumer, "assignor": app.__dict__.get("assignor")}
    for name in [name for name, found in made.items() if found is not None]:
        yield f"app.{name}: used before install, so it is Faust's own (app.router uses the assignor)"


def unfit_settings(app: Any) -> Iterator[str]:
    """The app's settings that make steering impossible, each with the reason.  They may change until it starts."""
    conf = app.conf
    if not NAME_PATTERN.fullmatch(conf.id):
        yield f"id={conf.id!r}: expected letters, digits, '.', '_', '-', first a letter or digit, at most {MAX_NAME}"
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


def unfit_for_local(app: Any) -> Iterator[str]:
    """The app's settings with which no topic can be local, each with the reason."""
    if app.conf.producer_partitioner is not None:
        yield "producer_partitioner: with local topics, partitions must be those of the default partitioner"


def unfit_agents(app: Any) -> Iterator[str]:
    """The app's agents that make steering impossible, each with the reason."""
    for name, agent in app.agents.items():
        if agent.isolated_partitions:
            yield f"agent {name}: isolated_partitions starts and stops its actors at rebalances only"


def unfit_topics(app: Any) -> Iterator[str]:
    """The topics that the app reads and that make steering impossible, each with the reason."""
    own = {*app.tables.changelog_topics, app._leader_assignor._leader_topic_name}
    for topic in sorted({topic for channel in app.topics if not channel.acks for topic in channel.topics} - own):
        if not app.topics.acks_enabled_for(topic):  # by any other reader
            yield f"topic {topic}: with acks=False nobody knows which of its events are done"


def unfit_tables(app: Any) -> Iterator[str]:
    """The app's tables that make steering impossible, each with the reason."""
    readers = Counter(topic for channel in app.topics for topic in channel.topics)
    for name, table in app.tables.items():
        if table.is_global:
            yield f"table {name}: a global table is on every worker"
        elif table.use_partitioner:
            yield f"table {name}: use_partitioner writes to other partitions than the event's"
        elif isinstance(table, faust.SetTable):
            yield f"table {name}: a SetTable keeps its sets in memory"
        elif table._on_changelog_event is not None:
            yield f"table {name}: on_changelog_event is called at rebalances only, and not for standbys"
        elif not getattr(table.data, "use_rocksdict", False):
            yield f"table {name}: store {table.data.url}, expected rocksdb:// with rocksdict (state on disk)"
        elif table.data.rocksdb_options.ttl is not None:
            yield f"table {name}: with the option ttl, rows expire on each disk alone, and not in the changelog"
        elif readers[table.changelog_topic_name] > 1:
            yield f"table {name}: its changelog is read by an agent, or is another table's, too"


def _steer(
    app: Any, shared: PluginState, steering: FaustSteering, settings: SteeringSettings, hop: LocalHop | None
) -> None:
    settings = _may_be_in_place(app, settings, hop)
    fence = Fence(app.conf.broker_session_timeout)
    if settings.in_place is not InPlace.OFF:
        fence.rebalance_s = _rebalance_s(app)
    ask_bootstrap_servers_again()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlreadyConfiguredWarning)  # the worker has not started, nothing uses them yet
        app.conf.table_standby_replicas = 0  # standbys follow the placement, not Faust
        app.conf.PartitionAssignor = functools.partial(PlacementAssignor, shared)
    if hop is None:
        app.transport = SteeredTransport(app, fence=fence, settings=settings, watcher=steering.watcher)
    else:
        app.transport = LocalTransport(app, fence=fence, settings=settings, watcher=steering.watcher, hop=hop)

    stop_consumer = app._stop_consumer

    async def finish_and_stop() -> None:
        if fence.broken:
            return  # begun events must not be finished, and waiting for them would never end
        if isinstance(app._consumer, SteeredConsumer):
            await app._consumer.finish()
        await stop_consumer()

    app._stop_consumer = finish_and_stop

    async def close(*_: Any, **__: Any) -> None:
        await steering.close()

    app.on_before_shutdown.connect(close, weak=False)


def _speak_after_logging(app: Any) -> None:
    """Let Trimtab be heard where `logging_config` disables existing loggers, the default of `dictConfig`."""
    begin = app.on_first_start

    async def speak_and_begin() -> None:
        for name, logger in logging.root.manager.loggerDict.items():
            if name.startswith("trimtab_") and isinstance(logger, logging.Logger):
                logger.disabled = False
        await begin()

    app.on_first_start = speak_and_begin


def _may_be_in_place(app: Any, settings: SteeringSettings, hop: LocalHop | None) -> SteeringSettings:
    """The settings, without `in_place` where it cannot be."""
    conf, reason = app.conf, None
    if settings.in_place is InPlace.OFF:
        return settings
    if hop is not None:
        reason = "local topics are not played over it"
    elif _rebalance_s(app) >= conf.broker_request_timeout:
        reason = (
            f"broker_request_timeout={conf.broker_request_timeout:g}: expected more than {_rebalance_s(app):g} s, the "
            f"longest of broker_rebalance_timeout, and broker_session_timeout and {HEARTBEATS} heartbeats"
        )
    if reason is None:
        return settings
    log.warning("this worker does not rejoin its group in place: %s", reason)
    return replace(settings, in_place=InPlace.OFF)


def _rebalance_s(app: Any) -> float:
    conf = app.conf
    return in_place_rebalance_s(
        conf.broker_rebalance_timeout, conf.broker_session_timeout, conf.broker_heartbeat_interval
    )


def _link(faust_app: Any, **options: Any) -> type[AgentConnection]:
    """A service class for the app.  Faust starts it after tables are restored, when the worker's state is known."""

    class AgentLink(AgentConnection):
        def __init__(self, **service: Any) -> None:
            super().__init__(**options, **service)

        async def start(self) -> None:
            """Connect, unless this is a program that only asks or sends: it is no worker."""
            if not (faust_app.client_only or faust_app.producer_only):
                await super().start()

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
        tables = [part.table, *([part.key_index_table] if part.key_index_table is not None else [])]
        return [table.changelog_topic_name for table in tables]
    if hasattr(part, "changelog_topic_name"):
        return [part.changelog_topic_name]
    return list(part.topics)


def _single_names(local: Iterable[Any]) -> list[str]:
    found = [[topic] if isinstance(topic, str) else list(topic.topics) for topic in local]
    for topics in found:
        if len(topics) != 1:
            raise ValueError(f"local: found {topics!r}, expected topics with one name each, and no pattern")
    return [topics[0] for topics in found]


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
        told = f"found {found!r}, expected a name" if found else "not set; a test of the app may set any name"
        raise NotConfigured(f"environment variable {variable}: {told}")
    return found
