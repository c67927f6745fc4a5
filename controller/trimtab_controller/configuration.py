"""Reads controller.toml strictly into frozen values; an error names file, key, found value and expected value."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from trimtab_controller.decider.memory.forecasts import ForecastSettings, read_forecast
from trimtab_controller.decider.values.plan_settings import PlanSettings, read_plans
from trimtab_controller.decider.values.rules import read_rules
from trimtab_controller.decider.values.scaling import ScalingSettings, read_scaling
from trimtab_controller.decider.values.settings import First, Requirements, Settings
from trimtab_controller.execution.disruption import read_disruption
from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.execution.state import GuardSettings, read_guard
from trimtab_controller.security.keys import KeyFiles
from trimtab_controller.solver.answer import Method
from trimtab_controller.stream.configuration import StreamSettings, read_checking, read_stream_settings
from trimtab_process.private_files import read_private
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields
from trimtab_protocol.messages.placement_parts import MAX_PART_SIZE
from trimtab_protocol.messages.rules import Rule
from trimtab_protocol.settings.kafka import KafkaSettings, read_kafka
from trimtab_protocol.settings.listen import Listen, read_listen
from trimtab_protocol.settings.paths import read_path
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.signing.keys import BadKey

T = TypeVar("T")

LEASE_S = 6.0
"""The shortest session time-out that Kafka's brokers allow by default."""
MISSED_WINDOWS = 3
"""Age in windows from which a snapshot is stale."""
MAX_MIGRATIONS = 1_000
"""Maximum number of key groups per round, since a round with all its commands is one message of the journal."""


class BadConfiguration(Exception):
    """The file cannot be used; the message tells the operator why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of the controller.  Times in seconds, distances in pp.

    `signing` None: publications are not signed.  `host_signatures`: what becomes of reports and acks that their host
    has not signed.  `lease_s`: how long a silent leader keeps the lead.
    """

    cluster: str
    kafka: KafkaSettings
    stream: StreamSettings
    balance: Settings
    needs: Requirements
    solver_time_limit_s: float
    execution: ExecutionLimits
    metrics: Listen | None
    scaling: ScalingSettings = ScalingSettings()  # noqa: RUF009 - frozen
    plans: PlanSettings = PlanSettings()  # noqa: RUF009 - frozen
    first: First = First.ADOPT
    signing: KeyFiles | None = None
    host_signatures: HostChecking = HostChecking.OFF
    lease_s: float = LEASE_S
    rules: tuple[Rule, ...] = ()
    forecast: ForecastSettings = ForecastSettings()  # noqa: RUF009 - frozen


def load(path: Path) -> Configuration:
    """Read a configuration file; raises BadConfiguration."""
    document = parse(path)
    try:
        return decode(document)
    except BadMessage as error:
        raise BadConfiguration(f"{path}: {error}") from error


