"""One controller over recorded windows: its decider, its execution, and a cluster that obeys.

The number of workers is as recorded, except of apps with `[scaling] mode = "act"`: their size is the replay's own
(see `workers.py`).  Demand is as recorded all the same, though it follows the size: a job with too few workers falls
behind, and one that is given more catches up.  Of what operators asked for, their rules are kept while they were
wanted; nothing else is repeated, and nothing is forecast.  A key group whose worker of the replay no longer runs goes
where it was recorded, as the consumer group would have moved it.
"""

from collections.abc import Callable
from dataclasses import replace

from trimtab_controller.configuration import Configuration
from trimtab_controller.decider import events as deciding
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.policies.instance import question_of
from trimtab_controller.decider.values.decision import Decision, Resized, Skip
from trimtab_controller.decider.values.plan_settings import PlanSettings
from trimtab_controller.execution import events as executing
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution
from trimtab_controller.execution.windows import host_reports, ownership, sites_of
from trimtab_controller.replay.cluster import Pace, ReplayedCluster, Taken
from trimtab_controller.replay.outcome import Outcome, Tally
from trimtab_controller.replay.placed import evenness_of, placed, recorded_owners, running_workers
from trimtab_controller.replay.rules import RecordedRules
from trimtab_controller.replay.workers import ReplayedWorkers, with_fewest
from trimtab_controller.solver.answer import Answer, NoAnswer, Question
from trimtab_protocol.messages.names import AppId, KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

Solve = Callable[[Question], Answer | NoAnswer]


