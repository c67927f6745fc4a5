"""What restores cost, learned from those that were measured.

A *restore* is what the target of a hand-over does between `prepare` and `prepared`: it opens the state and reads what
it lacks from the changelog.  One that lacks B bytes beside n - 1 others on its host takes

    unit_s * (1 + B / unit_bytes) * g(n)

The unit is a restore that lacks nothing, because its worker was a standby: `unit_s` is the median of those.  What a
host restores in that time is `unit_bytes`.  DynDL's `fit_cost` gives g for each host, from its own restores once it has
had enough of them, else from those of all hosts, shrunk towards a prior.  The prior of a host shares out what the
foreground leaves of its link; where that is unknown it is a cautious default.  Nothing of this is
journalled: a new leader begins with the prior.

What a link has left = what may be filled of it, less the p95 of what the foreground received.  The foreground is what a
host receives in windows in which it restores nothing that the controller knows of.  A host whose link speed is unknown,
or that was not seen without a restore for FEW_WINDOWS windows, has no such number: nothing is assumed of it.
"""

import statistics
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab_controller.execution.events import HostReport
from trimtab_controller.execution.state import Handover
from trimtab_models.dyndl.fitting import FittedCost, LocalRestore, RestoreSample, fit_cost, network_prior
from trimtab_models.instances.scheduling import AffineCost, RemoteCost
from trimtab_protocol.messages.names import AppId, HostId

KEPT_WINDOWS = 360
"""Windows per host of which the foreground is known; an hour with windows of 10 s."""
FEW_WINDOWS = 3
"""So many windows must have shown the foreground of a host."""
LEAST_SHARE = 0.05
"""Restores get this share of a full link all the same, since the network divides it."""
FOREGROUND = 95.0
"""The percentile of the foreground's use that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """A link of a known speed: what may be filled of it, and the p95 of what the foreground takes (bytes/s)."""

    limit_bytes_s: float
    foreground_bytes_s: float

    @property
    def full(self) -> bool:
        """Whether the foreground alone fills it."""
        return self.foreground_bytes_s >= self.limit_bytes_s

    @property
    def free_bytes_s(self) -> float:
        """What is left for restores."""
        return max(LEAST_SHARE * self.limit_bytes_s, self.limit_bytes_s - self.foreground_bytes_s)


class Links:
    """Follows the hosts from window to window.  `cores` = of the hosts in the last one, as far as they are known."""

    def __init__(self) -> None:
        self.cores: dict[HostId, float] = {}
        self._limits: dict[HostId, float] = {}
        self._received: dict[HostId, deque[float]] = {}
        self._links: dict[HostId, HostLink] = {}
        self._restored_until: dict[HostId, float] = {}

    def restored(self, host: HostId, until: float) -> None:
        """A restore ran on the host until then (epoch seconds)."""
        self._restored_until[host] = max(until, self._restored_until.get(host, until))

    def observe(self, start_s: float, hosts: Mapping[HostId, HostReport], restoring: Collection[HostId]) -> None:
        """Take a window that began at `start_s`; `restoring` = the hosts that restore now."""
        self.cores = {host: row.cores for host, row in hosts.items() if row.cores}
        self._limits = {host: row.link_bytes_s for host, row in hosts.items() if row.link_bytes_s}
        for host in self._received.keys() - hosts.keys():
            del self._received[host]
        self._restored_until = {host: at for host, at in self._restored_until.items() if at > start_s}
        for host, row in hosts.items():
            if row.received_bytes_s is not None and host not in self._restored_until and host not in restoring:
                self._received.setdefault(host, deque(maxlen=KEPT_WINDOWS)).append(row.received_bytes_s)
        self._links = {
            host: HostLink(limit_bytes_s=limit, foreground_bytes_s=float(np.percentile(received, FOREGROUND)))
            for host, limit in self._limits.items()
            if len(received := self._received.get(host, ())) >= FEW_WINDOWS
        }

    def of(self, host: HostId | None) -> HostLink | None:
        """The link of a host; None if its speed or its use is unknown."""
        return None if host is None else self._links.get(host)

    @property
    def known(self) -> Mapping[HostId, HostLink]:
        """The links of known speed and use."""
        return self._links


KEPT = 200
"""Number of measured restores that are kept, in all and of each kind; older ones are forgotten."""
ENOUGH = 10
"""A host with so many measured restores has a curve of its own."""
SLOTS = 2
"""Restores at the same time on a host whose cores are unknown."""
AT_ONCE = 8
"""Restores at the same time on a host at most, unless the configuration says otherwise."""
FEW = 3
"""So many are needed for a median; below it the defaults count."""
UNIT_S = 0.3
"""Default of a restore that lacks nothing: mostly the way of the command and of the ack through Kafka."""
BYTES_PER_S = 10e6
"""Default of what a host restores: somewhat less than a tenth of a link of 1 Gbit/s."""
PRIOR = AffineCost(a=0.2, b=0.8)
"""g before anything is measured, on hosts of unknown links: restores share what their host can do, but a fifth of each
is waiting."""
MOST_ALIKE = 2
"""Significant digits of a prior's b: hosts with nearly the same free link share a curve."""

