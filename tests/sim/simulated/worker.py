"""A worker process as a model: what the plug-in does at the boundary of its link, step by step, without Faust.

PluginState, answers, acks and frames are the real ones.  Every step looks at the generation again after it has waited.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tests.narrow import of_type
from tests.sim.simulated.agent import AgentProcess
from tests.sim.simulated.broker import Broker
from tests.sim.simulated.budgeted import pause_of
from tests.sim.simulated.group import FENCE_S, Group
from tests.sim.simulated.handovers import HandoverReader
from tests.sim.simulated.ledger import Ledger
from tests.sim.simulated.linked_worker import LinkedWorker
from tests.sim.simulated.network import Network
from tests.sim.simulated.placements import PlacementReader
from tests.sim.simulated.timeline import Timeline
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_agent.engines.outcomes import Answers, CommandOutcomes
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.messages.commands import Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.local import Welcome, decode_frame
from trimtab_protocol.messages.names import Epoch, HostId, KeyGroup, Topics, WorkerId
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.report import WorkerState

SETTINGS = SteeringSettings()
PATIENT = frozenset({CommandKind.PREPARE, CommandKind.ABANDON, CommandKind.REJOIN})
RETRY_S = 0.1
SIMULATED = "simulated"
"""The detail of a refusal."""


class WorkerProcess(LinkedWorker):
    """One process from its start to its end.  `slow`: standbys do not catch up, begun events do not end.

    `restore_s`: how long a target restores, at least and at most.
    """

    restore_s: tuple[float, float] = (0.05, 2.0)

    def __init__(
        self,
        worker: WorkerId,
        host: HostId,
        pid: int,
        *,
        timeline: Timeline,
        broker: Broker,
        network: Network,
        group: Group,
        ledger: Ledger,
        agent: Callable[[], AgentProcess | None],
        welcome: Welcome,
        trust: Path,
        followed: Callable[[WorkerId, Placement], None],
    ) -> None:
        super().__init__(
            worker,
            pid,
            timeline=timeline,
            ledger=ledger,
            agent=agent,
            welcome=welcome,
            board=PluginState(cluster=welcome.cluster, app=group.app, worker=worker, trust=TrustFile(trust)),
            operators=group.operators,
        )
        self.host = host
        self.slow = False
        self.before_rebalance: frozenset[KeyGroup] = frozenset()
        self._followed = followed
        self._broker, self._network = broker, network
        self._group = group
        self._topics = Topics(welcome.cluster)
        self._answers = Answers()
        self._prepared: dict[str, tuple[CommandOutcomes, tuple[KeyGroup, ...]]] = {}
        self._warm: set[KeyGroup] = set()
        self._handovers = HandoverReader(self._topics.handover, broker)
        self._placements = PlacementReader(self.board, broker)
        self._polls = False
        broker.watch(self._topics.placement, self._poll_soon)
        broker.watch(self._topics.handover, self._poll_soon)
        self._poll()
        self._after(0.0, self.connect)
        self._report_at_interval_end()
        self._soon(0.5, 3.0, self._join_unless_member)

    # --- its life

    @property
    def connected(self) -> bool:
        """Whether it reaches the broker."""
        return self.alive and self._network.reaches(self.host)

    def kill(self) -> None:
        """SIGKILL: what it did since its last commit will be done again."""
        if self.alive:
            self.alive = False
            self._drop(committed=False)
            self._end()
            self._group.lost(self)

    def terminate(self) -> None:
        """SIGTERM: it commits and leaves the group."""
        if self.alive:
            self._soon(0.1, 2.0, self._stop)

    def _stop(self) -> None:
        committed = self._group.accepts(self, self.generation)
        self._drop(committed=committed)
        self.alive = False
        self._end()
        self._group.leave(self) if self._network.reaches(self.host) else self._group.lost(self)

    def _end(self) -> None:
        self._broker.unwatch(self._poll_soon)
        if (agent := self._agent()) is not None:
            agent.disconnect(self)

    def cut_off(self) -> None:
        """The broker is away from its host: beyond its session it fences itself."""
        if self.alive:
            self._group.lost(self)
            self._after(FENCE_S, self._fence)

    def back(self) -> None:
        """The broker is there again."""
        if self.alive:
            self._group.found(self)
            self._join_unless_member()
            self._placements.begin()  # as a new connection does
            self._poll_soon()

    def _join_unless_member(self) -> None:
        if not self.connected:
            return  # `back` comes here again
        fenced = self.state is WorkerState.REBALANCING and not self._group.rebalancing
        if fenced or self not in self._group.members or self.generation != self._group.generation:
            self.rebalancing()
            self._group.join(self)

    def _fence(self) -> None:
        if not self._network.reaches(self.host):
            self._drop(committed=False)
            self._void()

    def _drop(self, *, committed: bool) -> None:
        owned = self._ledger.owned_by(self)
        self.before_rebalance = frozenset(owned) or self.before_rebalance
        for key_group in owned:
            self._group.committed[key_group] = self._ledger.disown(key_group, self, committed=committed)

    def _void(self) -> None:
        self.state = WorkerState.REBALANCING
        self._warm.clear()
        prepared, self._prepared = self._prepared, {}
        for answer, _ in prepared.values():
            answer.refuse(Refusal.GENERATION, "a rebalance came between")

    # --- the group

    def rebalancing(self) -> None:
        """The generation ends: commit, own nothing."""
        if self.alive and self.state is not WorkerState.REBALANCING:
            self._drop(committed=self._group.accepts(self, self.generation))
            self._void()

    def assigned(self, key_groups: list[KeyGroup], generation: int, epoch: Epoch) -> None:
        """The next generation begins."""
        self.generation, self.state = generation, WorkerState.RECOVERING
        self.board.applied = epoch
        self.before_rebalance = frozenset(key_groups)
        for key_group in key_groups:
            self._ledger.own(key_group, self, self.id, self._group.committed.get(key_group, 0))
        self._soon(0.1, 1.5, lambda: self._restored(generation))

    def _restored(self, generation: int) -> None:
        if self.generation == generation and self.state is WorkerState.RECOVERING:
            self.state = WorkerState.RUNNING
            self._settle()

    # --- placements and hand-over records

    def _poll_soon(self) -> None:
        if not self._polls and self.alive:
            self._polls = True
            self._after(self._network.delay_s(), self._poll)

    def _poll(self) -> None:
        self._polls = False
        if not self.connected:
            return  # `back` looks again
        self.catch_up()
        for record in self._handovers.releases():
            if record.target == self.id:
                self._take(record)

    def catch_up(self) -> None:
        """Read what is on the placements' topic now."""
        new = self.connected and self._placements.read()
        if new and self.board.placement is not None:
            self._followed(self.id, self.board.placement)
            self._settle()
        if self._placements.must_read_again(self._timeline.now):
            self._poll_soon()
        elif self.board.flaw is not None:
            self._after(RETRY_S, self._poll_soon)

    def _settle(self) -> None:
        """Keep warm what the placement says and what was prepared."""
        placement = self.board.placement
        if not self.stable or placement is None:
            return
        placed = {
            KeyGroup(placement.app, operator, partition)
            for operator, rows in placement.owners.items()
            for partition, row in enumerate(rows)
            if self.id in row
        }
        wanted = placed.union(*(key_groups for _, key_groups in self._prepared.values()))
        self._warm = {key_group for key_group in wanted if not self._ledger.owns(key_group, self)}

    def _take(self, record: HandoverRecord) -> None:
        def own() -> None:
            if not self._in(record.generation) or not self._group.accepts(self, record.generation):
                self._refuse_at_last(record.handover, Refusal.GENERATION)
                return
            for (_, _, offset), key_group in zip(record.offsets, record.key_groups, strict=True):
                self._ledger.own(key_group, self, self.id, offset)
            self._warm.difference_update(record.key_groups)
            if (answer := self._ended(record.handover)) is not None:
                answer.say(Phase.TOOK, generation=self.generation, pause_s=pause_of(record.handover))
            self._handovers.publish(replace(record, kind=HandoverKind.TOOK, offsets=(), ends=(), held_s=0.0))

        if not self._in(record.generation):
            self._refuse_at_last(record.handover, Refusal.GENERATION)
        elif any(self._owns(record.key_groups)) or not self._warm.issuperset(record.key_groups):
            self._refuse_at_last(record.handover, Refusal.NOT_PREPARED)
            self._group.rebalance()
        else:
            self._soon(0.01, 0.3, own)

    def _ended(self, handover: str) -> CommandOutcomes | None:
        prepared = self._prepared.pop(handover, None)
        return None if prepared is None else prepared[0]

    def _refuse_at_last(self, handover: str, refusal: Refusal) -> None:
        if (answer := self._ended(handover)) is not None:
            answer.refuse(refusal, SIMULATED)

    # --- commands

    def hear(self, frame: bytes) -> None:
        """A frame from the agent."""
        command = of_type(Command, decode_frame(frame))
        if not self.alive:
            return
        if (known := self._answers.known(command.id)) is not None:
            known.repeat(self._send)
        else:
            self._admit(command, self._answers.begin(command, self._send, self._now))

    def _admit(self, command: Command, answer: CommandOutcomes) -> None:
        if self.stable:
            steps = {
                CommandKind.PREPARE: self._prepare,
                CommandKind.RELEASE: self._release,
                CommandKind.ABANDON: self._abandon,
                CommandKind.REJOIN: self._rejoin,
            }
            steps[command.kind](command, answer)
        elif command.kind in PATIENT and self._now() < command.deadline:
            self._after(RETRY_S, lambda: self._admit(command, answer))
        else:
            answer.refuse(Refusal.GENERATION, SIMULATED)

    def _prepare(self, command: Command, answer: CommandOutcomes) -> None:
        assert command.handover is not None
        if command.target != self.id or any(self._owns(command.key_groups)):
            answer.refuse(Refusal.PRECONDITION, SIMULATED)
            return
        handover, generation = command.handover, self.generation
        self._prepared[handover] = answer, command.key_groups

        def ready() -> None:
            if self._prepared.get(handover) != (answer, command.key_groups):
                return  # voided or abandoned meanwhile
            if self.slow:
                del self._prepared[handover]
                answer.refuse(Refusal.CATCH_UP_TIMEOUT, SIMULATED)
            else:
                self._warm.update(command.key_groups)
                answer.say(Phase.PREPARED, generation=generation, lag_records=0, state_bytes=1000)

        if self.slow:
            self._after(max(0.1, command.deadline - self._now()), ready)
        else:
            self._soon(*self.restore_s, ready)

    def _release(self, command: Command, answer: CommandOutcomes) -> None:
        assert command.generation is not None
        limit = self._timeline.now + SETTINGS.placement_wait_s

        def wait_for_placement() -> None:
            if not self._in(generation):
                answer.refuse(Refusal.GENERATION, SIMULATED)
            elif not all(self._owns(command.key_groups)) or command.source != self.id:
                answer.refuse(Refusal.PRECONDITION, SIMULATED)
            elif self._is_placed(command):
                self._soon(0.02, 0.5, lambda: self._give(command, generation, answer))
            elif self._timeline.now < limit:
                self._after(RETRY_S, wait_for_placement)
            else:
                answer.refuse(Refusal.PRECONDITION, SIMULATED)

        generation = command.generation
        wait_for_placement()

    def _is_placed(self, command: Command) -> bool:
        placement = self.board.placement
        return placement is not None and all(
            placement.of(k.operator, k.partition)[:1] == (command.target,) for k in command.key_groups
        )

    def _give(self, command: Command, generation: int, answer: CommandOutcomes) -> None:
        assert command.handover is not None
        assert command.source is not None
        assert command.target is not None
        if self.slow:
            answer.refuse(Refusal.DRAIN_TIMEOUT, SIMULATED)
        elif not self._in(generation):
            answer.refuse(Refusal.GENERATION, SIMULATED)
        elif not self._group.accepts(self, generation):
            answer.refuse(Refusal.COMMIT_REFUSED, SIMULATED)
        else:
            offsets = self.give_away(command.key_groups)
            self._warm.update(command.key_groups)
            self._handovers.publish(
                HandoverRecord(
                    kind=HandoverKind.RELEASED,
                    cluster=command.cluster,
                    app=self.board.app,
                    handover=command.handover,
                    epoch=command.epoch,
                    generation=generation,
                    source=command.source,
                    target=command.target,
                    key_groups=command.key_groups,
                    offsets=tuple(("input", k.partition, offset) for k, offset in offsets.items()),
                )
            )
            answer.say(Phase.RELEASED, generation=generation)
            self._after(SETTINGS.took_limit_s, lambda: self._look_after(str(command.handover), generation))

    def give_away(self, key_groups: Iterable[KeyGroup]) -> dict[KeyGroup, int]:
        """Finish, commit, own no more; returns the committed offsets."""
        offsets = {key_group: self._ledger.disown(key_group, self, committed=True) for key_group in key_groups}
        self._group.committed.update(offsets)
        self.before_rebalance -= offsets.keys()
        return offsets

    def _look_after(self, handover: str, generation: int) -> None:
        if handover not in self._handovers.taken and self._in(generation) and self.connected:
            self._group.rebalance()

    def _abandon(self, command: Command, answer: CommandOutcomes) -> None:
        self._prepared.pop(str(command.handover), None)
        self._settle()
        answer.say(Phase.ABANDONED)

    def _rejoin(self, command: Command, answer: CommandOutcomes) -> None:
        self._group.rebalance()
        generation = self.generation

        def wait() -> None:
            if self.stable and self.generation > generation:
                answer.say(Phase.REJOINED, generation=self.generation)
            elif self._now() < command.deadline:
                self._after(RETRY_S, wait)
            else:
                answer.refuse(Refusal.FAILED, SIMULATED)

        wait()
