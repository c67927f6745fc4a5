"""Rounds of a decider with rules that come, end, and contradict each other, while workers are lost and drained.

The decider, its solver and its standbys are the product's own.  A plan is carried out at once, so that thousands of
rounds take minutes; the simulated clusters (`simulation.py`) carry plans out with real agents and workers.  What must
hold is worked out here, from the rules and from what was decided, without the product's classes of key groups.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from tests.controller.decider.hosted_job import APP, WINDOW_S, HostedJob, Machine, kg
from tests.sim.simulated.ledger import Violation
from trimtab_controller.decider.events import IntentsChanged
from trimtab_controller.decider.machine import Decider
from trimtab_controller.decider.values.decision import Adopted, Decision, Planned, Scaled, StandbysPlaced
from trimtab_controller.decider.values.reasons import ConcernKind
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_controller.plan import PlanReason
from trimtab_protocol.messages.intents import AddRule, Drain, Intent
from trimtab_protocol.messages.names import HostId, KeyGroup, WorkerId
from trimtab_protocol.messages.rules import Rule, RuleKind

ROUNDS = 40
"""Rounds of one cluster in which something happens."""
QUIET = 12
"""Rounds after these: then key groups are where rules want them, with the smallest budget, too."""
OPERATORS = ("sums", "joins")


@dataclass(slots=True)
class Counts:
    """What happened.  `judged` = moves and new standbys that were compared with the rules.

    `settled` = key groups of which a rule says where they are, and which are there in the end.
    """

    rounds: int = 0
    rules: int = 0
    judged: int = 0
    fixed: int = 0
    conflicts: int = 0
    losses: int = 0
    drains: int = 0
    settled: int = 0

    def add(self, other: "Counts") -> None:
        """Add those of another cluster."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.rules} rules, {self.judged} moves and new standbys judged, "
            f"{self.fixed} key groups moved because of rules, {self.conflicts} rounds with conflicts, "
            f"{self.losses} losses, {self.drains} drains, {self.settled} key groups where rules want them in the end: "
            "no breach"
        )


