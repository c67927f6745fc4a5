"""A job on workers that cannot use more than their capacity: what does not fit into a window waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.controller.decider.decider_situations import a_load, a_node, a_window
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow, PairWindow, Snapshot

APP = AppId("app")
WINDOW_S = 5.0


def kg(partition: int, operator: str = "sums") -> KeyGroup:
    return KeyGroup(APP, OperatorId(operator), partition)


@dataclass
class Job:
    """`rates` = inputs per second from outside; `flows` = outputs per input, between key groups.

    `cost` = CPU seconds per input; `fixed` = cores that a worker uses for itself; `stuck` = inputs per second that a
    key group can do at most, because it waits for something else.
    """

    owners: dict[KeyGroup, WorkerId]
    rates: dict[KeyGroup, float]
    flows: Mapping[tuple[KeyGroup, KeyGroup], float] = field(default_factory=dict)
    cost: float = 0.01
    fixed: float = 0.05
    capacity: float = 0.5
    host_cores: float = 4.0
    stuck: dict[KeyGroup, float] = field(default_factory=dict)
    backlog: dict[KeyGroup, float] = field(default_factory=dict)
    number: int = 200
    waiting: Mapping[WorkerId, float] = field(default_factory=dict)
    """Share of the time in which a worker waits for a core, where it is measured."""
    silent: set[KeyGroup] = field(default_factory=set)
    """Key groups whose backlog nobody knows."""

    def window(self) -> Snapshot:
        """Process one window; each worker divides its capacity by what its key groups have to do."""
        arrived = {each: self.rates.get(each, 0.0) * WINDOW_S for each in self.owners}
        done: dict[KeyGroup, float] = {}
        sent: dict[tuple[KeyGroup, KeyGroup], float] = {}
        left = dict.fromkeys(self.owners.values(), (self.capacity - self.fixed) * WINDOW_S)
        todo = dict(self.backlog)
        for operator in dict.fromkeys(each.operator for each in self.owners):
            mine = [each for each in self.owners if each.operator == operator]
            for each in mine:
                todo[each] = todo.get(each, 0.0) + arrived[each]
            spent = dict.fromkeys(left, 0.0)
            for worker, budget in left.items():
                here = [each for each in mine if self.owners[each] == worker]
                limit = {each: min(todo[each], self.stuck.get(each, 1e9) * WINDOW_S) for each in here}
                work = self.cost * sum(limit.values())
                # The first operator takes no more than two thirds of a worker while another one follows it.
                share = budget / 1.5 if self.flows and operator == self.first else budget
                for each in here:
                    done[each] = limit[each] * min(1.0, share / work if work else 1.0)
                    spent[worker] += self.cost * done[each]
            left = {worker: budget - spent[worker] for worker, budget in left.items()}
            for (source, target), ratio in self.flows.items():
                if source.operator == operator:
                    sent[source, target] = ratio * done[source]
                    arrived[target] += sent[source, target]
        self.backlog = {each: todo[each] - done[each] for each in self.owners}
        return self._snapshot(done, sent)

    @property
    def first(self) -> OperatorId:
        return next(iter(self.owners)).operator

    def _snapshot(self, done: Mapping[KeyGroup, float], sent: Mapping[tuple[KeyGroup, KeyGroup], float]) -> Snapshot:
        self.number += 1
        workers = sorted(set(self.owners.values()) | {WorkerId(f"w{place}") for place in range(3)})
        cores = {
            worker: self.fixed + sum(self.cost * done[each] for each in done if self.owners[each] == worker) / WINDOW_S
            for worker in workers
        }
        end_s = WINDOW_S * (self.number + 1)
        return a_window(
            end_s,
            [
                a_node(
                    worker,
                    host=HostId(f"h-{worker}"),
                    capacity=self.capacity,
                    cpu=cores[worker],
                    waiting=self.waiting.get(worker),
                )
                for worker in workers
            ],
            [
                a_load(
                    each,
                    owner,
                    self.cost * done[each] / WINDOW_S,
                    covered_s=WINDOW_S,
                    tuples_in_s=done[each] / WINDOW_S,
                    state_bytes=1000,
                    backlog=None if each in self.silent else round(self.backlog[each]),
                )
                for each, owner in self.owners.items()
            ],
            start_ms=round(1000 * (end_s - WINDOW_S)),
            hosts=tuple(
                HostWindow(
                    host=HostId(f"h-{worker}"), covered_s=WINDOW_S, cpu=0.6, cores=self.host_cores, basis=Basis.CONFIG
                )
                for worker in workers
            ),
            pairs=tuple(
                PairWindow(source=source, target=target, tuples_s=count / WINDOW_S, bytes_s=0.0)
                for (source, target), count in sent.items()
            ),
        )