def parse(path: Path) -> dict[str, Any]:
    """The document in a configuration file, not yet checked; raises BadConfiguration."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path}: not TOML: {error}") from error


def decode(document: Mapping[str, Any]) -> Configuration:
    """Decode a parsed document; raises BadMessage."""
    fields = Fields(document, "")
    controller, kafka = fields.fields("controller"), fields.fields("kafka")
    stream = read_stream_settings(fields.take("stream") or {}, "stream")
    balance, solver_time_limit_s, needs = _read_balance(_section(fields, "balance"), stream)
    execution = replace(
        _read_execution(_section(fields, "execution"), read_guard(_section(fields, "guard"))),
        disruption=read_disruption(_section(fields, "disruption")),
    )
    signing = fields.optional("signing", fields.fields)
    checking = HostChecking.OFF if signing is None else read_checking(signing)
    configuration = Configuration(
        cluster=controller.name("cluster"),
        lease_s=_or(LEASE_S, controller, "lease_s", lambda name: controller.number(name, low=1, high=1800)),
        kafka=read_kafka(kafka, read_private),
        stream=stream,
        balance=balance,
        needs=needs,
        solver_time_limit_s=solver_time_limit_s,
        execution=execution,
        scaling=read_scaling(_section(fields, "scaling")),
        plans=read_plans(_section(fields, "plans")),
        first=_read_placement(_section(fields, "placement")),
        metrics=fields.optional("metrics", lambda name: read_listen(fields.fields(name))),
        signing=None if signing is None else _read_signing(signing),
        host_signatures=checking,
        rules=read_rules(fields),
        forecast=read_forecast(_section(fields, "forecast")),
    )
    controller.done()
    fields.done()
    return configuration


def _section(fields: Fields, name: str) -> Fields:
    return fields.fields(name) if fields.has(name) else Fields({}, name)


def _read_balance(fields: Fields, stream: StreamSettings) -> tuple[Settings, float, Requirements]:
    default, needed = Settings(), Requirements()
    settings = Settings(
        method=_or(default.method, fields, "method", lambda n: fields.choice(n, Method)),
        max_migrations=_or(
            default.max_migrations, fields, "max_migrations", lambda n: fields.integer(n, low=1, high=MAX_MIGRATIONS)
        ),
        load_distance=_or(default.load_distance, fields, "load_distance", lambda n: fields.number(n, high=100)),
        min_interval_s=_or(default.min_interval_s, fields, "min_interval_s", fields.number),
        smoothing=_or(default.smoothing, fields, "smoothing", lambda n: fields.number(n, low=0.01, high=1)),
        min_windows=_or(default.min_windows, fields, "min_windows", lambda n: fields.integer(n, low=1, high=1000)),
        min_gain=_or(default.min_gain, fields, "min_gain", lambda n: fields.number(n, high=100)),
        drain_load_distance=_or(
            default.drain_load_distance, fields, "drain_load_distance", lambda n: fields.number(n, high=1000)
        ),
        min_collocation_gain=_or(
            default.min_collocation_gain, fields, "min_collocation_gain", lambda n: fields.number(n, high=100)
        ),
        remote_tuple_cpu_s=fields.optional("remote_tuple_cpu_s", lambda n: fields.number(n, high=1)),
        broker_tuple_cpu_s=_or(
            default.broker_tuple_cpu_s, fields, "broker_tuple_cpu_s", lambda n: fields.number(n, high=1)
        ),
        pay_back_s=_or(default.pay_back_s, fields, "pay_back_s", lambda n: fields.number(n, low=1, high=86_400)),
        trial_pairs=_or(default.trial_pairs, fields, "trial_pairs", lambda n: fields.integer(n, high=100)),
        catch_up_s=_or(default.catch_up_s, fields, "catch_up_s", lambda n: fields.number(n, low=10, high=86_400)),
        max_disk=_or(default.max_disk, fields, "max_disk", lambda n: fields.number(n, low=0.01, high=1)),
        max_link=_or(default.max_link, fields, "max_link", lambda n: fields.number(n, low=0.01, high=1)),
    )
    limit_s = _or(2.0, fields, "solver_time_limit_s", lambda n: fields.number(n, low=0.01, high=600))
    needs = Requirements(
        min_coverage=_or(needed.min_coverage, fields, "min_coverage", lambda n: fields.number(n, low=0.01, high=1)),
        max_age_s=MISSED_WINDOWS * stream.window_s + stream.watermark_s,
        lost_worker_s=_or(needed.lost_worker_s, fields, "lost_worker_s", lambda n: fields.number(n, low=1)),
        max_unknown=_or(needed.max_unknown, fields, "max_unknown", lambda n: fields.number(n, high=1)),
        stale_limit_s=_or(needed.stale_limit_s, fields, "stale_limit_s", lambda n: fields.number(n, low=1)),
    )
    fields.done()
    return settings, limit_s, needs


def _read_placement(fields: Fields) -> First:
    first = _or(First.ADOPT, fields, "first", lambda name: fields.choice(name, First))
    fields.done()
    return first


def _read_execution(fields: Fields, guard: GuardSettings) -> ExecutionLimits:
    default = ExecutionLimits()

    def count(name: str) -> int:
        return fields.integer(name, low=1, high=10_000)

    def seconds(name: str) -> float:
        return fields.number(name, low=0.1, high=86_400)

    def bytes_s(name: str) -> float:
        return fields.number(name, low=1e3, high=1e12)

    limits = ExecutionLimits(
        guard=guard,
        schedule_restores=_or(default.schedule_restores, fields, "schedule_restores", fields.flag),
        handovers_in_flight=_or(default.handovers_in_flight, fields, "handovers_in_flight", count),
        handovers_per_host=_or(default.handovers_per_host, fields, "handovers_per_host", count),
        handovers_in_cluster=_or(default.handovers_in_cluster, fields, "handovers_in_cluster", count),
        adapt_pace=_or(default.adapt_pace, fields, "adapt_pace", fields.flag),
        max_pause_s=_or(default.max_pause_s, fields, "max_pause_s", seconds),
        max_lag_s=_or(default.max_lag_s, fields, "max_lag_s", seconds),
        restores_at_first=_or(default.restores_at_first, fields, "restores_at_first", count),
        restore_host_bytes_s=fields.optional("restore_host_bytes_s", bytes_s),
        restore_cluster_bytes_s=fields.optional("restore_cluster_bytes_s", bytes_s),
        key_groups_per_handover=_or(default.key_groups_per_handover, fields, "key_groups_per_handover", count),
        prepare_timeout_s=_or(default.prepare_timeout_s, fields, "prepare_timeout_s", seconds),
        handover_timeout_s=_or(default.handover_timeout_s, fields, "handover_timeout_s", seconds),
        attempts=_or(default.attempts, fields, "attempts", count),
        key_groups_per_part=_or(
            default.key_groups_per_part,
            fields,
            "key_groups_per_part",
            lambda name: fields.integer(name, low=1, high=MAX_PART_SIZE),
        ),
    )
    fields.done()
    return limits


def _or(default: T, fields: Fields, name: str, read: Callable[[str], T]) -> T:
    """The value of the key, or its default if it is missing."""
    return read(name) if fields.has(name) else default


def _read_signing(fields: Fields) -> KeyFiles:
    key, trust = read_path(fields, "key_file"), read_path(fields, "trust_file")
    fields.done()
    try:
        return KeyFiles(key=key, trust=trust)
    except BadKey as error:
        raise BadMessage(Fault.RANGE, fields.path, "the same file twice", "two files") from error
