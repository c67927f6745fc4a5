"""`python -m tests.sim.random_intents [--steps N] [--seed SEED]`: whatever is said and seen, no machine raises.

The real decider and the real execution, together as the controller's loop joins them, on fake time.  Windows, intents,
the solver's answers, acks, revoked keys, holds, time-outs and changes of the leader come in any order, also such as no
cluster would bring about: workers vanish and come back under other apps, acks are late or wrong, operators speak of
what does not exist.  What is decided is put into words, what is published into records.
"""

import argparse
import random
import sys
from collections.abc import Iterable
from dataclasses import replace

from tests.controller.decider.decider_situations import a_load, a_node, a_window
from trimtab_controller.decider import events as deciding
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Decision, Forgotten, Planned, Skip, describe
from trimtab_controller.decider.values.plan_settings import PlanMode, PlanSettings
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.decider.values.settings import First, Requirements, Settings
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.budget import PauseBudget
from trimtab_controller.execution.disruption import DisruptionSettings
from trimtab_controller.execution.journal import JournalEntry, decode_entry, encode_entry
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_controller.execution.windows import WindowReader
from trimtab_controller.loop.events.log import EventLog
from trimtab_controller.loop.publications import records_of
from trimtab_controller.loop.recovery import taken_over
from trimtab_controller.solver.answer import Answer, NoAnswer
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.intents import (
    AddRule,
    Approve,
    Drain,
    ForgetApp,
    ForgetWorker,
    Intent,
    MoveKeyGroups,
    Pause,
    Reject,
    RequestedMove,
    RollingRestart,
    Scale,
    Stop,
    Undrain,
)
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, Topics, WorkerId
from trimtab_protocol.messages.report import Absence, Basis, WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.snapshot import HostWindow, NodeWindow

APPS = (AppId("a"), AppId("b"))
WORKERS = tuple(WorkerId(f"w{at}") for at in range(6))
KEY_GROUPS = {app: tuple(KeyGroup(app, OperatorId("sums"), at) for at in range(5)) for app in APPS}
STEPS_OF_ONE = 500
TOPICS = Topics("c")
SETTINGS = Settings(max_migrations=3, load_distance=5.0, min_interval_s=10.0, min_windows=1)
SAID = {"by": "ann", "reason": "simulated"}
ANSWERS = {
    CommandKind.PREPARE: (Phase.PREPARED, Phase.TOOK),
    CommandKind.RELEASE: (Phase.RELEASED,),
    CommandKind.START: (Phase.STARTED,),
    CommandKind.STOP: (Phase.STOPPED,),
}


def host_of(worker: WorkerId) -> HostId:
    return HostId(f"h{int(worker[1:]) // 2}")


