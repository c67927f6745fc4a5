"""What work costs on each type of host, fitted while it runs, and how fast types are relative to each other.

Source: Nasiri et al., "A Scheduling Algorithm to Maximize Storm Throughput in Heterogeneous Cluster", arXiv 2001.10308:
the CPU of an operator's instance on a machine of type m is e[operator, m] * rate + MET[operator, m].  Here an instance
is all that a worker does for an operator.  A sample is one worker in one window; the last SAMPLES of each operator and
type are fitted by robust regression (`trimtab_models.sizing.fit`).  What a process uses beyond its key groups is fitted
as the median of its type.

A type is as fast as its operators need little CPU: speed[m] = e[operator, reference] / e[operator, m], averaged over
the operators that both types run, weighted by what they use.  The reference is the type that had the most capacity at
first.  Where no operator has run on both, the speeds that agents measured are compared.  Differences below SPEED_STEP
count as none, and a speed changes only by SPEED_STEP or more: another speed is another unit for all loads.

One number per type, rather than one per operator and type, keeps a host a host: its capacity is its cores times its
speed.  The remaining error is measured: before a window is learnt, it is predicted.
"""

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from trimtab_controller.decider.window.owned import PERCENT_PER_CORE
from trimtab_models.sizing.fit import Fit, fit_coefficients
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import NodeWindow, Snapshot

SAMPLES = 60
"""Samples that are kept per operator and type; with ten workers of a type these are the last six windows."""
SAMPLES_NEEDED = 6
"""Samples of an operator on each of two types before they are compared."""
SPEED_STEP = 0.1
"""By how much the speed of a type must differ, relatively, to be changed."""
ERROR_WEIGHT = 0.2
"""Weight of the newest window in the prediction error."""
LEAST_RATE = 1.0
"""Inputs per second of a worker below which a sample says little about the cost of one."""
MAX_TYPES = 100
"""Types of hosts; the hosts of further types count as of no known type."""
MAX_OPERATORS = 2_000
"""Operators whose costs are fitted; agents can invent names."""

TypeName = str
NO_TYPE: TypeName = ""
"""The type of all hosts whose agents name none."""
OperatorAt = tuple[AppId, OperatorId, TypeName]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost:
    """What an operator needs on a type of host.

    `per_input` = percent of a core per input per second (e), `fixed` = percent of a core per worker (MET).
    """

    per_input: float
    fixed: float


@dataclass(slots=True)
class _Samples:
    """The last samples of an operator on a type: inputs per second, and percent of a core; never empty."""

    rates: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    cpu: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    new: int = 0
    fitted: OperatorCost | None = None

    def add(self, rate: float, cpu: float) -> None:
        self.rates.append(rate)
        self.cpu.append(cpu)
        self.new += 1

    @property
    def cost(self) -> OperatorCost:
        """Fitted again when a quarter of the samples is new: a fleet has thousands of operators."""
        if self.fitted is None or 4 * self.new >= len(self.rates):
            self.fitted, self.new = self._fit(), 0
        return self.fitted

    def _fit(self) -> OperatorCost:
        known = len(self.rates) >= SAMPLES_NEEDED
        found = fit_coefficients(list(self.rates), list(self.cpu)) if known else None
        if isinstance(found, Fit) and found.cost > 0:
            return OperatorCost(per_input=found.cost, fixed=found.fixed)
        return OperatorCost(per_input=self.per_input, fixed=0.0)

    @property
    def per_input(self) -> float:
        """All CPU over all inputs; unlike a fit it does not divide fixed cost and cost per input."""
        return sum(self.cpu) / sum(self.rates)


@dataclass(frozen=True, slots=True)
class _Sample:
    """A worker's operators in a window: (inputs per second, percent of a core); `used` by the whole process."""

    app: AppId
    type: TypeName
    operators: Mapping[OperatorId, tuple[float, float]]
    used: float | None


