"""One run of the oracle's job: its versions, what they call things, and the settings of the run."""

from collections.abc import Collection
from dataclasses import dataclass, field

from tests.e2e.steering.app_names import APP as FIRST_APP
from tests.e2e.steering.app_names import OTHER_APP as SECOND_APP
from tests.e2e.steering.app_names import Feature
from trimtab_protocol.messages.names import AppId, HostId, OperatorId

APP, OTHER_APP = AppId(FIRST_APP), AppId(SECOND_APP)
CLUSTER = "oracle"
HOST = HostId("h0")
SOURCE, REGROUP = OperatorId("source"), OperatorId("regroup")
SUMS = "oracle-sums-changelog"
BALLAST = "oracle-ballast-changelog"
CHANGELOGS = ("oracle-counts-changelog", SUMS, "oracle-groups-changelog")
WINDOWED = "oracle-windowed-changelog"
MANY = "oracle-many-changelog"
LATE, ODD = "oracle-late-changelog", "oracle-odd-changelog"
BEHIND = "oracle-behind-changelog"
EXTRAS, RENAMED = "oracle-extras-changelog", "oracle-renamed-changelog"
OPERATORS: dict[Feature | None, tuple[OperatorId, ...]] = {
    None: (SOURCE, REGROUP),
    Feature.OTHER_NAMES: (OperatorId("source-2"), OperatorId("regroup-2")),
    Feature.ONE_OPERATOR: (OperatorId("everything"),),
    Feature.UNNAMED: (OperatorId("all"),),
    Feature.BATCHES: (SOURCE, REGROUP, OperatorId("alerts")),
}
"""What a version of the job calls the operators of numbers and of regrouped."""


def operators(features: Collection[Feature]) -> tuple[OperatorId, ...]:
    """The operators that the tiny controller places, in this version of the job."""
    return OPERATORS[next((feature for feature in features if feature in OPERATORS), None)]


def app_of(features: Collection[Feature]) -> AppId:
    """The app that this version of the job is."""
    return OTHER_APP if Feature.OTHER_APP in features else APP


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One run.  Seconds; `rate` in events per second; `delays_s` by the name of the step they are put before."""

    program: str = "tests.e2e.steering.app"
    """The module that a worker runs."""
    workers: int = 3
    partitions: int = 8
    rate: float = 120.0
    keys: int = 400
    windowed: bool = False
    work_s: float = 0.0
    commit_interval_s: float = 1.0
    session_s: float = 10.0
    heartbeat_s: float = 0.5
    took_limit_s: float = 4.0
    max_poll_s: float = 1000.0
    delays_s: dict[str, float] = field(default_factory=dict)
    preload: int = 1000
    placed: bool = True
    part_size: int | None = None
    """Key groups per part of the placement; None: it is one record."""
    own_topics: bool = True
    """The cluster makes changelogs and the repartition topic, and Trimtab's; else the job's client makes its own, and
    nobody Trimtab's."""
    besides: tuple[str, ...] = ()
    """Topics that the first version of the job reads besides, with those of their outputs."""
    first_owns: int = 0
    """So many partitions of each operator belong to the first worker in the beginning, the others to all in turn."""
    ballast_bytes: tuple[int, ...] = ()
    """By partition: size of the additional table, with `Feature.BALLAST`."""
    link_bytes_s: float = 0.0
    """What each worker reads from changelogs for hand-overs and standbys; 0 = as fast as it can."""
    groups: int = 97
    """Keys between the agents.  The order of two events is judged if their keys and source partitions are the same."""
    slow_s: float = 0.0
    """How long the second agent takes for an event, in each of its steps."""
    queue: int = 4096
    """Events that a stream's queue holds."""
    writes: int = 0
    """Keys of one more table that each event of the source writes."""
    recovery_buffer: int = 1000
    """Changelog records that a table's recovery applies at once."""
    drain_limit_s: float = 10.0
    in_place: str = "off"
    """Whether workers rejoin in place, see `InPlace`."""
    local: dict[str, float] = field(default_factory=dict)
    """Settings of the local hop, with `Feature.LOCAL`."""
    planted: tuple[str, ...] = ()
    """Defects of the plug-in, see the app."""
    features: tuple[Feature, ...] = ()
    """Of the version of the job that workers start with."""
    seed: int = 1

    def owner(self, partition: int, operator: int) -> int:
        """The number of the worker that owns this partition of operator 0, 1, ... in the beginning."""
        return 0 if partition < self.first_owns else (partition + operator) % self.workers

    def source_partition(self, number: int) -> int:
        """The partition of the source topic to which an input is sent."""
        return (number % self.keys) % self.partitions

    @property
    def all_changelogs(self) -> tuple[str, ...]:
        """With those of the tables that the judge does not look at."""
        careless = (LATE, ODD) if Feature.CARELESS in self.features else ()
        many = (MANY,) if self.writes else ()
        behind = (BEHIND,) if Feature.BEHIND in self.features else ()
        return (*self.changelogs, *behind, *((BALLAST,) if self.ballast_bytes else ()), *many, *careless)

    @property
    def changelogs(self) -> tuple[str, ...]:
        return (*CHANGELOGS, *((WINDOWED,) if self.windowed else ()))
