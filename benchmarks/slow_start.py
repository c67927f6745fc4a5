"""How much longer plans take because they begin slowly: the real execution, on played time.

    PYTHONPATH=. python benchmarks/slow_start.py [--windows SECONDS]

An app on 40 workers, each on a host of its own with four cores, is healthy throughout: each window (10 s, known 2 s
after its end) shows that it is not behind.  A plan moves key groups from eight workers to others, four per hand-over.
Restores of a host share what it can do, by the costs that the controller assumes before it has measured any (10 MB/s
per host, `PRIOR`).  A hand-over takes 0.3 s besides.  Shown are seconds from the plan to its end, and what the
controller promises for the restores, with all restores at once (`restores_at_first = handovers_in_flight`) and with the
defaults; the last column has a job of which no window tells anything.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab_controller.execution.events import AckSeen, Action, ExecutionLimits, PlanDecided, Publish, WindowSeen
from trimtab_controller.execution.lags import JobWindow, WaitingInputs
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.restore_costs import PRIOR
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, WorkerId

CLUSTER, APP, OPERATOR = "bench", AppId("app"), OperatorId("sums")
WORKERS, GIVERS, CORES = 40, 8, 4.0
MB = 1_000_000
HOST_BYTES_S = 10e6
STEP_S, KNOWN_AFTER_S, HAND_OVER_S = 0.05, 2.0, 0.3
T0 = 1_000.0
NAMES = tuple(WorkerId(f"w{number:02}") for number in range(WORKERS))
HOSTS = {name: HostId(f"h-{name}") for name in NAMES}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan: key groups that move, workers that receive them, and how much each has to restore."""

    name: str
    key_groups: int
    targets: int
    state_bytes: int
    copies: bool = False


CASES = (
    Case(name="16 to one worker, 1 MB each", key_groups=16, targets=1, state_bytes=MB),
    Case(name="64 to 4 workers, 10 MB each", key_groups=64, targets=4, state_bytes=10 * MB),
    Case(name="64 to 4 workers, 100 MB each", key_groups=64, targets=4, state_bytes=100 * MB),
    Case(name="1,000 to 32 workers, 10 MB each", key_groups=1_000, targets=32, state_bytes=10 * MB),
    Case(name="1,000 to 32 workers, 100 MB each", key_groups=1_000, targets=32, state_bytes=100 * MB),
    Case(name="1,000 to 32 workers that follow them", key_groups=1_000, targets=32, state_bytes=10 * MB, copies=True),
)