class CostBook:
    """The costs, the speeds of the types, and how well windows were predicted."""

    def __init__(self) -> None:
        self._samples: dict[OperatorAt, _Samples] = {}
        self._process: dict[tuple[AppId, TypeName], deque[float]] = {}
        self._errors: dict[AppId, tuple[float, float]] = {}  # smoothed: sum of absolute errors, sum of what was used
        self._types: dict[HostId, TypeName] = {}
        self._reference: TypeName | None = None
        self.costs: dict[OperatorAt, OperatorCost] = {}
        self.speeds: dict[TypeName, float] = {}

    def observe(self, snapshot: Snapshot) -> frozenset[HostId]:
        """Learn from a window; returns the hosts whose speed has changed."""
        self._see_types(snapshot)
        samples = list(_samples(snapshot, self._types))
        for app in {sample.app for sample in samples}:
            self._judge(app, [sample for sample in samples if sample.app == app])
        present = {sample.app for sample in samples}
        if max(len(self._samples), len(self._process)) >= MAX_OPERATORS:  # make room by what is gone
            self._samples = {key: each for key, each in self._samples.items() if key[0] in present}
            self._process = {key: each for key, each in self._process.items() if key[0] in present}
        for sample in samples:
            self._learn(sample)
        self._errors = {app: error for app, error in self._errors.items() if app in present}
        self.costs = {key: each.cost for key, each in self._samples.items()}
        changed = self._set_speeds(snapshot)
        return frozenset(host for host, name in self._types.items() if name in changed)

    def type_of(self, host: HostId) -> TypeName:
        """The type of a host of the last window."""
        return self._types.get(host, NO_TYPE)

    def of_hosts(self) -> dict[HostId, float]:
        """The speed of each host of the last window."""
        return {host: self.speeds.get(name, 1.0) for host, name in self._types.items()}

    def process_of(self, app: AppId, name: TypeName) -> float | None:
        """What a worker's process uses beyond its key groups, in percent of a core; None = never measured."""
        found = self._process.get((app, name))
        return statistics.median(found) if found else None

    @property
    def accuracies(self) -> dict[AppId, float]:
        """Per app, 1 - sum of the errors / sum of the CPU of predicted workers (smoothed); the paper claims 0.92."""
        return {app: max(0.0, 1.0 - error / used) for app, (error, used) in self._errors.items()}

    def _see_types(self, snapshot: Snapshot) -> None:
        known = sorted({row.type for row in snapshot.hosts if row.type is not None})[:MAX_TYPES]
        self._types = {row.host: row.type if row.type in known else NO_TYPE for row in snapshot.hosts}
        if len(self.speeds) > 2 * MAX_TYPES:
            self.speeds = {name: speed for name, speed in self.speeds.items() if name in (*known, self._reference)}

    def _learn(self, sample: _Sample) -> None:
        charged = 0.0
        for operator, (rate, cpu) in sample.operators.items():
            charged += cpu
            key = (sample.app, operator, sample.type)
            if rate >= LEAST_RATE and (key in self._samples or len(self._samples) < MAX_OPERATORS):
                self._samples.setdefault(key, _Samples()).add(rate, cpu)
        if sample.used is not None and len(self._process) < MAX_OPERATORS:
            process = self._process.setdefault((sample.app, sample.type), deque(maxlen=SAMPLES))
            process.append(max(0.0, sample.used - charged))

    def _judge(self, app: AppId, samples: Iterable[_Sample]) -> None:
        """Compare what workers used with what is predicted from their inputs by what was known before."""
        error = used = 0.0
        for sample in samples:
            process = self.process_of(app, sample.type)
            costs = {operator: self.costs.get((app, operator, sample.type)) for operator in sample.operators}
            if sample.used is None or process is None or None in costs.values():
                continue
            predicted = process + sum(
                cost.per_input * sample.operators[operator][0] + cost.fixed
                for operator, cost in costs.items()
                if cost is not None
            )
            error += abs(predicted - sample.used)
            used += sample.used
        if used > 0:
            before = self._errors.get(app, (error, used))
            self._errors[app] = (
                before[0] + ERROR_WEIGHT * (error - before[0]),
                before[1] + ERROR_WEIGHT * (used - before[1]),
            )

    def _set_speeds(self, snapshot: Snapshot) -> set[TypeName]:
        present, before = sorted(set(self._types.values())), self.speeds
        if not before and present:  # another reference would be another unit, so the first one stays
            capacity = dict.fromkeys(present, 0.0)
            for row in snapshot.nodes:
                if row.host in self._types:
                    capacity[self._types[row.host]] += row.capacity
            self._reference = max(present, key=lambda name: capacity[name])
            before = {self._reference: 1.0}
        measured, found = _measured(snapshot, self._types), dict(before)  # a type may be away for a while
        for name in present:
            speed = None if name == self._reference else self._compared(name, before, measured)
            last = before.get(name, 1.0)
            found[name] = last if speed is None or abs(speed / last - 1.0) < SPEED_STEP else speed
        self.speeds = found
        return {name for name, speed in found.items() if speed != before.get(name, 1.0)}

    def _compared(
        self, name: TypeName, speeds: Mapping[TypeName, float], measured: Mapping[TypeName, float]
    ) -> float | None:
        """The speed of a type, from a comparison with one of known speed, if possible with the reference."""
        others = sorted(speeds.keys() - {name}, key=lambda other: (other != self._reference, other))
        for other in others:
            if (times := self._fitted(name, other)) is not None:
                return speeds[other] * times
        for other in others:
            if measured.get(name) and measured.get(other):
                return speeds[other] * measured[name] / measured[other]
        return None

    def _fitted(self, name: TypeName, than: TypeName) -> float | None:
        """How many times as fast a type is as another, by the operators that both have run; None if there are none."""
        logs, weights = [], []
        for (app, operator, of_type), samples in self._samples.items():
            other = self._samples.get((app, operator, than)) if of_type == name else None
            if other is None or min(len(samples.rates), len(other.rates)) < SAMPLES_NEEDED:
                continue
            here, there = samples.per_input, other.per_input
            if here > 0 and there > 0:
                logs.append(math.log(there / here))
                weights.append(math.sqrt(sum(samples.cpu) * sum(other.cpu)))
        return math.exp(float(np.average(logs, weights=weights))) if sum(weights) > 0 else None


