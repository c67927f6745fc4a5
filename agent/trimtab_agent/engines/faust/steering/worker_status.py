"""Current state of a Faust worker, for its reports.  Read-only, called on the app's event loop; nothing here blocks."""

import time
from collections.abc import Mapping

from trimtab_agent.engines.faust.safety.troubles import Trouble
from trimtab_agent.engines.faust.steering.parts import SteeringParts
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.wording import first_few

FRESH_S = 300.0
"""How long after its start a worker says that its app had no state then."""
NOT_WHOLE = "parts of the newest placement are missing: it follows the one before"


class FaustWorkerStatus:
    """What the worker does, owns and has met; figures since its start unless something else is said."""

    def __init__(self, parts: SteeringParts) -> None:
        self._app = parts.app
        self._shared = parts.shared
        self._ownership = parts.ownership
        self._standbys = parts.standbys
        self._reconciler = parts.reconciler
        self._handover = parts.handover
        self._work = parts.work
        self._side = parts.side

    @property
    def refusal(self) -> str | None:
        """Why this worker only reports; None = it can be steered."""
        return self._shared.reports_only

    @property
    def waits_for(self) -> str | None:
        """What is not as it should be, the worst only.

        Inputs are read again, inputs or state are lost; a broker is out of reach; parts of the newest placement,
        topics or local topics are missing; too few files may be open for all key groups.
        """
        if (trouble := self._shared.troubles.worst()) is not None:
            return trouble
        if (silent := self._app.consumer.out_of_reach()) is not None:
            return str(silent)
        if self._shared.flaw is not None:
            return NOT_WHOLE
        missing = sorted(self._ownership.missing)
        if missing:
            return f"the broker does not know these topics: {first_few(missing)}"
        return self._shared.not_local or self._shared.few_files

    @property
    def state(self) -> WorkerState:
        """What this worker is doing."""
        fence = getattr(self._app.consumer, "fence", None)  # a worker that only reports has Faust's own consumer
        if fence is not None and fence.closed_now():
            return WorkerState.REBALANCING  # the group has gone on without this worker, or soon will
        if self._handover.is_stable:
            return WorkerState.RUNNING
        return WorkerState.RECOVERING if self._app.tables.recovery.in_recovery else WorkerState.REBALANCING

    @property
    def epoch(self) -> Epoch | None:
        """Epoch of the newest placement seen."""
        return self._shared.placement.epoch if self._shared.placement else None

    @property
    def refused(self) -> Mapping[Fault, int]:
        """Placements and hand-over records refused since the start, by reason."""
        return dict(self._shared.refused)

    @property
    def breaches(self) -> int:
        """Number of times since the start that a changelog would have overwritten state that this worker writes."""
        return self._shared.breaches

    @property
    def generation(self) -> int | None:
        """Generation of the consumer group; None before the first join."""
        return self._handover.generation or None

    @property
    def work_beside_the_job(self) -> int | None:
        """Counter of the work that this worker did beside the job; None while such work is running.

        Rebalances, restored records, hand-overs and their consequences count.  If the figure is the same at the
        beginning and the end of an interval, the worker did nothing but the job in it.
        """
        begun = self._work.begun
        return None if begun is None else begun + self._standbys.applied_records

    def operators(self) -> Mapping[OperatorId, int]:
        """Number of key groups of each operator; empty until the broker's metadata is known."""
        return {operator.id: operator.partitions for operator in self._ownership.operators().values()}

    @property
    def standbys(self) -> int:
        """Number of standby replicas that the app asks for."""
        return self._shared.faust_standbys

    @property
    def cold(self) -> int | None:
        """Number of key groups that it should stand by for and has not got warm yet; None = unknown."""
        return self._reconciler.cold if self.refusal is None else None

    @property
    def fresh(self) -> bool:
        """Whether this worker started a short while ago and the app had no state then; False if that is unknown."""
        began = self._shared.empty_at
        return began is not None and time.monotonic() - began < FRESH_S

    @property
    def copies(self) -> tuple[Copy, ...]:
        """State on this worker's disk of key groups that it neither owns nor follows; empty if that is unknown."""
        return self._shared.copies

    @property
    def following_s(self) -> float | None:
        """CPU seconds since the start for reading and applying the changelogs of standbys; None = unknown."""
        return self._side.cpu_s

    @property
    def paused(self) -> tuple[float, int] | None:
        """Key-group seconds that inputs stood still at rebalances, of how many key groups; None = unknown."""
        return self._shared.standstill.total

    @property
    def reset(self) -> bool:
        """Whether, within the last hour, it began at the first records of topics that its tables have counted."""
        return self._shared.troubles.worst(Trouble.READ_AGAIN) is not None

    @property
    def maybe_reset(self) -> bool:
        """Whether that may have happened within the last hour, but deleted records would look the same."""
        return self._shared.troubles.worst(Trouble.MAY_READ_AGAIN) is not None

    @property
    def lost(self) -> bool:
        """Whether, within the last hour, it found that records were deleted before it read them."""
        return self._shared.troubles.worst(Trouble.INPUTS_LOST, Trouble.STATE_LOST) is not None

    def owned(self) -> frozenset[KeyGroup]:
        """Key groups this worker owns now."""
        return self._ownership.owned()

    def key_group_of(self, topic: str, partition: int) -> KeyGroup | None:
        """The key group that a source or changelog partition belongs to."""
        return self._ownership.key_group_of(topic, partition)

    def state_bytes(self, key_group: KeyGroup) -> int | None:
        """Size of the key group's tables on this worker's disk and in their memtables; None = not open here."""
        return self._standbys.state_bytes(key_group)

    def lag_records(self, key_group: KeyGroup) -> int | None:
        """Number of changelog records that a cold owner would replay (fewer if the log was compacted)."""
        return self._standbys.written_records(key_group)

    def out_of_reach(self, key_group: KeyGroup) -> str | None:
        """Which broker does not answer that has inputs of the key group; None: all answer."""
        why: str | None = self._app.consumer.out_of_reach(self._ownership.sources([key_group]))
        return why

    def backlog(self, key_group: KeyGroup) -> int | None:
        """Number of input tuples that the key group's agents have not finished; None = not fetched here."""
        backlogs = [self._app.consumer.backlog(tp) for tp in self._ownership.sources([key_group])]
        return None if None in backlogs else sum(backlogs)
