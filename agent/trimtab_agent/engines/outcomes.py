"""Interface of an engine plug-in: outcomes of commands, and the status of the worker.  Independent of Faust.

One command may have several outcomes: a prepare first yields `Prepared` and, after the source's release, `Took`.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trimtab_protocol.messages.commands import Command, Refusal
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import CommandId, Epoch, KeyGroup, OperatorId
from trimtab_protocol.messages.report import WorkerState

MAX_REMEMBERED = 10_000
"""Number of commands whose answers the worker keeps for repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The target is warm in group `generation`: `lag_records` behind the changelogs' current ends."""

    generation: int
    lag_records: int
    state_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The source has given the key groups away and written so to the hand-over topic.  Seconds per step."""

    generation: int
    drain_s: float
    flush_s: float
    commit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The target owns the key groups.  `pause_s`: from the source's last fetch to the target's first."""

    generation: int
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The target has closed what it had prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoined:
    """The group has rebalanced; `epoch` is the placement it applied."""

    generation: int
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRefused:
    """The command was not carried out and nothing irrevocable happened.  After `Prepared`: nothing was taken over."""

    refusal: Refusal
    detail: str


Outcome = Prepared | Released | Took | Abandoned | Rejoined | CommandRefused
Report = Callable[[Outcome], None]


class CommandExecutor(Protocol):
    """Carries out the agent's commands.  Called on the app's event loop."""

    async def execute(self, command: Command, report: Report) -> None:
        """Carry out a prepare, release, abandon or rejoin.

        Every outcome goes to `report`, also those that follow after this call has returned.
        """


class WorkerStatus(Protocol):
    """Current state of a worker.  Called on the app's event loop; nothing here blocks."""

    @property
    def refusal(self) -> str | None:
        """Why this worker only reports; None = it can be steered."""

    @property
    def waits_for(self) -> str | None:
        """What is not as it should be, such as topics that the broker does not know yet; None = nothing.

        The worst only.
        """

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
        """Number of times since the start that a changelog would have overwritten state that this worker writes."""

    @property
    def generation(self) -> int | None:
        """Generation of the consumer group; None before the first join."""

    @property
    def work_beside_the_job(self) -> int | None:
        """Counter of the work that this worker did beside the job; None while such work is running.

        Rebalances, restored records, hand-overs and their consequences count.  If the figure is the same at the
        beginning and the end of an interval, the worker did nothing but the job in it.
        """

    def operators(self) -> Mapping[OperatorId, int]:
        """Number of key groups of each operator; empty until the broker's metadata is known."""

    @property
    def standbys(self) -> int:
        """Number of standby replicas that the app asks for."""

    @property
    def cold(self) -> int | None:
        """Number of key groups that the placement has it stand by for and that are not warm yet; None = unknown."""

    @property
    def fresh(self) -> bool:
        """Whether this worker started a short while ago and the app had no state then; False if that is unknown."""

    @property
    def copies(self) -> tuple[Copy, ...]:
        """State on this worker's disk of key groups that it neither owns nor follows; empty if that is unknown."""

    @property
    def following_s(self) -> float | None:
        """CPU seconds since the start that it has taken to keep state warm for key groups of others; None = unknown."""

    @property
    def paused(self) -> tuple[float, int] | None:
        """Key-group seconds since the start for which inputs stood still at rebalances, of how many key groups.

        None = unknown.
        """

    @property
    def reset(self) -> bool:
        """Whether, within the last hour, it began at the first records of topics that its tables have counted.

        False if that is unknown.
        """

    @property
    def maybe_reset(self) -> bool:
        """Whether that may have happened within the last hour, but nobody knows."""

    @property
    def lost(self) -> bool:
        """Whether, within the last hour, it found that records were deleted before it read them: inputs, or changes
        of its tables.  False if that is unknown.
        """

    def owned(self) -> frozenset[KeyGroup]:
        """Key groups this worker owns now."""

    def key_group_of(self, topic: str, partition: int) -> KeyGroup | None:
        """The key group that a source or changelog partition belongs to."""

    def state_bytes(self, key_group: KeyGroup) -> int | None:
        """Size of the key group's tables on this worker's disk."""

    def lag_records(self, key_group: KeyGroup) -> int | None:
        """Changelog records that a cold owner would replay (end - start of the changelogs)."""

    def out_of_reach(self, key_group: KeyGroup) -> str | None:
        """Why the key group's inputs cannot be read, so that its load is unknown; None = they can."""

    def backlog(self, key_group: KeyGroup) -> int | None:
        """Input tuples that are waiting for the key group's agents."""


class CommandOutcomes:
    """The outcomes of one command and their listener.

    An agent that restarted sends the command again and then receives all outcomes.
    """

    def __init__(self, report: Report) -> None:
        self._outcomes: list[Outcome] = []
        self._report = report

    def say(self, outcome: Outcome) -> None:
        """Report an outcome."""
        self._outcomes.append(outcome)
        self._report(outcome)

    def repeat(self, report: Report) -> None:
        """Report all outcomes so far, and all later ones, to a new listener."""
        self._report = report
        for outcome in self._outcomes:
            report(outcome)


class Answers:
    """The newest `MAX_REMEMBERED` answers by command."""

    def __init__(self) -> None:
        self._answers: OrderedDict[CommandId, CommandOutcomes] = OrderedDict()

    def known(self, command: CommandId) -> CommandOutcomes | None:
        """The answer to a command that was received before; None for a new one."""
        return self._answers.get(command)

    def begin(self, command: CommandId, report: Report) -> CommandOutcomes:
        """Begin the answer to a new command."""
        answer = self._answers[command] = CommandOutcomes(report)
        if len(self._answers) > MAX_REMEMBERED:
            self._answers.popitem(last=False)
        return answer