class Controller:
    """Two apps on six workers and three hosts, with settings drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.drawn = drawn = random.Random(seed)
        self.now = 1000.0
        limit_s = drawn.choice((None, None, 20.0))
        self.limits = executing.ExecutionLimits(disruption=DisruptionSettings(max_paused_s_per_hour=limit_s))
        self.scaling = ScalingSettings(mode=drawn.choice(tuple(Mode)), scale_up_delay_s=0.0, scale_down_delay_s=20.0)
        self.first, self.mode = drawn.choice(tuple(First)), drawn.choice(tuple(PlanMode))
        self.intents: dict[str, Intent] = {}
        self.commands: list[Command] = []
        self.decisions: list[type[Decision]] = []
        self.journal = encode_entry(JournalEntry(execution=Execution(generation=1)))
        self.lead(Execution(generation=1))
        self.runs = {worker: APPS[at % 2] for at, worker in enumerate(WORKERS)}
        self.owners = {each: drawn.choice(self.of(app)) for app in APPS for each in KEY_GROUPS[app]}
        self.cpu = {each: drawn.choice((0.02, 0.1, 0.3)) for each in self.owners}

    def lead(self, execution: Execution) -> None:
        """Begin with this state, and with nothing in memory."""
        self.execution = ExecutionMachine("c", self.limits, execution)
        self.windows = WindowReader(max_link=0.5)
        self.decider = Decider(
            SETTINGS,
            Requirements(max_age_s=45.0),
            execution,
            acting=True,
            scaling=self.scaling,
            first=self.first,
            plans=PlanSettings(mode=self.mode, approval_s=60.0),
            budget=PauseBudget.of(self.limits),
        )
        self.events = EventLog(TOPICS, "here", previous=None)
        self.asked: deciding.Solve | None = None
        self.published = execution
        self.events.begins(self.now, execution)
        self.decide(deciding.IntentsChanged(intents=tuple(self.intents.values())))

    def of(self, app: AppId) -> list[WorkerId]:
        """The workers that run an app."""
        return [worker for worker, runs in self.runs.items() if runs == app]

    def step(self) -> None:
        """One thing happens, and time passes."""
        drawn = self.drawn
        self.now += drawn.choice((0.0, 0.1, 1.0, 5.0))
        happens = drawn.choices(
            (
                self.window,
                self.say,
                self.take_back,
                self.answer,
                self.ack,
                self.change,
                self.revoke,
                self.succeed,
                self.hold,
            ),
            (8, 2, 3, 5, 8, 0.5, 0.1, 0.1, 0.05),
        )[0]
        happens()
        if drawn.random() < 0.5:
            if (wake_at := self.execution.wake_at) is not None and wake_at <= self.now:
                self.carry_on(self.execution.on_tick(self.now))
            self.perform(self.decider.on_tick(self.now))

    # --- as the loop does it

    def decide(self, event: deciding.Event) -> None:
        self.perform(self.decider.on_event(self.now, event))

    def perform(self, actions: Iterable[deciding.Action]) -> None:
        for action in actions:
            match action:
                case deciding.Solve(view=view):
                    question_of(view, SETTINGS, 1.0)
                    self.asked = action
                case deciding.Decided(decision=decision):
                    self.decisions.append(type(decision))
                    assert describe(decision)
                    self.events.decided(decision)
                    if not isinstance(decision, Skip):
                        self.execute(decision)
                case _:
                    pass

    def execute(self, event: executing.Event) -> None:
        self.carry_on(self.execution.on_event(self.now, event))

    def carry_on(self, actions: Iterable[executing.Action]) -> None:
        for action in actions:
            if isinstance(action, executing.Publish):
                self.commands += action.commands
                records = records_of(action, {}, TOPICS, limited=True)
                self.journal = next(row.value for row in records if row.topic == TOPICS.journal) or b""
                self.events.of_step(self.now, self.published, action.execution)
                self.published = action.execution
                gone = self.intents.keys() & set(action.answered)
                self.intents = {key: each for key, each in self.intents.items() if key not in gone}
                self.decide(deciding.ExecutionChanged(execution=action.execution))
                if gone:
                    self.decide(deciding.IntentsChanged(intents=tuple(self.intents.values())))

    # --- what happens

    def window(self) -> None:
        """The next window: each worker runs, is in a rebalance, restores or is away; a host may be silent."""
        drawn = self.drawn
        self.now += drawn.choice((10.0, 10.0, 1.0))
        vague = drawn.random() < 0.05
        states = {worker: drawn.choices(tuple(WorkerState), (60, 1, 1, 2))[0] for worker in WORKERS}
        silent = {HostId("h0")} if drawn.random() < 0.02 else set()
        nodes = [self._node(worker, states[worker]) for worker in WORKERS if host_of(worker) not in silent]
        here = {row.worker for row in nodes if row.state is not WorkerState.AWAY}
        rows = [
            a_load(
                each,
                owner,
                None if vague and drawn.random() < 0.3 else self.cpu[each],
                tuples_in_s=drawn.choice((0.0, 5.0)),
                backlog=drawn.choice((0, 0, 60, None)),
                state_bytes=1000,
            )
            for each, owner in self.owners.items()
            if owner in here
        ]
        hosts = sorted({row.host for row in nodes})
        measured = (HostWindow(host=each, covered_s=10.0, cpu=1.0, cores=4.0, basis=Basis.CONFIG) for each in hosts)
        seen = a_window(self.now, nodes, rows, hosts=tuple(measured), hosts_expected=3)
        owners = dict(self.owners) if self.execution.state.in_flight else None
        self.execute(replace(self.windows.read(seen, owners=False), owners=owners))
        self.decide(deciding.RestoresLearned(learned=self.execution.learned()))
        self.decide(deciding.SnapshotArrived(snapshot=seen))

    def _node(self, worker: WorkerId, state: WorkerState) -> NodeWindow:
        away, app = state is WorkerState.AWAY, self.runs[worker]
        return a_node(
            worker,
            host=host_of(worker),
            app=None if away else app,
            state=state,
            capacity=1.0,
            steering=self.drawn.random() < 0.99,
            declared=app,
            absence=Absence.STOPPED if away else None,
            operators={OperatorId("sums"): 5},
            standbys=1,
            fresh=self.drawn.random() < 0.1,
        )

    def change(self) -> None:
        """The group moves a key group, or a worker runs another app."""
        drawn = self.drawn
        if drawn.random() < 0.7:
            each = drawn.choice(list(self.owners))
            self.owners[each] = drawn.choice(WORKERS)
        else:
            self.runs[drawn.choice(WORKERS)] = drawn.choice(APPS)

    def say(self) -> None:
        """An operator says something, about what there is or about what there is not."""
        drawn = self.drawn
        said = {**SAID, "at": self.now - drawn.choice((0.0, 30.0, 600.0))}
        app = drawn.choice((*APPS, AppId("gone")))
        worker = drawn.choice((*WORKERS, WorkerId("w99")))
        plans = [row.id for row in self.execution.state.proposals.values()] or ["1.1"]
        moved = drawn.sample(KEY_GROUPS[drawn.choice(APPS)], drawn.randint(1, 3))
        rule = Rule(name="r", kind=RuleKind.EXCLUDE, reason="simulated", workers=(str(worker),))
        intents: list[Intent] = [
            Pause(**said),
            Drain(worker=worker, **said),
            Drain(worker=worker, until=self.now + 30.0, host=host_of(WORKERS[0]), **said),
            Undrain(worker=worker, **said),
            ForgetApp(app=app, **said),
            ForgetWorker(worker=worker, **said),
            Stop(app=drawn.choice((None, app)), **said),
            Scale(app=app, workers=drawn.randint(1, 5), **said),
            RollingRestart(app=app, workers=tuple(drawn.sample(WORKERS, 2)), **said),
            Approve(plan=drawn.choice(plans), **said),
            Reject(plan=drawn.choice(plans), **said),
            MoveKeyGroups(moves=tuple(RequestedMove(key_group=each, worker=worker) for each in moved), **said),
            AddRule(rule=rule, **said),
        ]
        intent = drawn.choice(intents)
        self.intents[intent.key] = intent
        self.decide(deciding.IntentsChanged(intents=tuple(self.intents.values())))
        if isinstance(intent, Stop):
            self.execute(executing.StopWanted(app=intent.app, reason="simulated", answered=(intent.key,)))

    def take_back(self) -> None:
        """An operator takes something back."""
        if self.intents:
            del self.intents[self.drawn.choice(sorted(self.intents))]
            self.decide(deciding.IntentsChanged(intents=tuple(self.intents.values())))

    def answer(self) -> None:
        """The solver answers with any moves, or gives up."""
        if self.asked is None:
            return
        (view, self.asked), drawn = (self.asked.view, None), self.drawn
        if drawn.random() < 0.1:
            self.decide(deciding.SolverAnswered(answer=NoAnswer(reason="simulated")))
            return
        free = [place for place, worker in enumerate(view.workers) if not worker.draining]
        rows = drawn.sample(range(len(view.owned)), min(len(view.owned), drawn.randint(0, 3)))
        moves = tuple((row, drawn.choice(free)) for row in rows if free)
        moves = tuple((row, to) for row, to in moves if view.owned[row].owner != view.workers[to].id)
        found = Answer(moves=moves, status="feasible", before=20.0, load_distance=4.0, lower_bound=1.0, solve_s=0.1)
        self.decide(deciding.SolverAnswered(answer=found))

    def ack(self) -> None:
        """An agent answers a command, old or new: as it should, with a refusal, or with the phase of another kind."""
        if not self.commands:
            return
        drawn = self.drawn
        command = drawn.choice(self.commands[-6:])
        phase = drawn.choice(ANSWERS.get(command.kind, (Phase.ABANDONED,)))
        if drawn.random() < 0.2:
            phase = drawn.choice(tuple(Phase))
        refusal = drawn.choice(tuple(Refusal)) if phase is Phase.REFUSED else None
        if phase is Phase.TOOK:
            self.owners |= {each: command.worker for each in command.key_groups if each in self.owners}
        told = Ack.to(command, phase, at=self.now, refusal=refusal, generation=1)
        self.execute(executing.AckSeen(ack=replace(told, pause_s=0.1 if phase is Phase.TOOK else None)))

    def revoke(self) -> None:
        """The key of a host is revoked, or all are good again."""
        hosts = frozenset({HostId("h1")}) if self.drawn.random() < 0.5 else frozenset()
        self.decide(deciding.HostsRevoked(hosts=hosts))

    def succeed(self) -> None:
        """Another controller takes over, with what is published."""
        placements = self.execution.state.placements
        self.lead(taken_over(replace(decode_entry(self.journal).execution, placements=placements)))
        self.execute(executing.Resumed())

    def hold(self) -> None:
        """The journal cannot be trusted any more, or again."""
        self.decide(deciding.HoldChanged(reason=self.drawn.choice(("simulated", None, None))))


def play(seed: int, steps: int = STEPS_OF_ONE) -> list[type[Decision]]:
    """What is decided in so many steps.  Raises whatever a machine raises, with the seed."""
    controller = Controller(seed)
    for number in range(steps):
        try:
            controller.step()
        except Exception as error:
            error.add_note(f"seed {seed}, step {number}")
            raise
    return controller.decisions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, help="only this one")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        print(len(play(chosen.seed)), "decisions")
        return 0
    found: list[type[Decision]] = []
    for seed in range(chosen.steps // STEPS_OF_ONE):
        found += play(seed)
    counts = {kind.__name__: found.count(kind) for kind in dict.fromkeys(found)}
    print(f"{chosen.steps} steps, {len(found)} decisions, nothing raised: {counts}")
    return 0 if {Planned, Forgotten} <= set(found) else 1


if __name__ == "__main__":
    sys.exit(main())
