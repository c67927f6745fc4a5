"""Does the controller's journal hold everything that was published, and is nothing missing in it?

One publication is one transaction: its journal entry, and the placements and commands of the same epoch.  Entries are
numbered without a gap, whoever leads.  A plan is named after the entry that begins it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.faults.recorded.facts import Facts, Message, place_of
from tests.faults.recorded.history import Strike
from tests.faults.recorded.verdict import Bounds, Broken, Violation

IN_ENTRY = ("prepare", "release", "stop", "start")
"""Commands that the entry of their epoch holds as they are."""
DONE = "done"
PLACING = ("waiting", "preparing", "releasing", "failed")
"""Steps of a hand-over that a placement says."""
FOR_EVER = float("inf")


def made_anew(rows: Sequence[Message]) -> list[tuple[float, float]]:
    """When a topic of one partition was taken away and made anew: between the last row before and the first after."""
    return [(row.at, after.at) for row, after in pairwise(rows) if after.offset <= row.offset]


def within(at: float, away: Sequence[tuple[float, float]]) -> bool:
    """Whether what was written then may have gone with its topic."""
    return any(gone <= at <= anew for gone, anew in away)


def missing_entries(facts: Facts) -> Iterator[Violation]:
    """Numbers that no entry of the journal has: before it begins, in between, or told to operators after its end."""
    before = 0
    last: Message | None = None
    for row in facts.journal:
        number = row.epoch[1]
        anew = last is not None and row.offset <= last.offset
        if number > before + 1 and not anew:
            text = f"{row.epoch} follows number {before}"
            yield Violation(broken=Broken.JOURNAL_GAP, at=row.at, text=text)
        before, last = max(before, number), row
    told = max((row.epoch[1] for row in facts.told), default=0)
    if told > before:
        yield Violation(broken=Broken.JOURNAL_GAP, text=f"it ends with number {before}, operators were told of {told}")


def unjournalled(facts: Facts, bounds: Bounds) -> Iterator[Violation]:
    """Placements and commands, as they were published first, that the entry of their epoch does not speak of."""
    entries = {row.epoch: row for row in facts.journal}
    away = made_anew(facts.journal)
    first: dict[str, Message] = {}
    for row in facts.commands:
        first.setdefault(row.body["id"], row)
    for row in [*facts.placements, *first.values()]:
        if within(row.at, away):
            continue
        entry = entries.get(row.epoch)
        what = f"{row.body.get('kind', 'placement')} {row.body.get('id', '')} of {row.epoch}"
        if entry is None or entry.at > row.at + bounds.clock_s:
            yield Violation(broken=Broken.UNJOURNALLED, at=row.at, text=f"{what}: no entry of that epoch before it")
        elif "id" in row.body and not _speaks_of(entry, row.body):
            yield Violation(broken=Broken.UNJOURNALLED, at=row.at, text=f"{what}: the entry does not speak of it")


def _speaks_of(entry: Message, command: Mapping[str, Any]) -> bool:
    if command["kind"] not in IN_ENTRY:
        return plan_of(command["handover"]) == (entry.body["round"] or {}).get("plan")
    return command in _commands_in(entry)


def _handovers(entry: Message) -> list[Mapping[str, Any]]:
    return list(entry.body["round"]["handovers"]) if entry.body["round"] else []


def plan_of(handover: str) -> str:
    """The plan that a hand-over is part of."""
    return handover.rpartition("-")[0]


def unpublished(facts: Facts) -> Iterator[Violation]:
    """What an entry speaks of for the first time, and was not published with it: its commands, and the placement that
    goes with a hand-over's step.
    """
    commands = {row.body["id"] for row in facts.commands}
    placed = {row.epoch for row in facts.placements}
    no_commands, no_placements = made_anew(facts.commands), made_anew(facts.placements)
    before: dict[str, str] = {}
    for row in facts.journal:
        phases = {handover["id"]: handover["phase"] for handover in _handovers(row)}
        steps = {name: phase for name, phase in phases.items() if phase in PLACING and before.get(name) != phase}
        missing = [] if row.epoch in placed or within(row.at, no_placements) else sorted(steps)
        own = [command["id"] for command in _commands_in(row) if tuple(command["epoch"]) == row.epoch]
        missing += [] if within(row.at, no_commands) else [name for name in own if name not in commands]
        if missing:
            text = f"{row.epoch}: journalled, and not published: {', '.join(missing)}"
            yield Violation(broken=Broken.UNPUBLISHED, at=row.at, text=text)
        before = phases


def _commands_in(entry: Message) -> Iterator[Mapping[str, Any]]:
    for handover in _handovers(entry):
        yield from (handover[kind] for kind in ("prepare", "release") if handover[kind] is not None)
    yield from (scaling["command"] for scaling in entry.body["scalings"] or ())


def plans_again(facts: Facts) -> Iterator[Violation]:
    """Plans that begin twice, go on after their end, begin before the last one's end, or under another's name."""
    known: dict[str, bool] = {}
    present = ""
    for row in facts.journal:
        if (plan := row.body["round"]) is None:
            continue
        name, ended = plan["plan"], plan["ended_at"] is not None
        if name != present:
            wrong = [
                *(["again"] if name in known else []),
                *([f"while {present} is under way"] if present and not known[present] else []),
            ]
        else:
            wrong = ["after its end"] if known[name] and not ended else []
        if wrong:
            text = f"{name} in {row.epoch}: {', '.join(wrong)}"
            yield Violation(broken=Broken.PLAN_AGAIN, at=row.at, text=text)
        known[name] = ended
        present = name


def not_taken(facts: Facts, strikes: Sequence[Strike], bounds: Bounds) -> Iterator[Violation]:
    """Hand-overs that the journal calls done, or an agent says are, and nothing else shows it.

    The two workers write it down; without a pause it was a rebalance that gave the key groups to their new owner.
    Nobody can say of those that went on while their topic was taken away, or while broker or workers died.
    """
    kinds: dict[str, set[str]] = defaultdict(set)
    for row in facts.handovers:
        kinds[row.body["handover"]].add(row.body["kind"])
    due: dict[str, tuple[float, set[str]]] = {}
    for row in facts.journal:
        for handover in _handovers(row):
            done = handover["phase"] == DONE and handover["id"] not in due
            if done and (handover["pause_s"] is not None or not _rebalanced(facts, handover, row.at)):
                due[handover["id"]] = row.at, {"released", "took"}
    for row in facts.acks:
        if row.body["phase"] in ("released", "took"):
            due.setdefault(row.body["handover"], (row.at, set()))[1].add(row.body["phase"])
    away = [
        *((gone, FOR_EVER) for gone, _ in made_anew(facts.handovers)),
        *((strike.at - bounds.clock_s, strike.steered_at) for strike in strikes if not strike.spares_job),
    ]
    for name, (at, records) in sorted(due.items()):
        missing = records - kinds[name]
        if missing and not within(at, away):
            text = f"hand-over {name} is done, and nobody wrote {' or '.join(sorted(missing))}"
            yield Violation(broken=Broken.NOT_TAKEN, at=at, text=text)


def _rebalanced(facts: Facts, handover: Mapping[str, Any], at: float) -> bool:
    """Whether the group's newest generation at that time gave the key groups to their new owner."""
    owners = next((row.owners for row in reversed(facts.generations) if row.at <= at), {})
    return all(owners.get(place_of(key_group)) == handover["target"] for key_group in handover["key_groups"])
