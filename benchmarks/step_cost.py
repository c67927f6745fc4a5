"""What one step of a hand-over costs controller and worker, by the size of the app.

`python -m benchmarks.step_cost [--key-groups N ...]`: a release of 4 key groups, which lie in 4 different parts.
"""

import argparse
import gc
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab_agent.engines.faust.group.placement_follower import PlacementFollower
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.steering.standby_reconciler import NamedHere
from trimtab_controller.execution.events import AckSeen, ExecutionLimits, PlanDecided, Publish
from trimtab_controller.execution.machine import ExecutionMachine
from trimtab_controller.execution.state import Execution, Handover
from trimtab_controller.kafka.publisher import Record, headers_of
from trimtab_controller.loop.publications import placement_records, records_of
from trimtab_controller.plan import Move, Plan, PlanReason
from trimtab_protocol.messages.commands import Ack, Phase
from trimtab_protocol.messages.decode import MAX_MESSAGE_BYTES
from trimtab_protocol.messages.names import AppId, Epoch, HostId, KeyGroup, OperatorId, Topics, WorkerId
from trimtab_protocol.messages.owner_rows import PART_SIZE
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.signing.envelope import signatures_in
from trimtab_protocol.signing.keys import SigningKey, TrustedKeys

CLUSTER, APP = "demo", AppId("orders")
SIZES = (128, 10_000, 300_000, 1_000_000)
MOVED, REPEATS = 4, 7
KEY_GROUPS_PER_OPERATOR = 100_000
"""A topic with more partitions than that is not possible."""
OWN = 250
"""Key groups that a worker owns, or keeps a standby of, if the app has that many."""
KEY = SigningKey.generate()