def _measured(snapshot: Snapshot, types: Mapping[HostId, TypeName]) -> dict[TypeName, float]:
    """The median of the speeds that agents measured, by type."""
    found: defaultdict[TypeName, list[float]] = defaultdict(list)
    for row in snapshot.hosts:
        if row.speed is not None:
            found[types[row.host]].append(row.speed)
    return {name: statistics.median(speeds) for name, speeds in found.items()}


def _samples(snapshot: Snapshot, types: Mapping[HostId, TypeName]) -> Iterable[_Sample]:
    """The workers that ran and measured all of the window."""
    nodes: dict[WorkerId, NodeWindow] = {
        row.worker: row
        for row in snapshot.nodes
        if row.state is WorkerState.RUNNING and row.complete and row.unknown is None and row.app is not None
    }
    found: defaultdict[WorkerId, dict[OperatorId, tuple[float, float]]] = defaultdict(dict)
    partly: set[WorkerId] = set()
    for block in snapshot.blocks:
        place = np.frombuffer(block.worker, np.int64)
        columns = [np.frombuffer(block.tuples_in_s), np.frombuffer(block.cpu)]
        rate, cpu = (
            np.bincount(place, np.where(column == UNKNOWN, np.nan, column), len(block.workers)) for column in columns
        )
        for worker, its_rate, its_cpu in zip(block.workers, rate.tolist(), cpu.tolist(), strict=True):
            row = nodes.get(worker)
            if row is None or row.app != block.app or math.isnan(its_rate) or math.isnan(its_cpu):
                partly.add(worker)
            else:
                found[worker][block.operator] = (its_rate, PERCENT_PER_CORE * its_cpu)
    for worker, operators in found.items():
        row = nodes[worker]
        if worker not in partly and row.app is not None:
            used = None if row.cpu is None else PERCENT_PER_CORE * row.cpu
            yield _Sample(row.app, types.get(row.host, NO_TYPE), operators, used)