@dataclass(slots=True)
class RuledCluster:
    """A cluster of 3 to 7 workers with a host each, in up to three zones, and 12 to 32 key groups."""

    seed: int
    drawn: random.Random = field(init=False)
    job: HostedJob = field(init=False)
    own: tuple[Rule, ...] = field(init=False)
    said: dict[str, Intent] = field(default_factory=dict)
    gone: dict[WorkerId, HostId] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.drawn = random.Random(self.seed)
        drawn = self.drawn
        workers, zones = drawn.randint(3, 7), drawn.choice((0, 2, 3))
        machines = {
            HostId(f"h{at}"): Machine(cores=4.0, zone=f"z{at % zones}" if zones else None) for at in range(workers)
        }
        names = [WorkerId(f"w{at}") for at in range(workers)]
        groups = [kg(at, drawn.choice(OPERATORS)) for at in range(drawn.randint(12, 32))]
        self.own = tuple(self._rule(f"own-{at}") for at in range(drawn.randint(0, 2)))
        self.job = HostedJob(
            machines=machines,
            workers={worker: HostId(f"h{worker[1:]}") for worker in names},
            owners={each: drawn.choice(names) for each in self._whole(groups)},
            rates={each: drawn.uniform(5.0, 60.0) for each in self._whole(groups)},
            rules=self.own,
            standbys=drawn.choice((None, 1, 1, 2)),
            solve_s=0.02,
        )

    @staticmethod
    def _whole(groups: list[KeyGroup]) -> list[KeyGroup]:
        """Each operator has key groups from 0 on."""
        counts = {operator: sum(each.operator == operator for each in groups) for operator in OPERATORS}
        return [kg(number, operator) for operator, count in counts.items() for number in range(count)]

    def run(self) -> Counts:
        """Raises Violation."""
        decider = self.job.decider(max_migrations=self.drawn.choice((3, 8, 50)), drain_load_distance=1000.0)
        for round_ in range(ROUNDS + QUIET):
            if round_ < ROUNDS:
                self._disturb()
            self._round(decider)
        self._settle(self.in_force(WINDOW_S * self.job.number))
        return self.counts

    def _round(self, decider: Decider) -> None:
        self.job.place(decider)
        decider.on_event(WINDOW_S * self.job.number, IntentsChanged(intents=tuple(self.said.values())))
        before, followers = dict(self.job.owners), dict(self.job.followers)
        decisions = self.job.round(decider)
        rules = self.in_force(WINDOW_S * self.job.number)
        for decision in decisions:
            self._judge(decision, rules, before, followers)
            if isinstance(decision, Scaled):  # no agent stops it here: the operator is content that it is empty
                self.said.pop(f"drain/{decision.worker}", None)
        told = any(each.kind is ConcernKind.RULES_CONFLICT for each in decider.known.concerns)
        self.counts.rounds += 1
        self.counts.conflicts += told
        if isinstance(decider.known.views.get(APP), SmoothedView):
            self._compare(rules, told)

    def in_force(self, now: float) -> list[Rule]:
        """The rules that hold at the end of a window."""
        added = [each.rule for each in self.said.values() if isinstance(each, AddRule)]
        return [rule for rule in (*self.own, *added) if rule.until is None or now < rule.until]

    # --- what happens

    def _disturb(self) -> None:
        drawn, now = self.drawn, WINDOW_S * self.job.number
        if drawn.random() < 0.3:
            self.job.rates = {each: drawn.expovariate(1.0 / 25.0) for each in self.job.owners}
        if drawn.random() < 0.2:
            rule = self._rule(f"r{self.job.number}")
            if drawn.random() < 0.6:
                rule = replace(rule, until=now + WINDOW_S * drawn.randint(2, 15))
            self._say(AddRule(rule=rule, by="ann", at=now, reason=rule.reason))
        added = [key for key in self.said if key.startswith("rule/")]
        if added and drawn.random() < 0.15:
            del self.said[drawn.choice(added)]
        if drawn.random() < 0.08:
            drain = Drain(worker=drawn.choice(sorted(self.job.workers)), by="ann", at=now, reason="kernel")
            self.counts.drains += 1
            self._say(drain)
        drained = [key for key in self.said if key.startswith("drain/")]
        if drained and drawn.random() < 0.25:
            del self.said[drawn.choice(drained)]
        if len(self.job.workers) > 2 and drawn.random() < 0.05:
            self._lose(drawn.choice(sorted(self.job.workers)))
        if self.gone and drawn.random() < 0.3:
            worker = drawn.choice(sorted(self.gone))
            self.job.workers[worker] = self.gone.pop(worker)

    def _say(self, intent: Intent) -> None:
        self.said[intent.key] = intent

    def _lose(self, worker: WorkerId) -> None:
        """As the plug-in does: the first standby takes over, else any worker."""
        self.counts.losses += 1
        self.gone[worker] = self.job.workers.pop(worker)
        self.job.followers = {
            each: tuple(name for name in row if name != worker) for each, row in self.job.followers.items()
        }
        for each, owner in list(self.job.owners.items()):
            if owner == worker:
                heirs = self.job.followers.get(each, ())
                self.job.owners[each] = heirs[0] if heirs else self.drawn.choice(sorted(self.job.workers))
                self.job.followers[each] = heirs[1:]

    def _rule(self, name: str) -> Rule:
        drawn = self.drawn
        self.counts.rules += 1
        kind = drawn.choice(list(RuleKind))
        some = tuple(f"w{at}" for at in sorted(drawn.sample(range(7), drawn.randint(1, 4))))
        zones = tuple(f"z{at}" for at in sorted(drawn.sample(range(3), drawn.randint(1, 2))))
        of_kind: dict[RuleKind, dict[str, object]] = {
            RuleKind.POOL: {"hosts": tuple(f"h{each[1:]}" for each in some)},
            RuleKind.EXCLUDE: drawn.choice(({"workers": some[:2]}, {"zones": zones[:1]})),
            RuleKind.FREEZE: {},
            RuleKind.PIN: {"workers": some[:1]},
            RuleKind.ZONE: {"zones": zones},
            RuleKind.SPREAD: {},
            RuleKind.PRIORITY: {"priority": drawn.choice((-5, 5, 50))},
        }
        says = of_kind[kind]
        if kind is not RuleKind.SPREAD:
            first = drawn.randint(0, 12)
            says |= {"key_groups": ((first, first + drawn.randint(0, 8)),), "operator": drawn.choice(("*", *OPERATORS))}
        return Rule(name=name, kind=kind, reason="simulated", **says)  # type: ignore[arg-type]

    # --- what must hold

    def about(self, rules: list[Rule], key_group: KeyGroup) -> list[Rule]:
        """The rules about a key group."""
        return [
            rule
            for rule in rules
            if fnmatchcase(key_group.operator, rule.operator)
            and (not rule.key_groups or any(low <= key_group.partition <= high for low, high in rule.key_groups))
        ]

    def zone(self, worker: WorkerId) -> str | None:
        """The zone of a worker's host."""
        return self.job.machines[HostId(f"h{worker[1:]}")].zone

    def against(self, rules: list[Rule], key_group: KeyGroup, worker: WorkerId, *, owns: bool) -> list[str]:
        """The rules that keep a key group off a worker."""
        host, zone = f"h{worker[1:]}", self.zone(worker)
        found = []
        for rule in self.about(rules, key_group):
            inside = worker in rule.workers or host in rule.hosts or (zone is not None and zone in rule.zones)
            pool = rule.kind in (RuleKind.POOL, RuleKind.ZONE) or (rule.kind is RuleKind.PIN and owns)
            if (pool and not inside) or (rule.kind is RuleKind.EXCLUDE and inside):
                found.append(rule.name)
        return found

    def _judge(
        self,
        decision: Decision,
        rules: list[Rule],
        before: dict[KeyGroup, WorkerId],
        followers: dict[KeyGroup, tuple[WorkerId, ...]],
    ) -> None:
        if isinstance(decision, Planned):
            self.counts.fixed += len(decision.plan.moves) if decision.plan.reason is PlanReason.RULES else 0
            for move in decision.plan.moves:
                self.counts.judged += 1
                if any(rule.kind is RuleKind.FREEZE for rule in self.about(rules, move.key_group)):
                    self._fail(f"{move.key_group} is frozen, and moves from {move.source} to {move.target}")
                if by := self.against(rules, move.key_group, move.target, owns=True):
                    self._fail(f"{move.key_group} moves to {move.target} against {', '.join(by)}")
        rows = decision.rows if isinstance(decision, StandbysPlaced) else {}
        rows = decision.standbys if isinstance(decision, Planned | Adopted) else rows
        for key_group, row in rows.items():
            for worker in set(row[1:]) - set(followers.get(key_group, ())) - {before[key_group]}:
                self.counts.judged += 1
                if by := self.against(rules, key_group, worker, owns=False):
                    self._fail(f"{worker} becomes a standby of {key_group} against {', '.join(by)}")
            zones = [self.zone(each) for each in row]
            if any(rule.kind is RuleKind.SPREAD for rule in rules) and None not in zones and len(set(zones)) < len(row):
                self._fail(f"{key_group} and its standbys share a zone: {row}")

    def _compare(self, rules: list[Rule], told: bool) -> None:
        """A key group that rules leave no worker is told."""
        stuck = [each for each in self.job.owners if not list(self._left(rules, each))]
        if stuck and not told:
            self._fail(f"rules leave no worker to {stuck[0]}, and nobody is told")

    def _settle(self, rules: list[Rule]) -> None:
        """After quiet rounds each key group is where its rules want it, if it may move and there is such a worker."""
        drained = {each.worker for each in self.said.values() if isinstance(each, Drain)}
        for key_group, owner in self.job.owners.items():
            frozen = any(rule.kind is RuleKind.FREEZE for rule in self.about(rules, key_group))
            if frozen or not set(self._left(rules, key_group)) - drained:
                continue
            if by := self.against(rules, key_group, owner, owns=True):
                self._fail(f"{key_group} is still on {owner} against {', '.join(by)}")
            self.counts.settled += any(rule.places for rule in self.about(rules, key_group))

    def _left(self, rules: list[Rule], key_group: KeyGroup) -> Iterator[WorkerId]:
        for worker in self.job.workers:
            if not self.against(rules, key_group, worker, owns=True):
                yield worker

    def _fail(self, what: str) -> None:
        raise Violation(f"seed {self.seed}, round {self.counts.rounds}: {what} ({APP})")
