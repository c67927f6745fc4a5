"""Reads controller.toml strictly into frozen values; an error names file, key, found value and expected value."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from trimtab_controller.decider.values.plan_settings import PlanSettings
from trimtab_controller.decider.values.rules import RuleTables
from trimtab_controller.decider.values.scaling import ScalingSettings
from trimtab_controller.decider.values.settings import First, ForecastSettings, Requirements, Settings
from trimtab_controller.execution.disruption import DisruptionSettings
from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.security.keys import KeyFiles
from trimtab_controller.stream.configuration import StreamSettings
from trimtab_process.kafka_section import KafkaSection
from trimtab_process.toml_files import read_toml
from trimtab_protocol.messages.codec import CONFIGURATION, Inline, Name, Needed, Range, Table, converted
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.settings.listen import MetricsAddress
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.signing.keys import BadKey

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

    cluster: Annotated[Name, Table("controller")]
    kafka: KafkaSection
    stream: StreamSettings
    balance: Annotated[Settings, Table("balance"), Inline()] = Settings()  # noqa: RUF009 - frozen
    needs: Annotated[Requirements, Table("balance"), Inline()] = Requirements()  # noqa: RUF009 - frozen
    execution: ExecutionLimits = ExecutionLimits()  # noqa: RUF009 - frozen
    disruption: DisruptionSettings = DisruptionSettings()  # noqa: RUF009 - frozen
    metrics: MetricsAddress = None
    scaling: ScalingSettings = ScalingSettings()  # noqa: RUF009 - frozen
    plans: PlanSettings = PlanSettings()  # noqa: RUF009 - frozen
    first: Annotated[First, Table("placement")] = First.ADOPT
    signing: Annotated[KeyFiles | None, Table("signing"), Inline(), Needed()] = None
    host_signatures: Annotated[HostChecking, Table("signing")] = HostChecking.OFF
    lease_s: Annotated[float, Range(1.0, 1800.0), Table("controller")] = LEASE_S
    rules: RuleTables = ()
    forecast: ForecastSettings = ForecastSettings()  # noqa: RUF009 - frozen


def load(path: Path) -> Configuration:
    """Read a configuration file; raises BadConfiguration."""
    return read_toml(path, decode)


def decode(document: Mapping[str, Any]) -> Configuration:
    """Decode a parsed document; raises BadMessage."""
    try:
        found = converted(dict(document), Configuration, defaults=CONFIGURATION)
    except BadKey as error:
        raise BadMessage(Fault.RANGE, "signing", "the same file twice", "two files") from error
    max_age_s = MISSED_WINDOWS * found.stream.window_s + found.stream.watermark_s
    return replace(
        found,
        needs=replace(found.needs, max_age_s=max_age_s),
        execution=replace(found.execution, disruption=found.disruption),
    )
