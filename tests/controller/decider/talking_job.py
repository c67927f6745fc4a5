"""A job of two operators whose key groups talk to each other, and whose remote tuples cost what they are told to."""

from dataclasses import dataclass, field

import numpy as np

from tests.controller.decider.decider_situations import a_load, a_node, a_window
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.messages.snapshot import HostWindow, KeyGroupWindow, PairWindow, Snapshot

APP, HEAD, TAIL = AppId("app"), OperatorId("head"), OperatorId("tail")
WINDOW_S = 10.0
FIRST = 100


def kg(operator: OperatorId, partition: int) -> KeyGroup:
    return KeyGroup(APP, operator, partition)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Relative standard deviations: of a key group's cost for ever, of a window's, of all of a worker's in a window.

    `counts` = of the tuples counted at one end against those at the other; `odd` = share of the samples that cost two
    to six times as much, because something else ran.
    """

    key_groups: float = 0.15
    windows: float = 0.08
    workers: float = 0.03
    counts: float = 0.01
    odd: float = 0.03


QUIET = Noise(key_groups=0.0, windows=0.0, workers=0.0, counts=0.0, odd=0.0)
BUSY = Noise()


@dataclass
class TalkingJob:
    """`pairs` key groups of `head` send each tuple to the one of `tail` with their number.

    `work` = CPU seconds per tuple, `sending` and `receiving` = more of them for a remote tuple, at `head` and at
    `tail`; `rate` = tuples per second of a pair, on average; `drift` = by what share of `work` every tuple costs more
    after each window.  Plug-ins tell which tuples skip the broker if `by_broker` (none does) or `counted` (all within a
    worker do).
    """

    pairs: int = 24
    workers: int = 3
    rate: float = 100.0
    work: float = 300e-6
    sending: float = 100e-6
    receiving: float = 120e-6
    noise: Noise = BUSY
    state_bytes: int | None = 1_000_000
    apart: bool = False
    drift: float = 0.0
    by_broker: bool = False
    counted: bool = False
    seed: int = 1
    number: int = FIRST
    owners: dict[KeyGroup, WorkerId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.names = [WorkerId(f"w{place}") for place in range(self.workers)]
        self.rates = self.rate * self.random.lognormal(0.0, 0.4 if self.noise is not QUIET else 0.0, self.pairs)
        self.factors = {
            operator: 1.0 + self.noise.key_groups * self.random.standard_normal(self.pairs) for operator in (HEAD, TAIL)
        }
        tails = [(each + 1) % self.workers for each in range(self.pairs)]
        if not self.apart:  # evenly, by chance
            tails = self.random.permutation([each % self.workers for each in range(self.pairs)]).tolist()
        for each in range(self.pairs):
            self.owners[kg(HEAD, each)] = self.names[each % self.workers]
            self.owners[kg(TAIL, each)] = self.names[tails[each]]

    @property
    def remote(self) -> int:
        """How many pairs are apart."""
        return sum(self.owners[kg(HEAD, each)] != self.owners[kg(TAIL, each)] for each in range(self.pairs))

    def window(self) -> Snapshot:
        """The next window."""
        work = self.work * (1.0 + self.drift * (self.number - FIRST))
        self.number += 1
        noise, random = self.noise, self.random
        rates = self.rates * (1.0 + noise.windows * random.standard_normal(self.pairs))
        shared = {name: 1.0 + noise.workers * random.standard_normal() for name in self.names}
        rows, pairs = [], []
        for each in range(self.pairs):
            head, tail, rate = kg(HEAD, each), kg(TAIL, each), float(rates[each])
            remote = self.owners[head] != self.owners[tail]
            for key_group, cost in ((head, self.sending), (tail, self.receiving)):
                odd = random.uniform(2.0, 6.0) if random.random() < noise.odd else 1.0
                cpu = work * self.factors[key_group.operator][each] + cost * remote
                cpu *= shared[self.owners[key_group]] * odd * (1.0 + noise.windows * random.standard_normal())
                done = rate * (1.0 + noise.counts * random.standard_normal())
                rows.append(self._row(key_group, max(0.0, cpu) * rate, done))
            counted = 0.0 if self.by_broker or remote else rate
            direct_s = counted if self.by_broker or self.counted else None
            pairs.append(PairWindow(source=head, target=tail, tuples_s=rate, bytes_s=10.0 * rate, direct_s=direct_s))
        return self._snapshot(rows, pairs)

    def _row(self, key_group: KeyGroup, cpu: float, done: float) -> KeyGroupWindow:
        return a_load(
            key_group,
            self.owners[key_group],
            cpu,
            tuples_in_s=done,
            tuples_out_s=done,
            state_bytes=self.state_bytes,
            backlog=0,
        )

    def _snapshot(self, rows: list[KeyGroupWindow], pairs: list[PairWindow]) -> Snapshot:
        used = {name: 0.02 + sum(row.cpu or 0.0 for row in rows if row.worker == name) for name in self.names}
        return a_window(
            WINDOW_S * self.number,
            [a_node(name, host=HostId(f"h-{name}"), capacity=1.0, cpu=used[name]) for name in self.names],
            rows,
            hosts=tuple(
                HostWindow(host=HostId(f"h-{name}"), covered_s=WINDOW_S, cpu=used[name], cores=4.0, basis=Basis.CONFIG)
                for name in self.names
            ),
            pairs=tuple(pairs),
        )
