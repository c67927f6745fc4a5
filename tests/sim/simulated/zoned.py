"""Zones in some simulated clusters, what happens to a whole zone, and what must hold: read from what is published."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.sim.simulated.broker import Stored
from tests.sim.simulated.ledger import Violation
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.rules import Rule, RuleKind

ZONED_EVERY, ZONED = 16, 12
"""Of so many seeds in a row this one is of a cluster with zones."""
ZONES = 3
DRAINED_FOR_S = 30.0
"""A plan that was made before a drain was read may still begin; so long after it none does."""


def is_zoned(seed: int) -> bool:
    """Whether hosts of this cluster name their zones."""
    return seed % ZONED_EVERY == ZONED


def zone_of_host(number: int) -> str:
    """The zone of the host with this number."""
    return f"z{number % ZONES}"


def host_number(worker: WorkerId) -> int:
    """The number of a worker's host: `w3b` runs on `h3`."""
    return int(worker[1:].rstrip("ab"))


def zone_of(worker: WorkerId) -> str:
    """The zone of a worker."""
    return zone_of_host(host_number(worker))


def zone_rules(seed: int, key_groups: int) -> tuple[Rule, ...]:
    """Owner and standbys are to be in different zones; in half of the clusters some key groups stay out of one zone."""
    drawn = random.Random(seed * 104_729)
    found = [Rule(name="spread", kind=RuleKind.SPREAD, reason="simulated")]
    if drawn.random() < 0.5:
        few = drawn.randint(1, max(1, key_groups // 3))
        kept = tuple(drawn.sample([zone_of_host(each) for each in range(ZONES)], 2))
        found.append(Rule(name="keep", kind=RuleKind.ZONE, reason="simulated", key_groups=((0, few),), zones=kept))
    return tuple(found)


@dataclass(slots=True)
class ZoneCheck:
    """Judges plans while a zone is drained, and where standbys are in the end.

    `drained` = since when the acting controller knows that a worker is to be empty.
    """

    wanted: int = 0
    drained: dict[WorkerId, float] = field(default_factory=dict)
    judged: int = 0

    def see_intents(self, now: float, intents: Iterable[Stored], read_to: int, workers: Iterable[WorkerId]) -> None:
        """What operators want, as far as the acting controller has read it."""
        newest = {record.key: record.value for record in intents if record.offset < read_to}
        drained = [each for each in workers if newest.get(Drain.key_of(each).encode()) is not None]
        self.drained = {each: self.drained.get(each, now) for each in drained}

    def see_moves(self, now: float, plan: str, targets: Iterable[WorkerId]) -> None:
        """A plan for balance or a drain begins."""
        for target in targets:
            self.judged += 1
            if now - self.drained.get(target, now) > DRAINED_FOR_S:
                raise Violation(f"zones: plan {plan} moves onto {target}, which is to be empty")

    def against(
        self,
        rows: Iterable[tuple[KeyGroup, Owners]],
        workers: Iterable[WorkerId],
        allows: Callable[[KeyGroup, WorkerId], bool],
    ) -> list[Owners]:
        """Rows whose copies share a zone, although there are enough workers in others."""
        if not self.wanted:
            return []
        present, found = list(workers), []
        for key_group, row in rows:
            zones = [zone_of(each) for each in row]
            able = {zone_of(each) for each in present if allows(key_group, each)}
            others = [each for each in present if allows(key_group, each) and zone_of(each) != zones[0]] if row else []
            near = len(others) >= self.wanted and zones[0] in zones[1:]
            apart = len(able | set(zones[:1])) <= self.wanted or len(set(zones)) == len(zones)
            if row and (near or not apart):
                found.append(row)
        return found
