"""What the cluster of a seed is like, and its controller.toml."""

from dataclasses import dataclass, replace

from tests.sim.simulated.budgeted import UNKNOWN_PAUSE_S, some_budget, some_times
from tests.sim.simulated.ruled import some_rules
from tests.sim.simulated.zoned import ZONED_EVERY, is_zoned, zone_rules
from trimtab_controller.configuration import Configuration
from trimtab_controller.decider.values.plan_settings import PlanMode, PlanSettings, PlanTimes
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.disruption import DisruptionSettings
from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.security.keys import KeyFiles
from trimtab_controller.stream.configuration import StreamSettings
from trimtab_protocol.messages.names import AppId, OperatorId
from trimtab_protocol.messages.rules import Rule
from trimtab_protocol.settings.kafka import KafkaSettings

CLUSTER, APP, OPERATOR = "simulated", AppId("app"), OperatorId("sums")
WINDOW_S, LEASE_S = 10.0, 6.0

BALANCE = Settings(max_migrations=6, load_distance=2.5, min_interval_s=20.0, min_windows=2)
LIMITS = ExecutionLimits(
    handovers_in_flight=2,
    key_groups_per_handover=2,
    prepare_timeout_s=15.0,
    handover_timeout_s=8.0,
    attempts=3,
    max_lag_s=2.0,
    guard_windows=1,
    guard_back_off_s=30.0,
)
ASKING = PlanSettings(mode=PlanMode.APPROVE, approval_s=60.0, keep_moved_s=40.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """`asking`: plans wait for an operator.  `standbys`: so many the app asks for; None: it is not known.

    `part_size` = key groups in one part of a placement.
    """

    part_size: int
    asking: bool
    standbys: int | None
    zoned: bool
    rules: tuple[Rule, ...]
    disruption: DisruptionSettings
    times: PlanTimes

    @property
    def limit_s(self) -> float | None:
        """Seconds of pauses in an hour that the disruption budget allows."""
        return self.disruption.max_paused_s_per_hour


def traits_of(seed: int, key_groups: int) -> Traits:
    """Those of the cluster with so many key groups."""
    zoned = is_zoned(seed)
    return Traits(
        part_size=(128, 3)[seed % 2],
        asking=seed % 16 == 9,
        standbys=(1, 2)[seed // ZONED_EVERY % 2] if zoned else (1, 2, None)[seed % 3],
        zoned=zoned,
        rules=zone_rules(seed, key_groups) if zoned else some_rules(seed, key_groups),
        disruption=some_budget(seed),
        times=some_times(seed),
    )


def configuration(keys: KeyFiles, traits: Traits, *, balance: Settings, limits: ExecutionLimits) -> Configuration:
    """The controller.toml of a simulation."""
    plans = ASKING if traits.asking else PlanSettings()
    execution = replace(limits, key_groups_per_part=traits.part_size)
    if traits.limit_s is not None:
        execution = replace(execution, disruption=traits.disruption, max_pause_s=UNKNOWN_PAUSE_S)
    return Configuration(
        cluster=CLUSTER,
        kafka=KafkaSettings(bootstrap_servers="simulated:9092"),
        stream=StreamSettings(checkpoint_dir="unused", window_s=WINDOW_S, embedded=False),
        balance=balance,
        needs=Requirements(),
        execution=execution,
        plans=replace(plans, times=traits.times),
        rules=traits.rules,
        metrics=None,
        signing=keys,
        lease_s=LEASE_S,
    )
