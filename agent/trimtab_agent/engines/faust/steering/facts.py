"""What a worker knows about itself; nothing here changes anything, and nothing waits."""

from collections.abc import Awaitable, Mapping
from typing import Any

from trimtab_agent.engines.faust.group.ownership import Ownership
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.handover.handover import Handover
from trimtab_agent.engines.faust.tables.standbys import Standbys
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId
from trimtab_protocol.messages.report import WorkerState

NAMED = 5
"""Of the topics that are missing."""


class Facts:
    """The read-only half of `outcomes.Steering`."""

    def __init__(
        self, app: Any, shared: PluginState, ownership: Ownership, standbys: Standbys, handover: Handover
    ) -> None:
        self._app = app
        self._shared = shared
        self._ownership = ownership
        self._standbys = standbys
        self._handover = handover
        self._refusal: str | None = None
        self._disturbances = 0
        self._disturbers = 0

    @property
    def refusal(self) -> str | None:
        """Why this worker only reports; None = it steers."""
        return self._refusal or self._shared.differs

    @property
    def waits_for(self) -> str | None:
        """Which of the app's topics the broker does not know yet; None = it knows all of them."""
        missing = sorted(self._ownership.missing)
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        return f"the broker does not know these topics: {', '.join(missing[:NAMED])}{more}" if missing else None

    @property
    def state(self) -> WorkerState:
        """What this worker is doing."""
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
        """How often, since the start, a changelog was about to overwrite state that this worker writes."""
        return self._shared.breaches

    @property
    def generation(self) -> int | None:
        """Generation of the consumer group; None before the first join."""
        return self._handover.generation or None

    @property
    def disturbances(self) -> int | None:
        """Counts all that is done here beside the job's own work; None while any of it goes on."""
        return None if self._disturbers else self._disturbances + self._standbys.applied_records

    def _disturbed(self) -> None:
        self._disturbances += 1

    async def _disturbing(self, work: Awaitable[None]) -> None:
        """Do what is no part of the job's own work."""
        self._disturbances += 1
        self._disturbers += 1
        try:
            await work
        finally:
            self._disturbers -= 1

    def operators(self) -> Mapping[OperatorId, int]:
        """Number of key groups of each operator; empty until the broker's metadata is known."""
        return {operator.id: operator.partitions for operator in self._ownership.operators().values()}

    @property
    def standbys(self) -> int:
        """How many standby replicas the app asks for."""
        return self._shared.faust_standbys

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
        """Changelog records written so far: what a cold owner would replay (fewer where the log was compacted)."""
        return self._standbys.written_records(key_group)

    def backlog(self, key_group: KeyGroup) -> int | None:
        """Input tuples that the key group's agents have not finished; None = not fetched here."""
        backlogs = [self._app.consumer.backlog(tp) for tp in self._ownership.sources([key_group])]
        return None if None in backlogs else sum(backlogs)
