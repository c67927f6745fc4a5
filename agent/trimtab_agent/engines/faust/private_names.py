"""The private names of Faust, aiokafka and mode that the plug-in uses, checked when the worker starts.

If a package has another version than the patches were tested with, or if a name is gone, the plug-in reports but does
not steer.  `patches.py` says what each patch repairs.
"""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import aiokafka
import aiokafka.client
import aiokafka.cluster
import aiokafka.consumer.fetcher
import aiokafka.consumer.group_coordinator
import aiokafka.consumer.subscription_state
import faust.assignor.leader_assignor
import faust.assignor.partition_assignor
import faust.stores.rocksdb
import faust.streams
import faust.tables.manager
import faust.tables.recovery
import faust.tables.table
import faust.transport.conductor
import faust.transport.consumer
import faust.transport.drivers.aiokafka
import faust.transport.producer
import mode.utils.queues
from aiokafka.conn import AIOKafkaConnection
from aiokafka.producer.message_accumulator import MessageAccumulator, MessageBatch
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.produce import ProduceRequest
from faust.agents.replies import ReplyConsumer

from trimtab_agent.engines.faust.patches import Patch

VERSIONS = {"faust-streaming": "0.15.3", "aiokafka": "0.14.0", "mode-streaming": "0.7.1", "rocksdict": "0.3.29"}


@dataclass(frozen=True, slots=True)
class Private:
    """Private names of one class, and what needs them.

    `patches` = the patches that use them, `why` = what else uses them.  `calls` = methods, each with the parameters
    with which it is called or overridden.
    """

    owner: type
    patches: tuple[Patch, ...] = ()
    why: str = ""
    names: tuple[str, ...] = ()
    calls: tuple[tuple[str, tuple[str, ...]], ...] = ()


CONSUMER = faust.transport.drivers.aiokafka.Consumer
THREAD = faust.transport.drivers.aiokafka.AIOKafkaConsumerThread
COORDINATOR = aiokafka.consumer.group_coordinator.GroupCoordinator
STATE = aiokafka.consumer.subscription_state

