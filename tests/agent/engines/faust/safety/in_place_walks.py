"""Random walks of a consumer group whose members rejoin in place: can two of them work on one partition at once?

The members follow the product's own rules (`MemberInPlace`, `Fence`, `place`); the broker here answers as a real one
was seen to answer.  Messages are late or lost; members are stopped, killed and started, and hand partitions over; some
ask that all revoke.  Stock members come and go, which know only the common protocol, revoke before each join, and as
leaders give away anything.  A tick is a second.  Each rule can be switched off.
"""

import random
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

from trimtab_agent.engines.faust.group.placing import place
from trimtab_agent.engines.faust.safety.fence import Fence
from trimtab_agent.engines.faust.safety.in_place import COMMON, OWN, MemberInPlace

PARTITIONS, SESSION_S, REBALANCE_S, BEAT_S, ANSWER_S = 6, 12, 20, 3, 6
TICKS = 400

Answer = tuple[dict[str, frozenset[int]], bool, bool]
"""What a leader answers: who gets what, whether the group is in place, and whether all must revoke and join again."""


class Rule(StrEnum):
    """What keeps two members from working on one partition."""

    BARRIER = "nothing is taken or given while a member joins"
    LOST_ANSWER = "the barrier stays when an answer is lost"
    CLAIMS_STAY = "what is claimed stays"
    THROWN_OUT = "a member that was thrown out claims nothing"
    SESSION = "the fence closes a session after the last good answer"
    OWN_NAME = "a member that claims anything offers only its own protocol"
    IN_STEP = "the fence closes a rebalance time-out after the last step"


class WalkedBroker:
    """The coordinator of the group."""

    def __init__(self, walk: "Walk") -> None:
        self.walk, self.state, self.generation, self.leader = walk, "empty", 0, ""
        self.members: dict[str, dict[str, Any]] = {}
        self.until = 0
        self.rows: Answer = ({}, False, False)
        self.protocol = COMMON

    def prepare(self, t: int) -> None:
        if self.state != "preparing":
            for each in self.members.values():
                each["joined"] = False
            self.state, self.until = "preparing", t + REBALANCE_S

    def remove(self, name: str, t: int) -> None:
        self.members.pop(name, None)
        self.prepare(t)

    def tick(self, t: int) -> None:
        for name, each in list(self.members.items()):
            waits = each["joined"] if self.state == "preparing" else self.state == "completing" and each["synced"]
            if not waits and t > each["beat"] + SESSION_S:
                self.remove(name, t)
        late = [name for name, each in self.members.items() if not each["synced"]]
        if self.state in ("completing", "stable") and t > self.until:
            for name in late:
                self.remove(name, t)
        everybody = all(each["joined"] for each in self.members.values())
        if self.state == "preparing" and (everybody or t > self.until):
            self.members = {name: each for name, each in self.members.items() if each["joined"]}
            if self.members:
                self.complete(t)
            else:
                self.state = "empty"

    def complete(self, t: int) -> None:
        self.generation += 1
        self.state, self.until = "completing", t + REBALANCE_S
        if self.leader not in self.members:
            self.leader = self.walk.dice.choice(sorted(self.members))
        offered = [set(each["names"]) for each in self.members.values()]
        self.protocol = OWN if OWN in set.intersection(*offered) else COMMON
        claims = {name: (each["claim"], each["in_place"]) for name, each in self.members.items()}
        for name, each in self.members.items():
            each.update(synced=False, beat=t)
            told = {"generation": self.generation, "claims": claims if name == self.leader else None}
            self.walk.answer(t, each["owner"], "joined", name, sent=each["sent"], **told)

    def join(self, t: int, owner: int, name: str, *, new: bool, sent: int, **offer: Any) -> None:
        if name not in self.members and not new:
            self.walk.answer(t, owner, "unknown", name)
            return
        supported = set.intersection({OWN, COMMON}, *(each["names"] for each in self.members.values()))
        if not supported & set(offer["names"]):
            self.walk.answer(t, owner, "inconsistent", name)
            return
        self.prepare(t)
        before = self.members.get(name, {"beat": t, "synced": False})
        self.members[name] = {**before, **offer, "joined": True, "owner": owner, "sent": sent}

    def sync(self, t: int, owner: int, name: str, *, generation: int, rows: Any, sent: int) -> None:
        each = self.members.get(name)
        if each is None or generation != self.generation or self.state == "preparing":
            self.walk.answer(t, owner, "unknown" if each is None else "again", name)
            return
        each.update(synced=True, beat=t, sync_sent=sent)
        if self.state == "completing" and rows is not None:
            self.state, self.rows = "stable", rows
            waiting = [other for other in self.members if self.members[other]["synced"] and other != name]
            for other in waiting:
                self.give(t, other)
        if self.state == "stable":
            self.give(t, name)

    def give(self, t: int, name: str) -> None:
        each = self.members[name]
        rows, in_place, revoke = self.rows
        told = {"generation": self.generation, "given": rows.get(name, frozenset()), "sent": each["sync_sent"]}
        self.walk.answer(t, each["owner"], "synced", name, in_place=in_place, revoke=revoke, **told)

    def beat(self, t: int, owner: int, name: str, *, generation: int, sent: int) -> None:
        each = self.members.get(name)
        if each is None:
            self.walk.answer(t, owner, "unknown", name)
        elif generation == self.generation:
            each["beat"] = t
            stable = self.state != "preparing"
            self.walk.answer(t, owner, "beat", name, generation=generation, stable=stable, sent=sent)

    def takes_commits(self, name: str, generation: int) -> bool:
        return name in self.members and generation == self.generation and self.state in ("stable", "preparing")


