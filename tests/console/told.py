"""Events of a made-up cluster, and what a controller would know of it: for the pages Events, Plan and Why."""

from dataclasses import replace

from tests.console.fleet import APP, CLUSTER, NOW, OPERATORS, TOPICS, Fleet
from tests.kafka_record import Record
from trimtab_console.watch import Watch
from trimtab_console.why import Explainer
from trimtab_controller.configuration import decode
from trimtab_controller.decider.events import IntentsChanged
from trimtab_controller.execution.state import Execution
from trimtab_controller.intents.plans import Looked
from trimtab_controller.loop.preview import ClusterState, informed
from trimtab_controller.loop.recovery import RecoveredState
from trimtab_protocol.messages.events import Event, EventKind, EventLoad, EventMove, encode_event
from trimtab_protocol.messages.names import KeyGroup

CONFIGURATION = decode(
    {
        "controller": {"cluster": CLUSTER},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "stream": {"checkpoint_dir": "none"},
    }
)
PLAN, MOVED = "3.14", KeyGroup(APP, OPERATORS[0], 1)


def events(fleet: Fleet) -> list[Event]:
    """One of each kind, the oldest first; plan 3.14 has begun, ended and been measured."""
    w = [fleet.worker(at) for at in range(4)]
    other = KeyGroup(APP, OPERATORS[1], 2)
    first = EventMove(key_group=MOVED, source=w[2], target=w[1], why="over_mean", warm="standby", load_pct=6.25)
    second = EventMove(key_group=other, source=w[3], target=w[1], why="over_mean", load_pct=4.5)
    loads = (
        EventLoad(worker=w[1], before=61.2, planned=71.9),
        EventLoad(worker=w[2], before=80.6, planned=74.4),
        EventLoad(worker=w[3], before=78.0, planned=73.5),
    )
    rows = [
        (3600.0, EventKind.LEADER, "begun", "ctl-1:2817 leads as generation 3", {"by": "ctl-1:2817"}),
        (1200.0, EventKind.DECISION, "skip", "nothing: orders: load distance 3.1 pp, inside the band of 5.0 pp",
         {"reason": "inside_band", "app": APP}),
        (900.0, EventKind.PLAN, "begun", "orders: 2 moves (1 to standbys), load distance 8.6 -> 0.9 (bound 0.8), "
         "because load distance 8.6 above 5.0",
         {"reason": "load_distance", "app": APP, "plan": PLAN, "before": 8.6, "planned": 0.9, "lower_bound": 0.8,
          "mean_load": 73.0, "moves": (first, second), "moves_total": 2, "loads": loads}),
        (890.0, EventKind.MOVE, "failed", f"{other} from {w[3]} to {w[1]} failed: prepare timed out",
         {"app": APP, "plan": PLAN, "worker": w[1]}),
        (884.0, EventKind.PLAN, "ended", "plan 3.14 ended after 16.0 s: 1 key group moved, 1 failed",
         {"app": APP, "plan": PLAN, "before": 8.6, "planned": 0.9, "lower_bound": 0.8, "moves_total": 2,
          "moves": (replace(first, why=None, warm=None, load_pct=None, outcome="done", pause_s=0.2),
                    replace(second, why=None, load_pct=None, outcome="failed"))}),
        (860.0, EventKind.PLAN, "measured", "orders: load distance 1.1 measured, 0.9 predicted",
         {"app": APP, "plan": PLAN, "planned": 0.9, "measured": 1.1,
          "loads": tuple(replace(row, measured=(row.planned or 0.0) + 0.4) for row in loads)}),
        (400.0, EventKind.WORKER, "told", f"{w[2]} on host-0002: waits for the topic returns",
         {"app": APP, "worker": w[2]}),
        (300.0, EventKind.CONCERN, "begun", f"orders: {w[1]} is asked for 110 % of its capacity",
         {"reason": "over_capacity", "app": APP}),
        (60.0, EventKind.INTENT, "given", f"drain {w[0]}, by ann@ops: kernel update",
         {"reason": "drain", "by": "ann@ops", "worker": w[0]}),
        (40.0, EventKind.HOLD, "ended", "no longer on hold: the journal is lost", {}),
        (20.0, EventKind.SCALING, "begun", f"start of {w[3]} on host-0003 begun", {"worker": w[3], "reason": "start"}),
        (10.0, EventKind.SIZE, "changed", "orders: from 3 to 4 workers", {"app": APP, "reason": "out"}),
    ]  # fmt: skip
    return [
        Event(id=f"3-{at}", cluster=CLUSTER, at=NOW - ago, kind=kind, phase=phase, text=text, **more)
        for at, (ago, kind, phase, text, more) in enumerate(rows)
    ]


def event_record(event: Event) -> Record:
    return Record(TOPICS.events, encode_event(event), (event.app or "").encode())


def tell(watch: Watch, fleet: Fleet) -> None:
    """Let a watch take all of them."""
    for event in events(fleet):
        watch.take(event_record(event))


def read(fleet: Fleet) -> Looked:
    """What a controller would know of the fleet."""
    execution = Execution(generation=3, number=15, placements={APP: fleet.placement()})
    found = RecoveredState(
        execution=execution, placements=(fleet.placement(),), signers={}, intents=IntentsChanged(intents=()), acks=(),
        acks_read={}, status=None, positions=(),
    )  # fmt: skip
    state = ClusterState(found=found, snapshots=tuple(fleet.snapshot(window) for window in range(-3, 1)))
    return Looked(decider=informed(state, CONFIGURATION, NOW), execution=execution)


def explainer_of(watch: Watch, fleet: Fleet) -> Explainer:
    return Explainer(watch, lambda _: read(fleet), lambda: NOW)
