"""What the steering part answers to a command, and what it tells about itself.  No Faust in here.

One command may have several outcomes: a prepare is `Prepared` and, after the source's release, `Took`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trimtab_protocol.messages.commands import Command, Refusal
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import Epoch, KeyGroup, OperatorId
from trimtab_protocol.messages.report import WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The target is warm inside group `generation`: `lag_records` behind fresh changelog ends."""

    generation: int
    lag_records: int
    state_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The source has given away and the hand-over topic says so.  Seconds per step."""

    generation: int
    drain_s: float
    flush_s: float
    commit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The target owns.  `pause_s`: from the source's stop of fetching to the target's start of fetching."""

    generation: int
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """What was prepared is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoined:
    """The group has rebalanced; `epoch` is the placement it applied."""

    generation: int
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not done, and nothing irrevocable happened here; or, after `Prepared`, not taken."""

    refusal: Refusal
    detail: str


Outcome = Prepared | Released | Took | Abandoned | Rejoined | Refused
Report = Callable[[Outcome], None]


class Steering(Protocol):
    """What the link to the agent needs of the steering part.  Called on the app's event loop."""

    async def execute(self, command: Command, report: Report) -> None:
        """Carry out a prepare, release, abandon or rejoin; every outcome goes to `report`, also after the return."""

    @property
    def refusal(self) -> str | None:
        """Why this worker only reports; None = it steers."""

    @property
    def waits_for(self) -> str | None:
        """Which of the app's topics the broker does not know yet; None = it knows all of them."""

    @property
    def state(self) -> WorkerState:
        """What this worker is doing."""

    @property
    def epoch(self) -> Epoch | None:
        """Epoch of the newest placement seen."""

    @property
    def refused(self) -> Mapping[Fault, int]:
        """Placements and hand-over records refused since the start, by reason."""

    @property
    def breaches(self) -> int:
        """How often, since the start, a changelog was about to overwrite state that this worker writes."""

    @property
    def generation(self) -> int | None:
        """Generation of the consumer group; None before the first join."""

    @property
    def disturbances(self) -> int | None:
        """Counts what this worker has done beside the job: the same figure twice, and there was nothing between.

        Rebalances, restored records, hand-overs and whatever follows from them count; None while any of it goes on.
        """

    def operators(self) -> Mapping[OperatorId, int]:
        """Number of key groups of each operator; empty until the broker's metadata is known."""

    @property
    def standbys(self) -> int:
        """How many standby replicas the app asks for."""

    def owned(self) -> frozenset[KeyGroup]:
        """Key groups this worker owns now."""

    def key_group_of(self, topic: str, partition: int) -> KeyGroup | None:
        """The key group that a source or changelog partition belongs to."""

    def state_bytes(self, key_group: KeyGroup) -> int | None:
        """Size of the key group's tables on this worker's disk."""

    def lag_records(self, key_group: KeyGroup) -> int | None:
        """Changelog records that a cold owner would replay (end - start of the changelogs)."""

    def backlog(self, key_group: KeyGroup) -> int | None:
        """Input tuples that wait for the key group's agents."""
