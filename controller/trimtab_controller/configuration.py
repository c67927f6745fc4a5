"""Reads controller.toml strictly into frozen values; an error names file, key, found value and expected value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from trimtab_controller.decider.values.plan_settings import PlanSettings, read_plans
from trimtab_controller.decider.values.rules import read_rules
from trimtab_controller.decider.values.scaling import ScalingSettings, read_scaling
from trimtab_controller.decider.values.settings import First, ForecastSettings, Requirements, Settings
from trimtab_controller.execution.disruption import read_disruption
from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.security.keys import KeyFiles
from trimtab_controller.stream.configuration import StreamSettings, read_checking, read_stream_settings
from trimtab_process.private_files import read_private
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.codec import section, with_keys
from trimtab_protocol.messages.decode import BadMessage, Fault, Fields
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
    return read_toml(path, decode)


def decode(document: Mapping[str, Any]) -> Configuration:
    """Decode a parsed document; raises BadMessage."""
    fields = Fields(document, "")
    controller, kafka = fields.fields("controller"), fields.fields("kafka")
    stream = read_stream_settings(fields.take("stream") or {}, "stream")
    balance, needs = _read_balance(_section(fields, "balance"), stream)
    execution = replace(
        section(ExecutionLimits(), _section(fields, "execution")),
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
        execution=execution,
        scaling=read_scaling(_section(fields, "scaling")),
        plans=read_plans(_section(fields, "plans")),
        first=_read_placement(_section(fields, "placement")),
        metrics=fields.optional("metrics", lambda name: read_listen(fields.fields(name))),
        signing=None if signing is None else _read_signing(signing),
        host_signatures=checking,
        rules=read_rules(fields),
        forecast=section(ForecastSettings(), _section(fields, "forecast")),
    )
    controller.done()
    fields.done()
    return configuration


def _section(fields: Fields, name: str) -> Fields:
    return fields.fields(name) if fields.has(name) else Fields({}, name)


def _read_balance(fields: Fields, stream: StreamSettings) -> tuple[Settings, Requirements]:
    settings = with_keys(Settings(), fields)
    needs = Requirements(max_age_s=MISSED_WINDOWS * stream.window_s + stream.watermark_s)
    return settings, section(needs, fields)


def _read_placement(fields: Fields) -> First:
    first = _or(First.ADOPT, fields, "first", lambda name: fields.choice(name, First))
    fields.done()
    return first


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