class Cluster:
    """Workers and agents that do what they are told; `windows` None: no window tells how the job is."""

    def __init__(self, case: Case, limits: ExecutionLimits, windows: float | None) -> None:
        self.case, self.windows = case, windows
        moves = list(_moves(case))
        owners = {move.key_group: move.source for move in moves}
        placement = placement_of(CLUSTER, APP, Epoch(1, 1), owners, None)
        if case.copies:
            rows = {move.key_group: (move.source, move.target) for move in moves}
            placement = placement.changed(Epoch(1, 1), rows)
        state = Execution(generation=1, number=1, placements={APP: placement})
        self.machine = ExecutionMachine(CLUSTER, limits, state)
        self.now = T0
        self._left: dict[str, float] = {}
        self._commands: dict[str, Command] = {}
        self._due: list[tuple[float, Command]] = []

    def carry_out(self) -> tuple[float, float]:
        """Seconds until the plan has ended, and until all was to be warm by the promise."""
        next_window_s = T0 + (self.windows or 0.0)
        if self.windows is not None:
            self._see(T0 - self.windows)
        self._perform(self.machine.on_event(self.now, PlanDecided(plan=_plan(self.case))))
        recovery = self.machine.state.rounds[APP].recovery
        while self.machine.state.busy(APP):
            self.now += STEP_S
            if self.windows is not None and self.now >= next_window_s + KNOWN_AFTER_S:
                self._see(next_window_s)
                next_window_s += self.windows
            self._restore()
            self._hand_over()
            if (wake_at := self.machine.wake_at) is not None and wake_at <= self.now:
                self._perform(self.machine.on_tick(self.now))
        return self.now - T0, recovery.planned_s if recovery is not None else 0.0

    def _see(self, end_s: float) -> None:
        """A whole window in which the job is not behind."""
        assert self.windows is not None
        job = JobWindow(
            whole=WaitingInputs(backlog=0.0, rate=1000.0),
            workers={name: WaitingInputs(backlog=0.0, rate=25.0) for name in NAMES},
            measured=frozenset(NAMES),
        )
        seen = WindowSeen(start_s=end_s - self.windows, end_s=end_s, jobs={APP: job})
        self._perform(self.machine.on_event(self.now, seen))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            for command in action.commands if isinstance(action, Publish) else ():
                assert command.handover is not None
                if command.kind is CommandKind.PREPARE:
                    lacking = 0 if self.case.copies else self.case.state_bytes
                    self._left[command.handover] = float(lacking * len(command.key_groups))
                    self._commands[command.handover] = command
                else:
                    assert command.kind is CommandKind.RELEASE
                    self._due.append((self.now + HAND_OVER_S, self._commands[command.handover]))

    def _restore(self) -> None:
        """Each host reads; what is warm is answered."""
        on_host: dict[HostId, list[str]] = {}
        for name in self._left:
            on_host.setdefault(self._commands[name].host, []).append(name)
        for names in on_host.values():
            for name in names:
                self._left[name] -= STEP_S * HOST_BYTES_S / PRIOR.at(len(names))
        for name in [name for name, left in self._left.items() if left <= 0.0]:
            del self._left[name]
            self._answer(self._commands[name], Phase.PREPARED, generation=1)

    def _hand_over(self) -> None:
        due = [command for at, command in self._due if at <= self.now]
        self._due = [(at, command) for at, command in self._due if at > self.now]
        for command in due:
            self._answer(command, Phase.TOOK, pause_s=0.1)

    def _answer(self, command: Command, phase: Phase, **values: float) -> None:
        ack = Ack.to(command, phase, at=self.now, **values)
        self._perform(self.machine.on_event(self.now, AckSeen(ack=ack)))


def _moves(case: Case) -> Iterator[Move]:
    for number in range(case.key_groups):
        giver, taker = number % GIVERS, GIVERS + number // GIVERS % case.targets
        yield Move(
            key_group=KeyGroup(APP, OPERATOR, number),
            source=NAMES[giver],
            target=NAMES[taker],
            state_bytes=case.state_bytes,
        )


def _plan(case: Case) -> Plan:
    return Plan(
        app=APP,
        reason=PlanReason.LOAD_DISTANCE,
        detail="bench",
        moves=tuple(_moves(case)),
        hosts=HOSTS,
        before=20.0,
        planned=1.0,
        lower_bound=1.0,
        status="optimal",
        cores=dict.fromkeys(HOSTS.values(), CORES),
    )


def main() -> None:
    """Print one line per plan."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--windows", type=float, default=10.0, help="length of a window in seconds")
    windows = parser.parse_args().windows
    default = ExecutionLimits(prepare_timeout_s=86_400.0)
    at_once = ExecutionLimits(prepare_timeout_s=86_400.0, restores_at_first=default.handovers_in_flight)
    print(f"{'plan':40} {'at once':>18} {'slowly at first':>18} {'longer by':>10} {'no windows':>11}")
    for case in CASES:
        (all_s, all_promised_s), (slow_s, slow_promised_s), (blind_s, _) = (
            Cluster(case, limits, each).carry_out()
            for limits, each in ((at_once, windows), (default, windows), (default, None))
        )
        print(
            f"{case.name:40} {all_s:7.1f} ({all_promised_s:7.1f}) {slow_s:8.1f} ({slow_promised_s:7.1f}) "
            f"{slow_s - all_s:8.1f} s {blind_s:9.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
