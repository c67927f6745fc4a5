"""What the Faust apps of the jobs have in common.

The environment sets JOBS_PARTITIONS, JOBS_SESSION_S, JOBS_WORK, JOBS_LOCAL and JOBS_KEYLESS.
"""

import hashlib
import os
import time
from typing import Any

import faust

from trimtab_agent.engines.faust import SteeringSettings

PARTITIONS = int(os.environ.get("JOBS_PARTITIONS", "20"))
SESSION_S = float(os.environ.get("JOBS_SESSION_S", "30"))
WORK_US = int(os.environ.get("JOBS_WORK", "0"))
"""CPU microseconds spent per tuple and operator besides, to make the job heavier."""
LOCAL = os.environ.get("JOBS_LOCAL", "1") != "0"
"""Whether events skip the broker where they can; else the job gains nothing from collocation."""
KEYLESS = os.environ.get("JOBS_KEYLESS", "0") != "0"
"""Whether events without a key name no partition: those of a local topic then stay in their worker."""
HASHES_PER_LOOK = 10
STEERING = SteeringSettings(fetch_min_bytes=1 << 14, fetch_max_wait_ms=60)


def app_of(name: str, *, linger_s: float = 0.025) -> Any:
    """A Faust app for a worker of the sandbox, which sets broker and folder; `linger_s` = how long records wait."""
    return faust.App(
        name,
        store="rocksdb://",
        topic_partitions=PARTITIONS,
        topic_replication_factor=1,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=1.0,
        broker_session_timeout=SESSION_S,
        broker_heartbeat_interval=2,
        stream_wait_empty=True,
        table_standby_replicas=0,
        producer_linger=linger_s,
    )


def topic_of(app: Any, name: str) -> Any:
    """A topic with text keys and JSON values."""
    return app.topic(name, key_serializer="raw", value_serializer="json", partitions=PARTITIONS)


def local_of(*topics: Any) -> tuple[Any, ...]:
    """Those of a job's topics that are local."""
    return topics if LOCAL else ()


def opposite(partition: int) -> int | None:
    """The partition to which the source of the page views sends what it has read of this one."""
    return None if KEYLESS else (partition + PARTITIONS // 2) % PARTITIONS


def source_of(app: Any, name: str) -> Any:
    """A topic with text keys and values."""
    return app.topic(name, key_serializer="raw", value_serializer="raw", partitions=PARTITIONS)


def table_of(app: Any, name: str) -> Any:
    """A table with a small database per partition."""
    options = {"block_cache_size": 1 << 20, "write_buffer_size": 1 << 20, "max_open_files": 64}
    return app.Table(name, partitions=PARTITIONS, options=options)


def work(value: bytes) -> None:
    """Use JOBS_WORK of CPU like heavier business logic."""
    end_ns = time.thread_time_ns() + WORK_US * 1000
    while WORK_US and time.thread_time_ns() < end_ns:
        for _ in range(HASHES_PER_LOOK):
            hashlib.blake2b(value, digest_size=16)