class Replay:
    """Takes recorded windows, the oldest first, and counts what a controller would have done with them.

    `owners` = the owner of each key group as it is placed now.
    """

    def __init__(
        self, configuration: Configuration, solve: Solve, pace: Pace, rules: RecordedRules | None = None
    ) -> None:
        """`rules` = those of operators."""
        self._configuration = configuration
        self._rules = rules or RecordedRules()
        self._solve = solve
        state = Execution(generation=1)
        self._execution = ExecutionMachine(configuration.cluster, configuration.execution, state)
        self._decider = Decider(
            configuration.balance,
            configuration.needs,
            state,
            acting=True,
            scaling=configuration.scaling,
            plans=replace(PlanSettings(), keep_moved_s=configuration.plans.keep_moved_s),
            rules=configuration.rules,
            budget=self._execution.budget,
        )
        self._cluster = ReplayedCluster(pace)
        self._workers = ReplayedWorkers(configuration.scaling)
        self.owners: dict[KeyGroup, WorkerId] = {}
        self._tallies: dict[AppId, Tally] = {}

    def see(self, snapshot: Snapshot) -> None:
        """Let time pass until this window was published, and decide by it as its key groups are placed now."""
        now = max(snapshot.published_ms, snapshot.end_ms) / 1000.0
        self._pass_time(now)
        present = self._workers.of_window(snapshot)
        self._follow(present)
        window = placed(present, self.owners)
        for app, evenness in evenness_of(window).items():
            self._tally(app).see(evenness)
        seen = executing.WindowSeen(
            start_s=window.start_ms / 1000.0,
            end_s=window.end_ms / 1000.0,
            owners=ownership(window) if self._execution.state.in_flight else None,
            hosts=host_reports(window, self._configuration.balance.max_link),
            sites=sites_of(window),
        )
        self._execute(now, seen)
        self._decide(now, deciding.IntentsChanged(intents=self._rules.at(now)))
        self._decide(now, deciding.RestoresLearned(learned=self._execution.learned()))
        self._decide(now, deciding.SnapshotArrived(snapshot=window))

    def outcomes(self) -> dict[AppId, Outcome]:
        """What was counted so far."""
        for app, tally in self._tallies.items():
            tally.restored_bytes = self._cluster.restored[app]
        found = {app: tally.outcome() for app, tally in self._tallies.items()}
        return {app: outcome for app, outcome in found.items() if outcome is not None}

    def _tally(self, app: AppId) -> Tally:
        if app not in self._tallies:
            self._tallies[app] = Tally()
        return self._tallies[app]

    def _follow(self, snapshot: Snapshot) -> None:
        """Take over the recorded owner of what is new, and of what is on a worker that does not run."""
        running, recorded = running_workers(snapshot), recorded_owners(snapshot)
        of_app: dict[AppId, set[WorkerId]] = {}
        for row in snapshot.nodes:
            if row.app is not None and row.worker in running:
                of_app.setdefault(row.app, set()).add(row.worker)
        for key_group, worker in recorded.items():
            if self.owners.get(key_group) not in running:
                scales = worker not in running and self._workers.scales(key_group.app)
                other = with_fewest(self.owners, of_app.get(key_group.app, ())) if scales else None
                self.owners[key_group] = other or worker
        for key_group in self.owners.keys() - recorded.keys():
            del self.owners[key_group]

    def _pass_time(self, now: float) -> None:
        """Hear the acks and let the time-outs pass that come before `now`, in order."""
        while True:
            due, wake_at = self._cluster.next_at, self._execution.wake_at
            at = min((each for each in (due, wake_at) if each is not None), default=None)
            if at is None or at > now:
                break
            if (found := self._cluster.due(at)) is not None:
                ack, taken = found
                if taken is not None:
                    self._take(taken)
                self._execute(at, executing.AckSeen(ack=ack))
            else:
                before = self._execution.wake_at
                self._perform(at, self._execution.on_tick(at))
                if self._execution.wake_at == before:  # it waits for a window
                    break
        self._perform_decisions(now, self._decider.on_tick(now))

    def _take(self, taken: Taken) -> None:
        for key_group in taken.key_groups:
            if key_group in self.owners:
                self.owners[key_group] = taken.worker
        tally = self._tally(taken.key_groups[0].app)
        tally.moved += len(taken.key_groups)
        tally.paused_s += taken.pause_s * len(taken.key_groups)

    # --- the loop's wiring, without Kafka -----------------------------------------------------------------------------

    def _decide(self, now: float, event: deciding.Event) -> None:
        self._perform_decisions(now, self._decider.on_event(now, event))

    def _perform_decisions(self, now: float, actions: list[deciding.Action]) -> None:
        for action in actions:
            match action:
                case deciding.Solve(view=view):
                    settings = self._configuration.balance
                    answer = self._solve(question_of(view, settings, settings.solver_time_limit_s))
                    self._decide(now, deciding.SolverAnswered(answer=answer))
                case deciding.Decided(decision=decision):
                    self._carry_out(now, decision)
                case _:
                    pass  # told to operators only

    def _carry_out(self, now: float, decision: Decision) -> None:
        if isinstance(decision, Resized):
            self._resize(now, decision)
        elif not isinstance(decision, Skip):
            self._execute(now, decision)
        elif decision.app is not None:
            self._tally(decision.app).reasons[decision.reason] += 1

    def _resize(self, now: float, found: Resized) -> None:
        """Change the size of an app; the hook that would add machines fails, since nobody knows what it would add."""
        if found.app is not None and found.change is not None and (found.start or found.drain):
            self._tally(found.app).resized += 1
        self._execute(now, found)
        if found.app is not None and found.short:
            self._decide(now, deciding.HookEnded(app=found.app, failure="a replay runs no hook"))

    def _execute(self, now: float, event: executing.Event) -> None:
        if isinstance(event, executing.PlanDecided):
            self._tally(event.plan.app).plans += 1
        self._perform(now, self._execution.on_event(now, event))

    def _perform(self, now: float, actions: list[executing.Action]) -> None:
        for action in actions:
            if isinstance(action, executing.Publish):
                self._cluster.command(now, action.commands, action.execution)
                self._workers.command(now, action.commands)
                self._decide(now, deciding.ExecutionChanged(execution=action.execution))