class WalkedMember:
    """The shell of one member: it sends, hears and hands over; what it may do is up to the product's rules."""

    def __init__(self, walk: "Walk", number: int, t: int) -> None:
        self.walk, self.number, self.stopped_until = walk, number, 0
        self.inbox: list[tuple[int, str, str, dict[str, Any]]] = []
        self.read, self.sticky = len(walk.topic), frozenset[int]()
        rules = walk.rules
        self.fence = Fence(
            SESSION_S if Rule.SESSION in rules else float("inf"),
            REBALANCE_S if Rule.IN_STEP in rules else float("inf"),
        )
        self.member: MemberInPlace[int] = MemberInPlace(self.fence)
        self.fence.in_step(t)
        self.taking: tuple[int, int] | None = None
        """Generation and partition of a hand-over that has begun here."""
        self.begin(t)

    def begin(self, t: int) -> None:
        self.walk.names += 1
        self.name, self.known, self.mode = f"m{self.walk.names}", False, "out"
        self.owns, self.next_beat = frozenset[int](), t
        self.asked, self.taking, self.asks = t, None, False

    def works(self, t: int, partition: int) -> bool:
        return partition in self.owns and t >= self.stopped_until and not self.fence.closed(t)

    def tick(self, t: int) -> None:
        if t < self.stopped_until:
            return
        if self.fence.closed(t) and self.owns:
            self.owns, self.mode = frozenset(), "rejoin"
        due, self.inbox = [m for m in self.inbox if m[0] <= t], [m for m in self.inbox if m[0] > t]
        for _, what, name, told in due:
            if name == self.name:
                getattr(self, f"hear_{what}")(t, **told)
        if self.mode in ("joining", "syncing") and t > self.asked + ANSWER_S:
            self.mode = "failed"
            if Rule.LOST_ANSWER not in self.walk.rules:
                self.member.barrier = False
        if self.mode == "failed" and self.walk.dice.random() < 0.15:
            self.mode = "rejoin"
        if self.mode in ("out", "rejoin"):
            self.join(t)
        if self.known and t >= self.next_beat and self.member.generation >= 0:
            self.next_beat = t + BEAT_S
            self.walk.ask(t, self.walk.broker.beat, self.number, self.name, generation=self.member.generation, sent=t)
        self.hand_over(t)

    def join(self, t: int) -> None:
        keeps = self.member.keeps(t)
        if not keeps:
            claims_sticky = self.mode == "out" and Rule.THROWN_OUT not in self.walk.rules
            self.owns = frozenset()
            claim = self.member.claim(self.sticky if claims_sticky else None)
        else:
            claim = self.member.claim(self.owns)
        self.asked = t
        alone = keeps and Rule.OWN_NAME in self.walk.rules
        offer = {"names": (OWN,) if alone else (OWN, COMMON), "claim": claim, "in_place": not self.asks}
        told = {"new": not self.known, "sent": t, **offer}
        self.walk.ask(t, self.walk.broker.join, self.number, self.name, **told)
        self.known, self.mode = True, "joining"

    def hand_over(self, t: int) -> None:
        walk, member = self.walk, self.member
        dice, broker = walk.dice, walk.broker
        free = (
            member.synced >= 0 and (not member.barrier or Rule.BARRIER not in walk.rules) and not self.fence.closed(t)
        )
        proved = free and broker.takes_commits(self.name, member.generation)
        if proved and self.owns and dice.random() < 0.08:
            partition, other = dice.choice(sorted(self.owns)), dice.choice(sorted(walk.members))
            if other != self.number:
                self.owns -= {partition}
                walk.topic.append((member.generation, partition, other))
        if self.taking is not None and free and self.taking[0] == member.generation:
            self.owns |= {self.taking[1]}
        self.taking = None
        if self.read < len(walk.topic) and dice.random() < 0.5:
            generation, partition, other = walk.topic[self.read]
            self.read += 1
            if other == self.number and proved and generation == member.generation:
                self.taking = (generation, partition)  # owned a tick later, if nothing has changed

    def hear_unknown(self, t: int) -> None:
        self.member.thrown_out()
        self.begin(t)

    def hear_again(self, t: int) -> None:
        self.mode = "rejoin"

    def hear_inconsistent(self, t: int) -> None:
        if self.mode == "joining":
            self.member.doubt = "the group has no protocol in common"
            self.owns, self.mode = frozenset(), "failed"

    def hear_joined(self, t: int, generation: int, claims: Any, sent: int) -> None:
        if self.mode not in ("joining", "failed"):
            return
        self.mode, self.asked = "syncing", t
        self.member.joined(generation, sent)
        rows = self.assign(claims) if claims is not None else None
        told = {"generation": generation, "rows": rows, "sent": t}
        self.walk.ask(t, self.walk.broker.sync, self.number, self.name, **told)

    def hear_synced(
        self, t: int, generation: int, given: frozenset[int], sent: int, in_place: bool, revoke: bool
    ) -> None:
        if self.mode != "syncing" or generation != self.member.generation:
            return
        change = self.member.synced_with(given, sent, in_place=in_place, revoke=revoke)
        if change.lost or self.member.doubt is not None:
            self.owns, self.mode = (frozenset() if change.lost else self.owns), "rejoin"
            return
        self.member.settled()
        self.owns, self.sticky, self.mode, self.asks = given, given, "steady", False

    def hear_beat(self, t: int, generation: int, stable: bool, sent: int) -> None:
        self.member.beat(generation, sent, stable=stable)
        if not stable and self.mode == "steady" and not self.member.is_late(generation):
            self.mode = "rejoin"

    def assign(self, told: dict[str, tuple[frozenset[int], bool]]) -> Answer:
        claims = {name: claim for name, (claim, _) in told.items()}
        in_place = all(can for _, can in told.values())
        if not in_place and any(claims.values()):
            return claims, False, True
        kept = {p: name for name in sorted(claims, reverse=True) for p in claims[name]}
        stay = kept if Rule.CLAIMS_STAY in self.walk.rules else {}
        return self.given(sorted(claims), stay), in_place, False

    def given(self, members: list[str], claims: dict[int, str]) -> dict[str, frozenset[int]]:
        rows = [(self.walk.dice.choice(members),) for _ in range(PARTITIONS)]
        placed = place(rows, partitions=PARTITIONS, previous={}, members=members, claims=claims)
        return {name: frozenset(p for p, (owner, _) in placed.items() if owner == name) for name in members}