PRIVATES: tuple[Private, ...] = (
    Private(
        CONSUMER,
        (
            Patch.FIXED_PARTITIONS,
            Patch.OFFSETS_KEPT,
            Patch.LAST_COMMIT,
            Patch.SEEK_FIRST,
            Patch.FLOW_STOPPED,
            Patch.IDLE_WORKER,
            Patch.BEGUN_EVENTS,
            Patch.FIRST_GAP,
            Patch.STANDS,
            Patch.LATE_WRITE,
        ),
        "blocking of single partitions",
        (
            *("_acked", "_acked_index", "_read_offset", "_committed_offset", "_unacked_messages", "_commit_fut"),
            *("_active_partitions", "_paused_partitions", "_buffered_partitions", "_on_partitions_revoked", "_thread"),
            *("_commit_every", "_n_acked", "scheduler", "callback", "suspend_flow"),
        ),
        (
            ("_drain_messages", ("fetcher",)),
            ("_getmany", ("active_partitions", "timeout")),
            ("_clean_unacked_messages", ()),
            ("_new_offset", ("tp",)),
            ("_commit", ("offsets",)),
            ("_commit_tps", ("tps", "start_new_transaction")),
            ("_to_message", ("tp", "record")),
            ("_is_changelog_tp", ("tp",)),
            ("_get_active_partitions", ()),
            ("_new_consumer_thread", ()),
            ("on_partitions_revoked", ("revoked",)),
            ("on_partitions_assigned", ("assigned", "generation_id")),
            ("perform_seek", ()),
            ("commit_and_end_transactions", ()),
        ),
    ),
    Private(
        THREAD,
        (Patch.FENCE, Patch.STATE_FAILS, Patch.QUESTIONS_APART, Patch.AWAITED),
        "shorter long polls; the plug-in's assignor also without tables",
        ("_consumer", "_assignor"),
        (
            ("_create_worker_consumer", ("transport",)),
            ("_ensure_consumer", ()),
            ("_fetch_records", ("consumer", "active_partitions", "timeout", "max_records")),
            ("_highwaters", ("partitions",)),
            ("commit", ("offsets",)),
            ("on_thread_stop", ()),
        ),
    ),
    Private(
        faust.transport.drivers.aiokafka.Transport,
        (Patch.DELETED, Patch.AWAITED),
        "",
        ("_topic_waiters",),
        (
            ("_create_topic", ()),
            ("_really_create_topic", ("owner", "client", "topic")),
            ("_get_controller_node", ("owner", "client", "timeout")),
        ),
    ),
    Private(
        faust.transport.drivers.aiokafka.Producer,
        (Patch.FLUSH, Patch.FENCE, Patch.IMPOSSIBLE),
        "idempotence",
        ("_producer",),
        (
            ("_new_producer", ("transactional_id",)),
            ("_settings_extra", ()),
            ("_ensure_producer", ()),
            ("flush", ()),
            ("send_soon", ("fut",)),
        ),
    ),
    Private(
        faust.transport.producer.ProducerBuffer,
        (Patch.FLUSH, Patch.STATE_FAILS),
        "a mark that passes through it in order with the messages",
        ("message", "channel", "publish_message"),
        (("put", ("fut",)), ("_send_pending", ("fut",))),
    ),
    Private(
        faust.transport.conductor.Conductor,
        (),
        "starting and stopping the delivery of a partition with its ownership",
        ("_tp_index", "_tp_to_callback"),
        (("_update_tp_index", ("assigned",)), ("_build_handler", ("tp", "channels"))),
    ),
    Private(
        faust.assignor.partition_assignor.PartitionAssignor,
        (),
        "assignment by placement, and its in-place changes; routes",
        (
            *("_assignment", "_active_tps", "_member_urls", "_table_manager", "_url"),
            *("_tps_url", "_external_tps_url", "_changelog_distribution", "_external_topic_distribution"),
        ),
        (
            ("_perform_assignment", ("cluster", "member_metadata")),
            ("_protocol_assignments", ("assignments", "cl_distribution", "tp_distribution", "topic_groups")),
            ("_get_changelog_distribution", ("assignments",)),
            ("_get_external_topic_distribution", ("assignments",)),
            ("_update_member_urls", ("clients_metadata",)),
            ("_compress", ("raw",)),
            ("_decompress", ("compressed",)),
        ),
    ),
    Private(
        faust.assignor.leader_assignor.LeaderAssignor,
        (Patch.FENCE,),
        "its topic belongs to no operator",
        ("_leader_topic_name",),
        (("is_leader", ()),),
    ),
    Private(faust.tables.manager.TableManager, (Patch.DELETED,), "table of a changelog", ("_changelogs",)),
    Private(
        faust.tables.recovery.Recovery,
        (Patch.ENDS_AT_POSITION, Patch.RESTORE_AWAITS),
        "which table partitions are restored, and up to which offset",
        (
            *("active_tps", "actives_for_table", "tp_to_table", "active_offsets", "active_highwaters"),
            *("in_recovery", "signal_recovery_end"),
        ),
        (
            ("revoke", ("tp",)),
            ("active_remaining", ()),
            ("need_recovery", ()),
            ("flush_buffers", ()),
            ("_set_recovery_ended", ()),
            ("on_rebalance", ("assigned", "revoked", "newly_assigned", "generation_id")),
            ("_wait", ("coro", "timeout")),
            ("_build_highwaters", ("consumer", "tps", "destination", "title")),
            ("_build_offsets", ("consumer", "tps", "destination", "title")),
            ("_seek_offsets", ("consumer", "tps", "offsets", "title")),
        ),
    ),
    Private(
        faust.stores.rocksdb.Store,
        (Patch.STATE_FAILS, Patch.STATE_OVERWRITTEN, Patch.WINDOWS_CLOSED, Patch.OWN_PARTITIONS),
        "opening and closing a standby's database; reading the offset stored in a closed one",
        ("_dbs", "_key_index"),
        (
            ("_set", ("key", "value")),
            ("_del", ("key",)),
            ("_get", ("key",)),
            ("_contains", ("key",)),
            ("persisted_offset", ("tp",)),
            ("_open_for_partition", ("partition",)),
            ("partition_path", ("partition",)),
            ("set_persisted_offset", ("tp", "offset")),
            ("_encode_key", ("key",)),
            ("_decode_value", ("value",)),
            ("_visible_keys", ("db",)),
            ("_visible_items", ("db",)),
            ("_dbs_for_key", ("key",)),
            ("_get_bucket_for_key", ("key",)),
            ("_dbs_for_actives", ()),
            ("_clear", ()),
            ("_db_for_partition", ("partition",)),
            ("apply_changelog_batch", ("batch", "to_key", "to_value")),
            ("on_rebalance", ("assigned", "revoked", "newly_assigned", "generation_id")),
        ),
    ),
    Private(
        faust.Schema,
        (Patch.AS_STORED,),
        "",
        (),
        (("loads_key", ("app", "message")), ("loads_value", ("app", "message"))),
    ),
    Private(
        faust.tables.table.Table,
        (Patch.FOREIGN_STATE, Patch.AS_STORED, Patch.WINDOWS_CLOSED),
        "asked for the partition before each write; telling the app",
        ("_partition_latest_timestamp", "_on_changelog_event", "recovery_buffer_size"),
        (
            ("_should_expire_keys", ()),
            ("_maybe_set_key_ttl", ("key", "partition")),
            ("_maybe_del_key_ttl", ("key", "partition")),
            ("_del_old_keys", ()),
            ("on_window_close", ("key", "value")),
            ("apply_changelog_batch", ("batch",)),
            ("send_changelog", ("partition", "key", "value", "key_serializer", "value_serializer")),
            ("partition_for_key", ("key",)),
            ("call_recover_callbacks", ()),
        ),
    ),
    Private(
        faust.Agent,
        (Patch.FENCE, Patch.FAILED_DONE, Patch.CHAINED),
        "CPU metering of its coroutine; the messages that an agent works on; agents that cannot be steered",
        ("_actors", "_on_error", "isolated_partitions"),
        (
            ("_execute_actor", ("coro", "aref")),
            ("_replace_actor", ("service", "index")),
            ("_start_one", ("index", "active_partitions", "stream", "channel")),
            ("_new_supervisor", ()),
            ("_maybe_unwrap_reply_request", ("value",)),
            ("stream", ("channel", "active_partitions")),
        ),
    ),
    Private(
        faust.Stream,
        (Patch.FAILED_DONE, Patch.CHAINED),
        "",
        ("_processors", "enable_acks", "current_event", "_next", "_futures"),
        (
            ("group_by", ("key", "name", "topic", "partitions")),
            ("through", ("channel",)),
            ("noack", ()),
            ("get_root_stream", ()),
            ("_passive_drainer", ("channel", "declare")),
            ("_enable_passive", ("channel", "declare")),
            ("clone", ()),
        ),
    ),
    Private(
        ReplyConsumer,
        (Patch.REPLIES, Patch.ASKING),
        "telling its topics from those of agents",
        ("_fetchers",),
        (("_reply_topic", ("topic",)), ("add", ("correlation_id", "promise"))),
    ),
    Private(
        faust.App,
        (Patch.BEGUN_EVENTS, Patch.REPLIES, Patch.ASKING),
        "the assignment that the next rebalance compares with; metering of its tasks; talking to the agent",
        (
            *("_assignment", "_consumer", "_producer", "_reply_consumer", "_leader_assignor", "_app_tasks"),
            "_extra_services",
        ),
        (("_stop_consumer", ()), ("maybe_start_producer", ())),
    ),
    Private(
        mode.utils.queues.ThrowableQueue,
        (),
        "taking back events that no agent has begun; direct events",
        ("_putters", "_maxsize"),
        (("clear", ()), ("force_put_nowait", ("item",))),
    ),
    Private(mode.utils.queues.FlowControlEvent, (Patch.STANDBY_KEPT,), "", ("_suspend",), (("resume", ()),)),
    Private(
        faust.Topic,
        (),
        "direct events",
        (),
        (
            ("send", ("key", "value", "partition", "timestamp", "headers", "schema", "key_serializer")),
            ("prepare_key", ("key", "key_serializer", "schema", "headers")),
            ("prepare_value", ("value", "value_serializer", "schema", "headers")),
            ("prepare_headers", ("headers",)),
        ),
    ),
    Private(
        faust.Topic,
        (Patch.STATE_FAILS, Patch.STANDS, Patch.IMPOSSIBLE, Patch.LATE_WRITE),
        "",
        (),
        (("_on_published", ("fut", "message", "producer", "state")),),
    ),
    Private(
        MessageAccumulator,
        (Patch.FENCE, Patch.DELETED, Patch.LEADER, Patch.SILENT_LEADER),
        "batches that linger go together",
        ("_batches", "_pending_batches", "_exception", "drain_by_nodes", "_wakeup_handle", "_batch_ttl"),
        (("fail_all", ("exception",)), ("_append_batch", ("builder", "tp")), ("_wakeup", ("fut",)), ("waiter", ())),
    ),
    Private(
        MessageBatch,
        (Patch.DELETED, Patch.LEADER, Patch.SILENT_LEADER),
        "batches that linger go together",
        ("tp", "_ttl", "_linger_time", "record_count"),
        (("__init__", ("tp", "builder", "ttl", "linger_time")), ("expired", ()), ("failure", ("exception",))),
    ),
    Private(aiokafka.cluster.ClusterMetadata, (Patch.DELETED,), "", ("_partitions", "_last_successful_refresh_ms")),
    Private(ProduceRequest, (Patch.AFTER_REFUSAL,), "", ("_topics",)),
    Private(TransactionManager, (Patch.AFTER_REFUSAL,), "", ("_sequence_numbers",)),
    Private(
        faust.types.Message,
        (),
        "direct events",
        ("topic", "acked", "refcount", "tracked", "generation_id"),
        (("ack", ("consumer", "n")), ("on_final_ack", ("consumer",))),
    ),
    Private(
        aiokafka.AIOKafkaProducer,
        (Patch.AFTER_REFUSAL, Patch.DELETED),
        "the partition of direct events",
        ("_metadata", "_txn_manager", "_message_accumulator"),
        (("_partition", ("topic", "partition", "key", "value", "serialized_key", "serialized_value")),),
    ),
    Private(
        aiokafka.client.AIOKafkaClient,
        (Patch.FENCE, Patch.LEADERS_KEPT, Patch.REBOOTSTRAP, Patch.SILENT_LEADER, Patch.AWAITED),
        "",
        ("_topics", "_sync_task", "_conns", "_get_conn_lock_value", "_metadata_max_age_ms"),
        (
            ("_get_conn", ("node_id",)),
            ("send", ("node_id", "request")),
            ("_wait_on_metadata", ("topic",)),
            ("_metadata_update", ("cluster_metadata", "topics")),
            ("bootstrap", ()),
            ("ready", ("node_id",)),
        ),
    ),
    Private(AIOKafkaConnection, (Patch.FENCE, Patch.SILENT_LEADER), "", ("_writer",)),
    Private(
        aiokafka.AIOKafkaConsumer,
        (),
        "settings made before the start",
        (
            "_fetch_max_wait_ms",
            "_fetch_min_bytes",
            "_partition_assignment_strategy",
            "_client",
            "_coordinator",
            "_fetcher",
            "_subscription",
        ),
    ),
    Private(
        aiokafka.consumer.fetcher.Fetcher,
        (Patch.IDLE_WORKER, Patch.END_WITHOUT_BROKER, Patch.UNREADABLE),
        "dropping prefetched records of a partition that arrives or leaves; noticing lost records; looking ahead",
        ("_records", "_wait_consume_future", "_subscriptions", "_prefetch_backoff"),
        (
            ("_notify", ("future",)),
            ("_proc_fetch_request", ("assignment", "node_id", "request")),
            ("fetched_records", ("partitions", "timeout", "max_records")),
            ("close", ()),
        ),
    ),
    Private(
        aiokafka.consumer.fetcher.FetchResult,
        (Patch.NOT_ABORTED, Patch.UNREADABLE),
        "backlogs beside new events",
        ("_partition_records",),
        (("getall", ("max_records",)), ("has_more", ())),
    ),
    Private(
        aiokafka.consumer.fetcher.PartitionRecords,
        (Patch.NOT_ABORTED, Patch.UNREADABLE),
        "",
        ("_isolation_level", "_records_iterator", "next_fetch_offset"),
    ),
    Private(aiokafka.consumer.fetcher.FetchError, (Patch.UNREADABLE,), "", ("_error", "_backoff")),
    Private(FetchRequest, (Patch.NOT_ABORTED,), "", ("_isolation_level", "topics")),
    Private(
        COORDINATOR,
        (Patch.FENCE, Patch.RIGHTS, Patch.DELETED, Patch.TOPICS_KNOWN, Patch.SILENT_LEADER),
        "commits that prove membership; offsets that a worker has committed told apart from those that a tool has set",
        ("_closing", "generation", "group_id"),
        (
            ("_perform_assignment", ("response",)),
            ("_send_req", ("request",)),
            ("reset_generation", ()),
            ("_maybe_leave_group", ()),
            ("request_rejoin", ()),
            ("_push_error_to_user", ("exc",)),
            ("commit_offsets", ("assignment", "offsets")),
            ("_do_fetch_commit_offsets", ("partitions",)),
        ),
    ),
    Private(
        COORDINATOR,
        (),
        "joins in place",
        (
            *("member_id", "coordinator_id", "_client", "_retry_backoff_ms", "_session_timeout_ms", "_commit_lock"),
            *("_heartbeat_interval_ms",),
            *("_rebalance_timeout_ms", "_group_instance_id", "_rejoin_needed_fut", "_group_subscription"),
            "_performed_join_prepare",
        ),
        (
            ("ensure_active_group", ("subscription", "prev_assignment")),
            ("ensure_coordinator_known", ()),
            ("fetch_committed_offsets", ("partitions",)),
            ("_do_commit_offsets", ("assignment", "offsets")),
            ("_do_rejoin_group", ("subscription",)),
            ("_lookup_assignor", ("name",)),
            ("_on_join_complete", ("generation", "member_id", "protocol", "member_assignment_bytes")),
            ("_on_metadata_change", ()),
            ("_start_heartbeat_task", ()),
            ("_stop_heartbeat_task", ()),
            ("coordinator_dead", ()),
        ),
    ),
    Private(HeartbeatRequest, (), "joins in place", ("_generation_id",)),
    Private(OffsetCommitRequest, (), "joins in place", ("_consumer_group_generation_id",)),
    Private(
        STATE.SubscriptionState,
        (),
        "looking ahead",
        (),
        (("assign_from_user", ("partitions",)), ("seek", ("tp", "offset")), ("_assigned_state", ("tp",))),
    ),
    Private(STATE.Subscription, (), "detecting that a rebalance has begun", ("_reassignment_in_progress",)),
    Private(STATE.Assignment, (), "the live assignment is changed in place", ("_topic_partitions", "_tp_state")),
    Private(
        STATE.TopicPartitionState,
        (),
        "setting a partition's position, and reading it",
        ("awaiting_reset", "_position", "lso"),
        (("seek", ("position",)), ("pause", ()), ("resume", ()), ("update_committed", ("offset_meta",))),
    ),
)


