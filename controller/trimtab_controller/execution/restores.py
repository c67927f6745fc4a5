"""What restores cost, learned from those that were measured.

A *restore* is what the target of a hand-over does between `prepare` and `prepared`: it opens the state and reads what
it lacks from the changelog.  One that lacks B bytes beside n - 1 others on its host takes

    unit_s * (1 + B / unit_bytes) * g(n)

The unit is a restore that lacks nothing, because its worker was a standby: `unit_s` is the median of those.  What a
host restores in that time is `unit_bytes`.  DynDL's `fit_cost` gives g for each host, from its own restores once it has
had enough of them, else from those of all hosts, and from a cautious prior before the first ones.  Nothing of this is
journalled: a new leader begins with the prior.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trimtab_controller.execution.state import Handover
from trimtab_models.dyndl import FittedCost, LocalRestore, RestoreSample, fit_cost
from trimtab_models.instances import AffineCost
from trimtab_models.instances.scheduling import RemoteCost
from trimtab_protocol.messages.names import HostId

KEPT = 200
"""Number of measured restores that are kept, in all and of each kind; older ones are forgotten."""
ENOUGH = 10
"""A host with so many measured restores has a curve of its own."""
SLOTS = 2
"""Restores at the same time on a host whose cores are unknown."""
AT_ONCE = 8
"""Restores at the same time on a host at most, unless the configuration says otherwise."""
FEW = 3
"""So many are needed for a median; below it the presets count."""
UNIT_S = 0.3
"""Preset of a restore that lacks nothing: mostly the way of the command and of the ack through Kafka."""
BYTES_PER_S = 10e6
"""Preset of what a host restores: somewhat less than a tenth of a link of 1 Gbit/s."""
PRIOR = AffineCost(a=0.2, b=0.8)
"""g before anything is measured: restores share what their host can do, but a fifth of each is waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRestore:
    """A restore of `lacking_bytes` on `host` took `seconds`, beside `concurrent` - 1 others on average."""

    host: HostId
    seconds: float
    lacking_bytes: int
    concurrent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRestores:
    """What was learned so far, for those who choose targets.

    `of_host` = g of hosts with a curve of their own (p90), `most_at_once` = restores at the same time that a host may
    run.
    """

    unit_s: float = UNIT_S
    bytes_per_s: float = BYTES_PER_S
    shared: RemoteCost = PRIOR
    of_host: Mapping[HostId, RemoteCost] = field(default_factory=dict)
    most_at_once: int = AT_ONCE

    def size(self, lacking_bytes: float) -> float:
        """The size of a restore for the model: 1 if nothing is lacking."""
        return 1.0 + lacking_bytes / (self.unit_s * self.bytes_per_s)

    def cost(self, host: HostId) -> RemoteCost:
        """g of a host."""
        return self.of_host.get(host, self.shared)


def slots_of(cores: float | None, most: int) -> int:
    """How many restores a host runs at the same time at most: one per core."""
    return min(SLOTS if cores is None else max(1, int(cores)), most)


class RestoreCosts:
    """Learns from the restores that have ended; everything that is kept has a limit."""

    def __init__(self) -> None:
        self._units: deque[float] = deque(maxlen=KEPT)
        self._remote: deque[MeasuredRestore] = deque(maxlen=KEPT)
        self._ended: deque[tuple[HostId, float, float]] = deque(maxlen=KEPT)  # host, begin, end

    @property
    def samples(self) -> int:
        """Number of measured restores of which something was lacking."""
        return len(self._remote)

    @property
    def unit_s(self) -> float:
        """Seconds of a restore that lacks nothing."""
        return statistics.median(self._units) if len(self._units) >= FEW else UNIT_S

    @property
    def bytes_per_s(self) -> float:
        """What a host restores per second, with all its restores together."""
        unit_s = self.unit_s
        rates = [
            each.lacking_bytes * each.concurrent / (each.seconds - unit_s)
            for each in self._remote
            if each.seconds > unit_s
        ]
        return statistics.median(rates) if len(rates) >= FEW else BYTES_PER_S

    def size(self, lacking_bytes: float) -> float:
        """The size of a restore for the model: 1 if nothing is lacking."""
        return LearnedRestores(unit_s=self.unit_s, bytes_per_s=self.bytes_per_s).size(lacking_bytes)

    def learned(self, slots: int) -> LearnedRestores:
        """What was learned so far, with curves up to so many restores at a time."""
        hosts = {each.host for each in self._remote}
        return LearnedRestores(
            unit_s=self.unit_s,
            bytes_per_s=self.bytes_per_s,
            shared=self.fitted(None, slots).high,
            of_host={host: self.fitted(host, slots).high for host in hosts if self.has_own(host)},
            most_at_once=slots,
        )

    def fitted(self, host: HostId | None, slots: int) -> FittedCost:
        """g(1) .. g(slots) of the host; None = of any host without a curve of its own."""
        local = LocalRestore(duration_s=self.unit_s, state_bytes=self.unit_s * self.bytes_per_s)
        own = [each for each in self._remote if each.host == host]
        samples = [
            RestoreSample(
                concurrent=max(1, round(each.concurrent)),
                duration_s=each.seconds,
                state_bytes=local.state_bytes + each.lacking_bytes,
            )
            for each in (own if len(own) >= ENOUGH else self._remote)
        ]
        return fit_cost(samples, local=local, prior=PRIOR, slots=slots)

    def has_own(self, host: HostId) -> bool:
        """Whether the host has a curve of its own."""
        return sum(each.host == host for each in self._remote) >= ENOUGH

    def learn(self, now: float, handover: Handover, running: Iterable[Handover]) -> None:
        """Note that the restore of a hand-over has ended; `running` = the restores that still run.

        A repeated attempt finds what the first one had restored, so it says nothing.  Nor does one of unknown size, nor
        one that goes on from a copy on the disk: what that lacked is an estimate.
        """
        host, began = handover.target_host, handover.since
        if now <= began or handover.attempt > 1 or handover.lacking_bytes is not None:
            return
        if handover.has_copy:
            self._units.append(now - began)
            return
        others = (each for each in running if each.target_host == host and each.id != handover.id)
        beside = [each.since for each in others if not each.has_copy]
        spans = [(begin, now) for begin in beside] + [(b, e) for name, b, e in self._ended if name == host]
        shared_s = sum(max(0.0, min(end, now) - max(begin, began)) for begin, end in spans)
        self._ended.append((host, began, now))
        concurrent = 1.0 + shared_s / (now - began)
        if handover.state_bytes:
            found = MeasuredRestore(
                host=host, seconds=now - began, lacking_bytes=handover.state_bytes, concurrent=concurrent
            )
            self._remote.append(found)