class WalkedStock(WalkedMember):
    """A member that joins as stock Faust does.  It has the session's fence, as a worker that is off has."""

    def join(self, t: int) -> None:
        self.owns = frozenset()
        self.member.claim(None)
        self.asked = t
        offer = {"names": (COMMON,), "claim": frozenset(), "in_place": False}
        told = {"new": not self.known, "sent": t, **offer}
        self.walk.ask(t, self.walk.broker.join, self.number, self.name, **told)
        self.known, self.mode = True, "joining"

    def hear_inconsistent(self, t: int) -> None:
        if self.mode == "joining":
            self.known, self.mode = False, "failed"

    def hand_over(self, t: int) -> None: ...

    def assign(self, told: dict[str, tuple[frozenset[int], bool]]) -> Answer:
        return self.given(sorted(told), {}), False, False


class Walk:
    """One walk; `run` returns the tick at which two members worked on one partition, None if they never did."""

    def __init__(self, seed: int, rules: Collection[Rule]) -> None:
        self.dice, self.rules, self.names = random.Random(seed), frozenset(rules), 0
        self.topic: list[tuple[int, int, int]] = []
        self.wire: list[tuple[int, Callable[..., None], tuple[Any, ...], dict[str, Any]]] = []
        self.broker = WalkedBroker(self)
        self.members = {number: WalkedMember(self, number, 0) for number in range(3)}
        self.worked = 0

    def answer(self, t: int, number: int, what: str, name: str, **told: Any) -> None:
        if number in self.members and self.dice.random() > 0.12:
            self.members[number].inbox.append((t + self.dice.randrange(1, 4), what, name, told))

    def ask(self, t: int, call: Callable[..., None], *words: Any, **told: Any) -> None:
        if self.dice.random() > 0.08:
            self.wire.append((t + self.dice.randrange(0, 3), call, words, told))

    def run(self) -> int | None:
        for t in range(TICKS):
            due, self.wire = [w for w in self.wire if w[0] <= t], [w for w in self.wire if w[0] > t]
            for _, call, words, told in due:
                call(t, *words, **told)
            self.broker.tick(t)
            for number in self.dice.sample(sorted(self.members), len(self.members)):
                self.members[number].tick(t)
            self.disturb(t)
            for partition in range(PARTITIONS):
                at_work = sum(each.works(t, partition) for each in self.members.values())
                self.worked += at_work
                if at_work > 1:
                    return t
        return None

    def disturb(self, t: int) -> None:
        roll, some = self.dice.random(), self.dice.choice(sorted(self.members))
        if roll < 0.01:
            self.members[some].stopped_until = t + self.dice.randrange(2, 3 * SESSION_S)
        elif roll < 0.013 and len(self.members) > 2:
            del self.members[some]
        elif roll < 0.018 and len(self.members) < 6:
            number = max(self.members) + 1
            self.members[number] = (WalkedStock if roll < 0.015 else WalkedMember)(self, number, t)
        elif roll < 0.02:
            each = self.members[some]
            each.asks, each.member.doubt = True, "it asks for it"
            if each.mode == "steady":
                each.mode = "rejoin"
