"""Rules in some simulated clusters, and what must hold of them: read from what is published, not from the product."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.sim.simulated.ledger import Violation
from tests.sim.simulated.zoned import zone_of
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.rules import Rule, RuleKind

RULED_EVERY, RULED = 4, 2
"""Of so many seeds in a row this one is of a cluster with rules."""


def some_rules(seed: int, key_groups: int) -> tuple[Rule, ...]:
    """In one of four clusters: some key groups may not be on the first host, and some only on the first three."""
    if seed % RULED_EVERY != RULED:
        return ()
    drawn = random.Random(seed * 7_919)
    first = drawn.randrange(key_groups)
    last = drawn.randrange(first, key_groups)
    found = [Rule(name="not-h0", kind=RuleKind.EXCLUDE, reason="simulated", key_groups=((first, last),), hosts=("h0",))]
    if drawn.random() < 0.5:
        few = drawn.randint(1, max(1, key_groups // 4))
        hosts = ("h0", "h1", "h2")
        found.append(Rule(name="pool", kind=RuleKind.POOL, reason="simulated", key_groups=((0, few),), hosts=hosts))
    return tuple(found)


@dataclass(slots=True)
class RuleCheck:
    """Judges moves and standbys; a worker's host is in its name: `w3b` runs on `h3`.  `judged` counts them.

    `zoned`: hosts have zones, by their number.
    """

    rules: tuple[Rule, ...] = ()
    zoned: bool = False
    judged: int = 0
    _standbys: dict[KeyGroup, frozenset[WorkerId]] = field(default_factory=dict)

    def allows(self, key_group: KeyGroup, worker: WorkerId) -> bool:
        """Whether no rule about the key group keeps it off the worker."""
        host = HostId(f"h{worker[1:].rstrip('ab')}")
        return all(
            rule.allows(worker, host, zone_of(worker) if self.zoned else None)
            for rule in self.rules
            if any(first <= key_group.partition <= last for first, last in rule.key_groups)
        )

    def see_moves(self, plan: str, moves: Iterable[tuple[KeyGroup, WorkerId]]) -> None:
        """A plan for balance or of an operator begins."""
        for key_group, target in moves:
            self.judged += 1
            if not self.allows(key_group, target):
                raise Violation(f"plan {plan} moves {key_group} to {target} against a rule")

    def see_row(self, key_group: KeyGroup, row: Owners, before: Owners, *, calm: bool) -> None:
        """A row of a placement, and the one before: new standbys keep the rules.

        A former owner may follow what has left it.  What a lost worker had may go anywhere, if no allowed worker is
        there; so standbys are judged while nothing fails.
        """
        now = frozenset(row[1:])
        for worker in now - self._standbys.get(key_group, frozenset()) - frozenset(before[:1]):
            self.judged += 1
            if calm and not self.allows(key_group, worker):
                raise Violation(f"{worker} is a new standby of {key_group} against a rule")
        self._standbys[key_group] = now

    def hosts_for(self, key_group: KeyGroup, hosts: Iterable[tuple[WorkerId, HostId]]) -> set[HostId]:
        """The hosts that the rules leave to a key group."""
        return {host for worker, host in hosts if self.allows(key_group, worker)}