Signed = tuple[Record, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one step; seconds of CPU.  `packed` = bytes after gzip, as the producer sends them."""

    published: int
    packed: int
    journal: int
    controller_s: float
    worker_s: float | None
    start_s: float | None


def main() -> None:
    """Print a row per size and form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--key-groups", type=int, nargs="+", default=SIZES)
    sizes: Sequence[int] = parser.parse_args().key_groups
    print("| key groups | published | bytes per step | packed | journal | controller | worker | worker's start |")
    print("|---|---|---|---|---|---|---|---|")
    for size in sizes:
        for part_size in (None, PART_SIZE) if size > PART_SIZE else (None,):
            found = cost(size, part_size)
            form = "in one record" if part_size is None else f"in parts of {part_size}"
            print(
                f"| {size:,} | {form} | {found.published:,} | {found.packed:,} | {found.journal:,} | "
                f"{_ms(found.controller_s)} | {_ms(found.worker_s)} | {_ms(found.start_s)} |",
                flush=True,
            )


def _ms(seconds: float | None) -> str:
    return "refused" if seconds is None else f"{1000 * seconds:,.2f} ms"


def cost(size: int, part_size: int | None) -> Cost:
    """Release 4 key groups of an app of `size` key groups."""
    placement = placed(size, part_size)
    limits = ExecutionLimits(key_groups_per_handover=MOVED, key_groups_per_part=part_size or size)
    step = prepared(placement, limits)
    machine, topics = step.machine, Topics(CLUSTER)
    before = machine.state.placements[APP]

    def publish() -> list[Record]:
        """The whole step of the controller but Kafka's own part."""
        again = ExecutionMachine(CLUSTER, limits, machine.state)
        [action] = [each for each in again.on_event(1.0, step.answer) if isinstance(each, Publish)]
        records = records_of(action, {}, topics, limited=True)
        for record in records:
            headers_of(record, KEY)
        return records

    controller_s, records = measured(publish)
    ours = [record for record in records if record.topic == topics.placement and record.value is not None]
    published = b"".join(record.value or b"" for record in ours)
    present = signed(placement_records(before, None, topics))
    readable = all(len(record.value or b"") <= MAX_MESSAGE_BYTES for record, _ in present)
    return Cost(
        published=len(published),
        packed=len(zlib.compress(published)),
        journal=len(records[0].value or b""),
        controller_s=controller_s,
        worker_s=following(present, signed(ours)) if readable else None,
        start_s=measured(lambda: Worker(present), 3)[0] if readable else None,
    )


def signed(records: Sequence[Record]) -> list[Signed]:
    """The records as they are on the topic."""
    return [(record, signatures_in(headers_of(record, KEY))) for record in records]


def placed(size: int, part_size: int | None) -> Placement:
    """Rows of an owner and a standby; each worker is named in `OWN` of them."""
    workers = [WorkerId(f"worker-{number:04}") for number in range(max(2, 2 * size // OWN))]
    row = [(workers[at % len(workers)], workers[(at + 1) % len(workers)]) for at in range(size)]
    operators = range(0, size, KEY_GROUPS_PER_OPERATOR)
    owners = {OperatorId(f"operator-{at}"): row[at : at + KEY_GROUPS_PER_OPERATOR] for at in operators}
    return Placement(cluster=CLUSTER, app=APP, epoch=Epoch(1, 1), owners=owners, part_size=part_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A hand-over that is prepared, and the answer that leads to its release."""

    machine: ExecutionMachine
    answer: AckSeen


def prepared(placement: Placement, limits: ExecutionLimits) -> Prepared:
    """The key groups that move are far from each other, so all lie in different parts."""
    operators = list(placement.owners)
    count = len(placement.owners[operators[0]])
    chosen = [KeyGroup(APP, operators[0], at * (count // MOVED)) for at in range(MOVED)]
    source, target = WorkerId("source"), WorkerId("target")
    placement = placement.changed(Epoch(1, 1), dict.fromkeys(chosen, (source,)))
    machine = ExecutionMachine(CLUSTER, limits, Execution(generation=1, number=1, placements={APP: placement}))
    plan = Plan(
        app=APP,
        reason=PlanReason.LOAD_DISTANCE,
        detail="load distance 18.4 above 5.0",
        moves=tuple(Move(key_group=each, source=source, target=target, state_bytes=100) for each in chosen),
        hosts={source: HostId("h0"), target: HostId("h1")},
        before=18.4,
        planned=1.1,
        lower_bound=1.1,
        status="optimal",
    )
    machine.on_event(0.0, PlanDecided(plan=plan))
    handover: Handover = machine.state.rounds[APP].handovers[0]
    assert handover.prepare is not None
    ack = Ack.to(handover.prepare, Phase.PREPARED, at=0.5, generation=3, lag_records=0)
    return Prepared(machine=machine, answer=AckSeen(ack=ack))


class Worker:
    """What the plug-in does with the records of the topic; it has read `present`."""

    def __init__(self, present: Sequence[Signed]) -> None:
        trust: Any = TrustedKeys((KEY.public,))
        self.shared = PluginState(cluster=CLUSTER, app=APP, worker=WorkerId("worker-0000"), trust=trust)
        self._follower = PlacementFollower(self.shared)
        self._named = NamedHere(self.shared.worker)
        self._follower.begin()
        self._offset = 0
        self.read(present)
        self._follower.at_end()
        self.look()

    def read(self, records: Sequence[Signed]) -> None:
        """Verify, decode and note records."""
        for record, signatures in records:
            self._follower.take(self._offset, record.key, record.value, signatures)
            self._offset += 1

    def look(self) -> int:
        """Find out what to keep warm."""
        return sum(map(len, self._named.follow(self.shared.placement).values()))


def following(present: Sequence[Signed], step: Sequence[Signed]) -> float:
    """Seconds in which a worker that has read `present` follows a step."""
    seconds = []
    for _ in range(REPEATS):
        worker = Worker(present)
        gc.collect()
        began = time.process_time()
        worker.read(step)
        worker.look()
        seconds.append(time.process_time() - began)
        assert worker.shared.placement is not None
        assert worker.shared.placement.epoch == Epoch(1, 3)
    return statistics.median(seconds)


def measured(act: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Median CPU seconds, and the last result."""
    seconds, found = [], None
    for _ in range(repeats):
        gc.collect()
        began = time.process_time()
        found = act()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds), found


if __name__ == "__main__":
    main()
