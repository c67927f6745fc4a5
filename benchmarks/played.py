"""A controller on played time, and what hosts measure: for benchmarks that play a cluster in one process.

Decider, solver and execution are the real ones; hosts, engine and stream are played.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trimtab_controller.decider import events as deciding
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Adopted, Planned, Resized, Scaled, Skip, StandbysPlaced
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.decider.window.owned import OwnedTable
from trimtab_controller.decider.window.view import Worker
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_controller.execution.windows import ownership
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis, WorkerState
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, NodeWindow, Snapshot

GENERATION = 1
SEARCH_LOOKS = 60
"""The search may look at the clock so often, so that every machine finds the same plans."""
ACTED_ON = (Planned, Adopted, StandbysPlaced, Scaled, Resized)


class PlayedController:
    """Decider and execution of one app in windows of `window_s` seconds.

    `answers(now, command)` = what the agents say to a command, and what changes with it.  `acts_on` = the kinds of
    decisions that are carried out.
    """

    def __init__(
        self,
        app: AppId,
        *,
        cluster: str,
        window_s: float,
        answers: Callable[[float, Command], Iterable[Ack]],
        needs: Requirements,
        acts_on: tuple[type, ...] = ACTED_ON,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        looks: int = SEARCH_LOOKS,
        **options: Any,
    ) -> None:
        self._app, self._window_s, self._answers, self._acts_on = app, window_s, answers, acts_on
        self._settings, self._looks = settings, looks
        self._execution = ExecutionMachine(cluster, executing.ExecutionLimits(), Execution(generation=GENERATION))
        self.decider = Decider(self._settings, needs, self._execution.state, acting=True, **options)
        self.decision: object = None

    @property
    def state(self) -> Execution:
        """The state of the execution."""
        return self._execution.state

    def advance(self, now: float) -> None:
        """Time passes until `now`."""
        while (wake_at := self._execution.wake_at) is not None and wake_at <= now:
            self._perform(now, self._execution.on_tick(wake_at))

    def see(self, now: float, snapshot: Snapshot) -> None:
        """One window, and the decision that follows."""
        self.advance(now)
        if self._execution.state.busy(self._app):
            seen = executing.WindowSeen(start_s=now - self._window_s, end_s=now, owners=ownership(snapshot))
            self._perform(now, self._execution.on_event(now, seen))
        self._decide(now, deciding.SnapshotArrived(snapshot=snapshot))

    def _decide(self, now: float, event: deciding.Event) -> None:
        for action in self.decider.on_event(now, event):
            match action:
                case deciding.Solve(view=view):
                    looks = itertools.count()
                    question = question_of(view, self._settings, self._looks)
                    found = answer(question, clock=lambda: float(next(looks)))  # noqa: B023 - called at once
                    self._decide(now, deciding.SolverAnswered(answer=found))
                case deciding.Decided(decision=decision):
                    self.decision = decision
                    if isinstance(decision, self._acts_on) and not isinstance(decision, Skip):
                        self._carry_out(now, decision)

    def _carry_out(self, now: float, decision: executing.Event) -> None:
        if isinstance(decision, Planned | Adopted | StandbysPlaced):
            decision = replace(decision, lacking={})  # new standbys restore at once
        self._perform(now, self._execution.on_event(now, decision))

    def _perform(self, now: float, actions: list[executing.Action]) -> None:
        for action in actions:
            if isinstance(action, executing.Publish):
                self.decider.on_event(now, deciding.ExecutionChanged(execution=action.execution))
                for command in action.commands:
                    for ack in self._answers(now, command):
                        self._perform(now, self._execution.on_event(now, executing.AckSeen(ack=ack)))

    def handed_over(self, now: float, command: Command, owner: dict[KeyGroup, WorkerId]) -> Iterable[Ack]:
        """The acks of a hand-over without any delay; `owner` changes with it."""
        if command.kind is CommandKind.PREPARE:
            yield Ack.to(command, Phase.PREPARED, at=now, generation=GENERATION)
        elif command.kind is CommandKind.RELEASE and command.target is not None:
            handover = self._execution.state.handover_of(command.id)
            if handover is not None and handover.prepare is not None:
                owner.update(dict.fromkeys(command.key_groups, command.target))
                yield Ack.to(handover.prepare, Phase.TOOK, at=now, generation=GENERATION, pause_s=0.1)


def host_of(worker: WorkerId) -> HostId:
    """The host of a worker that is alone on it: `h7` of `w7`."""
    return HostId(f"h{worker[1:]}")


def snapshot_of(
    cluster: str,
    start_s: float,
    window_s: float,
    *,
    hosts: Iterable[HostWindow],
    nodes: Iterable[NodeWindow],
    key_groups: Iterable[KeyGroupWindow],
    expected: int | None = None,
) -> Snapshot:
    """A window of a cluster of so many `expected` hosts, all of which report if it is None."""
    seen, end_ms = tuple(hosts), round(1000 * (start_s + window_s))
    return Snapshot(
        cluster=cluster,
        start_ms=round(1000 * start_s),
        end_ms=end_ms,
        published_ms=end_ms,
        hosts_seen=len(seen),
        hosts_expected=len(seen) if expected is None else expected,
        watermark_ms=None,
        late_rows=0,
        hosts=seen,
        nodes=tuple(nodes),
        key_groups=tuple(key_groups),
    )


def host_window(host: HostId, window_s: float, cores: float, cpu: float | None = None) -> HostWindow:
    """A host that has reported for the whole window; `cpu` in cores."""
    return HostWindow(host=host, covered_s=window_s, cpu=cpu, cores=cores, basis=Basis.CONFIG)


def node_window(worker: WorkerId, host: HostId, app: AppId, window_s: float, **fields: Any) -> NodeWindow:
    """A steered worker of one core that has run for the whole window."""
    whole = {"cpu": None, "state": WorkerState.RUNNING, "capacity": 1.0, "complete": True, "steering": True}
    return NodeWindow(worker=worker, host=host, app=app, covered_s=window_s, **{**whole, **fields})


def owned_table(
    app: AppId, operator: OperatorId, names: tuple[WorkerId, ...], partitions: np.ndarray, owner: np.ndarray,
    load: np.ndarray, state_bytes: np.ndarray,
) -> OwnedTable:  # fmt: skip
    """Key groups of one operator; `owner` indexes `names`."""
    count = len(partitions)
    return OwnedTable(
        app=app,
        operators=(operator,),
        workers=names,
        operator=np.zeros(count, np.int64),
        partition=partitions,
        owner=owner,
        load=load,
        state_bytes=state_bytes,
        traffic=np.full((2, count), np.nan),
    )


def workers_alone(names: Sequence[WorkerId]) -> tuple[Worker, ...]:
    """Workers of one core, each on a host of its own."""
    return tuple(Worker(id=name, host=HostId(f"h-{name}"), capacity=1.0, draining=False) for name in names)