def complaints() -> Iterator[str]:
    """Deviations from what the patches expect.  Without any, steering is safe as far as names can tell."""
    for package, expected in VERSIONS.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "none"
        if found != expected:
            yield f"{package}: found version {found}, expected {expected}"
    for private in PRIVATES:
        yield from _missing(private)
    if faust.streams._CStreamIterator is None:
        yield "Faust's compiled streams are not used (NO_CYTHON?): the pure-Python ones acknowledge events they skip"


def _missing(private: Private) -> Iterator[str]:
    owner, needed = private.owner.__qualname__, _needed_for(private)
    known = set(_names_used(private.owner))
    yield from (f"{owner}.{name} is gone, {needed}" for name in private.names if name not in known)
    for name, parameters in private.calls:
        method: Any = getattr(private.owner, name, None)
        if method is None:
            yield f"{owner}.{name} is gone, {needed}"
            continue
        found = tuple(
            parameter for parameter in inspect.signature(method).parameters if parameter not in ("self", "cls")
        )
        if found[: len(parameters)] != parameters:
            yield f"{owner}.{name}: found parameters {found}, expected {parameters}, {needed}"


def _needed_for(private: Private) -> str:
    return "needed for " + "; ".join([*private.patches, *filter(None, [private.why])])


def _names_used(owner: type) -> Iterable[str]:
    """Attributes of a class: declared, defined, or used in one of its methods."""
    for cls in owner.__mro__:
        yield from vars(cls)
        yield from getattr(cls, "__annotations__", ())
        for member in vars(cls).values():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
            if code is not None:
                yield from code.co_names
