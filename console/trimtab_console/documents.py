"""The resources of the API that are not messages themselves.  Loads in percent of the capacity, times in epoch seconds.

None = unknown.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class Document(BaseModel):
    """A frozen JSON object."""

    model_config = ConfigDict(frozen=True)


class Page(Document, Generic[T]):
    """Some of `total` items, from `offset` on."""

    items: Sequence[T]
    total: int
    offset: int


class Controller(Document):
    """A controller in the group, according to the broker."""

    name: str
    leads: bool


class Totals(Document):
    """The running workers together, in cores.

    `demand_cores` and `used_cores` are the sums of those that are known, None if none is.
    """

    workers: int
    running: int
    hosts: int
    capacity_cores: float
    used_cores: float | None
    demand_cores: float | None
    unknown: int


class Cluster(Document):
    """The cluster as a whole.

    `state` = silent, hold, paused, acting or dry run; `runbook` = what to open first; `rejected` = refused messages by
    `topic.fault`; `fault` = why the console cannot read Kafka now.  `version` grows with each change of anything.
    """

    cluster: str
    version: int
    at: float
    read: bool
    fault: str | None
    state: str | None = None
    runbook: str | None = None
    silent_s: float | None = None
    snapshot_age_s: float | None = None
    coverage: float | None = None
    epoch: str | None = None
    paused: str | None = None
    hold: str | None = None
    hold_id: str | None = None
    controllers: Sequence[Controller] | None = None
    last_decision: str | None = None
    last_decision_at: float | None = None
    totals: Totals | None = None
    rejected: dict[str, int] = {}


class Bars(Document):
    """Workers as columns, one entry per bar, ordered by host; a bar stands for at most `workers_per_bar` workers.

    `load`, `used`, `demand` = the highest of its workers, `used_mean` = their mean, in percent of a worker's capacity;
    `remark` = what the first of them that is not running and steered is.  `mean_use` = the use of all workers together,
    in percent of their capacity.
    """

    total: int
    workers_per_bar: int
    mean_use: float | None
    first: list[str]
    host: list[str]
    count: list[int]
    load: list[float | None]
    used: list[float | None]
    used_mean: list[float | None]
    demand: list[float | None]
    remark: list[str | None]


class Operator(Document):
    """An operator in the last window; sums over the key groups whose value is known."""

    app: str
    operator: str
    key_groups: int
    workers: int
    cpu_cores: float | None
    tuples_in_s: float | None
    backlog: int | None
    state_bytes: int | None
    unmeasured: int


class KeyGroupMap(Document):
    """The key groups of an operator as columns, one entry per cell, each of at most `per_cell` consecutive partitions.

    `first` and `last` = its partitions; `peak` and `mean` in percent of a core; `hottest` = the partition with the
    highest load, `worker` = its owner.
    """

    app: str
    operator: str
    key_groups: int
    per_cell: int
    workers: list[str]
    first: list[int]
    last: list[int]
    peak: list[float | None]
    mean: list[float | None]
    hottest: list[int]
    worker: list[int]


class KeyGroupRow(Document):
    """A key group in the last window: rates per second, `load_pct` in percent of a core."""

    partition: int
    worker: str
    load_pct: float | None
    tuples_in_s: float | None
    backlog: int | None
    state_bytes: int | None


class PlacementRow(Document):
    """Who owns a key group, and who keeps a standby of it, by the published placement."""

    operator: str
    partition: int
    owner: str | None
    standbys: list[str]


class Placed(Page[PlacementRow]):
    """A part of an app's placement; it was published under `epoch`."""

    epoch: str


class Plan(Document):
    """A plan in flight (`ended_at` is None) or a past one; the fields are those of `RoundStatus`.

    Load distances in pp.  `handovers` = number per phase; pauses in seconds, over the hand-overs that are done.
    """

    plan: str
    app: str
    reason: str
    status: str
    fallback: bool
    started_at: float
    ended_at: float | None
    before: float
    planned: float
    after: float | None
    lower_bound: float
    incomparable: str | None
    migrations: int
    failed: int
    bytes_moved: int
    handovers: dict[str, int]
    pause_median_s: float | None
    pause_longest_s: float | None
    stopped: str | None
    recovery_planned_s: float | None
    recovery_bound_s: float | None
    recovery_s: float | None


class Moving(Document):
    """Key groups that move together, by the journal; `phase` = waiting, preparing, releasing, resolving or an end."""

    id: str
    key_groups: list[str]
    source: str
    target: str
    phase: str
    state_bytes: int
    pause_s: float | None
    detail: str | None


class IntentDocument(Document):
    """What an operator asked for; `about` = a worker, an app, or nothing."""

    kind: str
    about: str | None
    workers: int | None
    by: str
    at: float
    reason: str


class SessionDocument(Document):
    """Who asks, and what they may do.

    `name` None: nobody is logged in, or no login is needed.  `login` = whether a token is needed to read.  `until` =
    end of the session or of the token.  `why_not` = why this person may change nothing, None if they may.
    `failed_logins` = since the console started, told to operators.
    """

    name: str | None
    role: str | None
    login: bool
    may_change: bool
    why_not: str | None
    until: float | None = None
    failed_logins: int | None = None


class ChangeDocument(Document):
    """What a change is, or would be in a dry run.

    `text` = what follows; `caveats` = why it does not at once, or not in full; `intents` = the record keys that are
    written or revoked, none if there is nothing to do; `written` = whether the broker has stored them; `by` = whom the
    intent names.
    """

    action: str
    text: str
    caveats: list[str]
    intents: list[str]
    written: bool
    by: str


class Runbook(Document):
    """A runbook, as Markdown."""

    name: str
    text: str


class Problem(Document):
    """An error, as RFC 9457 has it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