ROUNDING = 1e-6


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

    `of_host` = g of hosts with a curve or a prior of their own (p90), `most_at_once` = restores at the same time that a
    host may run, `building` = bytes that new standbys restore now, by host, `waiting` = those of standbys that are not
    named yet, by app.
    """

    unit_s: float = UNIT_S
    bytes_per_s: float = BYTES_PER_S
    shared: RemoteCost = PRIOR
    of_host: Mapping[HostId, RemoteCost] = field(default_factory=dict)
    most_at_once: int = AT_ONCE
    building: Mapping[HostId, Sequence[int]] = field(default_factory=dict)
    waiting: Mapping[AppId, Sequence[tuple[HostId, int]]] = field(default_factory=dict)

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
    """Learns from the restores that have ended; everything that is kept has a limit.

    `links` = what the links of hosts have left for restores.
    """

    def __init__(self) -> None:
        self.links = Links()
        self._units: deque[float] = deque(maxlen=KEPT)
        self._remote: deque[MeasuredRestore] = deque(maxlen=KEPT)
        self._ended: deque[tuple[HostId, float, float]] = deque(maxlen=KEPT)  # host, begin, end

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
        hosts = {*self._with_own(), *self.links.known}
        curves = self.curves(hosts, dict.fromkeys(hosts, slots))
        return LearnedRestores(
            unit_s=self.unit_s,
            bytes_per_s=self.bytes_per_s,
            shared=self._fitted(None, slots, PRIOR).high,
            of_host={host: curve.high for host, curve in curves.items()},
            most_at_once=slots,
        )

    def curves(self, hosts: Iterable[HostId], slots: Mapping[HostId, int]) -> dict[HostId, FittedCost]:
        """The curve of each host; hosts without restores of their own and with the same prior share it."""
        own, alone = self._with_own(), self.bytes_per_s
        shared: dict[tuple[int, AffineCost], FittedCost] = {}
        found: dict[HostId, FittedCost] = {}
        for host in hosts:
            prior = self._prior(host, alone)
            if host in own:
                found[host] = self._fitted(host, slots[host], prior)
                continue
            key = slots[host], prior
            if key not in shared:
                shared[key] = self._fitted(None, slots[host], prior)
            found[host] = shared[key]
        return found

    def _prior(self, host: HostId, alone_bytes_per_s: float) -> AffineCost:
        """g before anything is measured, by what the host's link has left; the default where that is unknown."""
        link = self.links.of(host)
        if link is None:
            return PRIOR
        return network_prior(float(f"{alone_bytes_per_s / link.free_bytes_s:.{MOST_ALIKE}g}"))

    def at_once(self, host: HostId, slots: int, curve: FittedCost) -> int:
        """How many of its slots the host may use at the same time, so that its link is not filled; at least one."""
        link = self.links.of(host)
        if link is None:
            return slots
        free, alone = link.free_bytes_s * (1.0 + ROUNDING), self.bytes_per_s
        return max((n for n in range(2, slots + 1) if n * alone / curve.median.at(n) <= free), default=1)

    def _with_own(self) -> frozenset[HostId]:
        """The hosts with so many measured restores that they have a curve of their own."""
        counts = Counter(each.host for each in self._remote)
        return frozenset(host for host, count in counts.items() if count >= ENOUGH)

    def _fitted(self, own: HostId | None, slots: int, prior: AffineCost) -> FittedCost:
        """By the restores of this host, or by all."""
        local = LocalRestore(duration_s=self.unit_s, state_bytes=self.unit_s * self.bytes_per_s)
        samples = [
            RestoreSample(
                concurrent=max(1, round(each.concurrent)),
                duration_s=each.seconds,
                state_bytes=local.state_bytes + each.lacking_bytes,
            )
            for each in self._remote
            if own in (None, each.host)
        ]
        return fit_cost(samples, local=local, prior=prior, slots=slots)

    def learn(self, now: float, handover: Handover, running: Iterable[Handover]) -> None:
        """Note that the restore of a hand-over has ended; `running` = the restores that still run.

        A repeated attempt finds what the first one had restored, so it says nothing.  Nor does one of unknown size, nor
        one that goes on from a copy on the disk: what that lacked is an estimate.
        """
        host, began = handover.target_host, handover.since
        self.links.restored(host, now)
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
