"""Collocation, balance and scaling decide together, with the real decider, solver and execution.

A job of pairs of key groups that talk to each other.  Then its input grows, and each sender talks to
another receiver: all pairs are apart.  Where the topic is local, collocation absorbs what that costs; where it is not,
every tuple goes through the broker, wherever the key groups are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from benchmarks.played import PlayedController, host_of, host_window, node_window, snapshot_of
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.snapshot import KeyGroupWindow, NodeWindow, PairWindow, Snapshot

APP, HEAD, TAIL = AppId("app"), OperatorId("head"), OperatorId("tail")
CLUSTER, WINDOW_S, BEGIN_S = "potential", 10.0, 1e6
WORKERS, POOL, PAIRS = 4, 2, 24
WORK_S, END_S, FIXED = 385e-6, 385e-6, 0.05
"""CPU of a tuple at each end, what it costs besides through the broker, and cores that a worker uses for itself."""
RATE, BEFORE = 100.0, 0.7
GROWS_AFTER = 15


@dataclass
class Job:
    local: bool
    running: dict[WorkerId, float] = field(default_factory=dict)
    owner: dict[KeyGroup, WorkerId] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.running = {WorkerId(f"w{place}"): 0.0 for place in range(WORKERS)}
        for pair in range(PAIRS):
            for operator in (HEAD, TAIL):
                self.owner[KeyGroup(APP, operator, pair)] = WorkerId(f"w{pair % WORKERS}")

    def window(self) -> Snapshot:
        """The next one."""
        start_s = BEGIN_S + WINDOW_S * self.number
        grown = self.number >= GROWS_AFTER
        self.number += 1
        rate = RATE if grown else BEFORE * RATE
        rows, pairs, used = [], [], dict.fromkeys(self.here(start_s), FIXED)
        for pair in range(PAIRS):
            head, tail = KeyGroup(APP, HEAD, pair), KeyGroup(APP, TAIL, (pair + grown) % PAIRS)
            direct = self.local and self.owner[head] == self.owner[tail]
            cpu = rate * (WORK_S + (0.0 if direct else END_S))
            for each in (head, tail):
                used[self.owner[each]] += cpu
                rows.append(self._row(each, cpu, rate))
            direct_s = rate if direct else 0.0
            pairs.append(PairWindow(source=head, target=tail, tuples_s=rate, bytes_s=10.0 * rate, direct_s=direct_s))
        every = [WorkerId(f"w{place}") for place in range(WORKERS + POOL)]
        hosts = [host_window(host_of(worker), WINDOW_S, cores=2.0, cpu=used.get(worker)) for worker in every]
        nodes = [self._node(worker, used.get(worker)) for worker in every]
        seen = snapshot_of(CLUSTER, start_s, WINDOW_S, hosts=hosts, nodes=nodes, key_groups=rows)
        return replace(seen, pairs=tuple(pairs))

    def _row(self, key_group: KeyGroup, cpu: float, rate: float) -> KeyGroupWindow:
        return KeyGroupWindow(
            key_group=key_group, worker=self.owner[key_group], covered_s=WINDOW_S, cpu=cpu, tuples_in_s=rate,
            tuples_out_s=rate, state_bytes=1_000_000, backlog=0,
        )  # fmt: skip

    def here(self, at: float) -> list[WorkerId]:
        return [worker for worker, since in self.running.items() if since <= at]

    def _node(self, worker: WorkerId, cpu: float | None) -> NodeWindow:
        counts = {HEAD: PAIRS, TAIL: PAIRS}
        row = node_window(worker, host_of(worker), APP, WINDOW_S, cpu=cpu, operators=counts, standbys=0, declared=APP)
        if cpu is not None:
            return row
        absence = Absence.STARTING if worker in self.running else Absence.STOPPED
        return replace(row, app=None, state=WorkerState.AWAY, steering=False, operators=None, absence=absence)


class Controller(PlayedController):
    def __init__(self, job: Job) -> None:
        settings = Settings(remote_tuple_cpu_s=2.0 * END_S, max_migrations=4, min_interval_s=60.0)
        super().__init__(
            APP, cluster=CLUSTER, window_s=WINDOW_S, answers=self._answered, needs=Requirements(), settings=settings,
            looks=3000, scaling=ScalingSettings(mode=Mode.ACT),
        )  # fmt: skip
        self.job = job

    def _answered(self, now: float, command: Command) -> Iterator[Ack]:
        if command.kind is CommandKind.START:
            self.job.running[command.worker] = now + 30.0
            yield Ack.to(command, Phase.STARTED, at=now)
        else:
            yield from self.handed_over(now, command, self.job.owner)


@pytest.mark.parametrize("local", [True, False])
def test_collocation_avoids_a_new_worker_where_topics_are_local_and_only_there(*, local: bool) -> None:
    job = Job(local)
    controller = Controller(job)
    told = []
    for _ in range(3 * GROWS_AFTER):
        snapshot = job.window()
        controller.see(snapshot.end_ms / 1000.0, snapshot)
        told.append(controller.decider.known.sizes[APP].detail)
    waited = [text for text in told if "waiting for collocation" in text]
    assert all(text.endswith("; potential plan: solver") for text in waited)
    assert (bool(waited), len(job.running) > WORKERS) == (local, not local)
