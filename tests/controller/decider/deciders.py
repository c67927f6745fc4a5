"""Deciders, windows and answers that several tests use."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, a_load, a_node, a_window, kg
from tests.narrow import only_one
from trimtab_controller.decider.events import Decided, IntentsChanged, SnapshotArrived, SolverAnswered
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.decision import Decision
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.state import Execution, placement_of
from trimtab_controller.solver.answer import Answer
from trimtab_protocol.messages.intents import Drain, Intent, Pause
from trimtab_protocol.messages.names import Epoch, KeyGroup, WorkerId

SETTINGS = Settings(
    max_migrations=2, load_distance=5.0, min_interval_s=30.0, smoothing=0.5, min_windows=1, min_gain=0.5
)

NEEDS = Requirements(max_age_s=45.0)
PAUSE = Pause(by="op", at=1.0, reason="maintenance")
DRAIN_W1 = Drain(worker=W1, by="op", at=1.0, reason="kernel")
ON_W0 = {kg(0): W0, kg(1): W0, kg(2): W0}
BALANCED = {kg(0): W0, kg(1): W1}


def execution(owners: dict[KeyGroup, WorkerId] | None, **changes: object) -> Execution:
    placements = {APP: placement_of("c", APP, Epoch(1, 1), owners, None)} if owners else {}
    return replace(Execution(generation=1, number=1, placements=placements), **changes)  # type: ignore[arg-type]


def window(
    owners: dict[KeyGroup, WorkerId], end_s: float = 1010.0, cpu: float = 0.1, workers: tuple[WorkerId, ...] = (W0, W1)
) -> SnapshotArrived:
    rows = [a_load(each, owner, cpu, state_bytes=1000) for each, owner in owners.items()]
    return SnapshotArrived(snapshot=a_window(end_s, [a_node(worker, capacity=1.0) for worker in workers], rows))


def with_all(arrived: SnapshotArrived, **fields: object) -> SnapshotArrived:
    """The same window, in which all workers report these fields."""
    nodes = tuple(replace(row, **fields) for row in arrived.snapshot.nodes)  # type: ignore[arg-type]
    return SnapshotArrived(snapshot=replace(arrived.snapshot, nodes=nodes))


def decider(present: Execution, *intents: Intent, acting: bool = True, **settings: object) -> Decider:
    made = Decider(SETTINGS, NEEDS, present, acting=acting, **settings)  # type: ignore[arg-type]
    made.on_event(1000.0, IntentsChanged(intents=intents))
    return made


def decided(actions: list) -> Decision:
    """The only decision, whatever else is to be done."""
    return only([each for each in actions if isinstance(each, Decided)])


def only(actions: list) -> Decision:
    action = only_one(Decided, actions)
    return action.decision


def answer(*moves: tuple[int, int], to: float = 5.0) -> SolverAnswered:
    return SolverAnswered(
        answer=Answer(moves=moves, status="optimal", before=15.0, load_distance=to, lower_bound=5.0, solve_s=0.1)
    )
