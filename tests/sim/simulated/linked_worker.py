"""What a worker process is to its agent: its generation, the link, a report per interval, its host's time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from tests.sim.simulated.agent import AgentProcess
from tests.sim.simulated.ledger import Account, Ledger
from tests.sim.simulated.timeline import Act, Timeline
from trimtab_agent.commands.events import ProcessId
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.local import Hello, Statistics, Welcome, encode_frame
from trimtab_protocol.messages.names import NO_EPOCH, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import KeyGroupSample, WorkerState

MAX_WAITING_ACKS = 1_000


class LinkedWorker(ABC):
    """A worker process as its agent meets it."""

    def __init__(
        self,
        worker: WorkerId,
        pid: int,
        *,
        timeline: Timeline,
        ledger: Ledger,
        agent: Callable[[], AgentProcess | None],
        welcome: Welcome,
        board: PluginState,
        operators: Mapping[OperatorId, int],
    ) -> None:
        self.id = worker
        self.process = ProcessId(pid=pid, created=round(timeline.now, 2))
        self.alive = True
        self.other_cores = 0.0
        """What it uses beside its key groups."""
        self.state = WorkerState.REBALANCING
        self.generation = 0
        self.board = board
        self._timeline, self._ledger = timeline, ledger
        self._agent, self._welcome = agent, welcome
        self._operators = operators
        self._unsent: list[bytes] = []
        self._interval_began = timeline.now

    @abstractmethod
    def hear(self, frame: bytes) -> None:
        """A frame from the agent."""

    @abstractmethod
    def terminate(self) -> None:
        """SIGTERM."""

    # --- its generation

    @property
    def stable(self) -> bool:
        """In no rebalance, tables restored."""
        return self.state is WorkerState.RUNNING

    def _in(self, generation: int) -> bool:
        return self.stable and generation == self.generation

    def _owns(self, key_groups: Iterable[KeyGroup]) -> list[bool]:
        return [self._ledger.owns(key_group, self) for key_group in key_groups]

    # --- the link to the agent

    def connect(self) -> None:
        """The plug-in tries for ever; the model is told when there is an agent to connect to."""
        agent = self._agent()
        if self.alive and agent is not None and agent.alive and not agent.is_connected(self):
            agent.connect(self, self._hello())
            self._interval_began = self._timeline.now
            waiting, self._unsent = self._unsent, []
            for frame in waiting:
                self._write(frame)

    def _hello(self) -> Hello:
        return Hello(
            app=self.board.app,
            worker=self.id,
            pid=self.process.pid,
            steering=True,
            reason=None,
            operators=self._operators,
            versions={},
        )

    def _send(self, frame: Statistics | object) -> None:
        self._write(encode_frame(frame))  # type: ignore[arg-type]

    def _write(self, frame: bytes) -> None:
        """In order; what was on its way when the agent died is lost."""
        agent = self._agent()
        if agent is None or not agent.is_connected(self):
            self._unsent = [*self._unsent, frame][-MAX_WAITING_ACKS:]
        else:
            self._timeline.after(0.001, lambda: agent.take(self, frame))

    def _report_at_interval_end(self) -> None:
        left_s = self._welcome.interval_s - self._now() % self._welcome.interval_s

        def report() -> None:
            agent = self._agent()
            if agent is not None and agent.is_connected(self):
                self._send(self._statistics())
            self._interval_began = self._timeline.now
            self._report_at_interval_end()

        self._after(left_s, report)

    def charge(self, cpu_s: float) -> float:
        """What it says that a key group costs, of what it really does."""
        return cpu_s

    def backlog(self, account: Account) -> int:
        """How many inputs of a key group wait: the model keeps up."""
        return 0

    @property
    def used_cores(self) -> float:
        """What the process uses by the truth."""
        return self.other_cores + sum(self._ledger.accounts[each].load for each in self._ledger.owned_by(self))

    def _statistics(self) -> Statistics:
        interval_s = max(0.001, self._timeline.now - self._interval_began)
        rows = []
        process_s = self.other_cores * interval_s
        for key_group in self._ledger.owned_by(self):
            account = self._ledger.accounts[key_group]
            seconds = min(interval_s, self._timeline.now - account.since)
            measured_s = account.load * self._timeline.random.uniform(0.98, 1.02) * seconds
            process_s += measured_s
            rows.append(
                KeyGroupSample(
                    key_group=key_group,
                    worker=self.id,
                    cpu_s=self.charge(measured_s),
                    tuples_in=int(account.rate * seconds),
                    state_bytes=1000,
                    backlog=self.backlog(account),
                )
            )
        refused: dict[Fault, int] = dict(self.board.refused)
        return Statistics(
            at_ms=round(self._now() * 1000),
            interval_s=interval_s,
            state=self.state,
            cpu_s=process_s,
            epoch=self.board.placement.epoch if self.board.placement else NO_EPOCH,
            generation=self.generation or None,
            complete=True,
            key_groups=tuple(rows),
            pairs=(),
            refused=refused,
            standbys=self.board.faust_standbys,
        )

    # --- time

    def _now(self) -> float:
        """This host's idea of the time."""
        agent = self._agent()
        return self._timeline.now + (agent.machine.clock_ahead_s if agent is not None else 0.0)

    def _own(self, act: Act) -> Act:
        return lambda: act() if self.alive else None

    def _after(self, delay_s: float, act: Act) -> None:
        self._timeline.after(delay_s, self._own(act))

    def _soon(self, low_s: float, high_s: float, act: Act) -> None:
        self._timeline.soon(low_s, high_s, self._own(act))
