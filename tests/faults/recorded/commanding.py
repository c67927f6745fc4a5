"""Was every plan published once, in order, answered, carried out once, and does the group follow the placement?"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.faults.recorded.answering import DENIED, OPEN
from tests.faults.recorded.facts import Facts, Message, owners_of
from tests.faults.recorded.groups import Place
from tests.faults.recorded.history import Strike
from tests.faults.recorded.journalling import made_anew, within
from tests.faults.recorded.verdict import Bounds, Broken, Violation


def disordered(facts: Facts) -> Iterator[Violation]:
    """Epochs of placements (by app) and of journal entries that do not rise, of commands that fall.

    A successor repeats the commands in flight as they are: only their first publication counts.
    """
    last: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in facts.placements:
        yield from _not_above(f"placement of {row.body['app']}", last, row.epoch, row.at)
    for row in facts.journal:
        yield from _not_above("journal", last, row.epoch, row.at)
    for row in _first_published(facts).values():
        if row.epoch != last["commands"]:  # one publication may hold several
            yield from _not_above("commands", last, row.epoch, row.at)


def obeyed_late(facts: Facts) -> Iterator[Violation]:
    """Commands that a host accepted after one of a newer epoch."""
    last: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    known: set[str] = set()
    for row in facts.acks:
        host, command = row.body["host"], row.body["command_id"]
        if row.body["phase"] == OPEN and command not in known:
            known.add(command)
            if row.epoch < last[host]:
                text = f"{host} accepted {command} of {row.epoch} after one of {last[host]}"
                yield Violation(broken=Broken.EPOCH_BACK, at=row.at, text=text)
            last[host] = max(last[host], row.epoch)


def obeyed_stale(facts: Facts) -> Iterator[Violation]:
    """Commands that a host accepted when their deadline had passed by its own clock."""
    deadlines = {row.body["id"]: row.body["deadline"] for row in facts.commands}
    for row in facts.acks:
        host, command, at = row.body["host"], row.body["command_id"], row.body["at"]
        if row.body["phase"] == OPEN and at >= deadlines.get(command, at + 1.0):
            text = f"{host} accepted {command} {at - deadlines[command]:.1f} s after its deadline"
            yield Violation(broken=Broken.STALE, at=row.at, text=text)


def _first_published(facts: Facts) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for row in facts.commands:
        found.setdefault(row.body["id"], row)
    return found


def _not_above(what: str, last: dict[str, tuple[int, int]], epoch: tuple[int, int], at: float) -> Iterator[Violation]:
    if epoch <= last[what]:
        yield Violation(broken=Broken.EPOCH_BACK, at=at, text=f"{what}: {epoch} after {last[what]}")
    last[what] = epoch


def reused_ids(facts: Facts) -> Iterator[Violation]:
    """Commands whose id was that of another: their agents take them for done."""
    first = _first_published(facts)
    for row in facts.commands:
        if row.body != first[row.body["id"]].body:
            yield Violation(broken=Broken.REUSED_ID, at=row.at, text=_name(row))


def taken_twice(facts: Facts, bounds: Bounds) -> Iterator[Violation]:
    """Hand-overs that were taken more than once, by workers' records or by acks, or commanded again after that.

    A generation in between may have taken away again what was taken.
    """
    taken = Counter(row.body["handover"] for row in facts.handovers if row.body["kind"] == "took")
    answered = {(row.body["command_id"], row.body["handover"]) for row in facts.acks if row.body["phase"] == "took"}
    by_acks = Counter(handover for _, handover in answered)
    for handover, count in sorted((taken | by_acks).items()):
        if count > 1:
            yield Violation(broken=Broken.TAKEN_TWICE, text=f"hand-over {handover}: {count} times")
    taken_at = {row.body["handover"]: row.at for row in facts.handovers if row.body["kind"] == "took"}
    for row in _first_published(facts).values():
        done_at = taken_at.get(row.body["handover"], row.at)
        again = row.body["kind"] in ("prepare", "release") and done_at + bounds.clock_s < row.at
        if again and not any(done_at < generation.at <= row.at for generation in facts.generations):
            text = f"{_name(row)}: its hand-over {row.body['handover']} was taken {row.at - done_at:.1f} s before"
            yield Violation(broken=Broken.TAKEN_TWICE, at=row.at, text=text)


def unanswered(facts: Facts, until: float) -> Iterator[Violation]:
    """Commands whose deadline has passed, and nobody has said what became of them.

    Whose topic or answers were taken away and made anew meanwhile, nobody can say.
    """
    answered = {row.body["command_id"] for row in facts.acks if row.body["phase"] != OPEN}
    away = [*made_anew(facts.commands), *made_anew(facts.acks)]
    for row in _first_published(facts).values():
        deadline = row.body["deadline"]
        excused = any(row.at <= anew and gone <= deadline for gone, anew in away)
        if row.body["id"] not in answered and deadline < until and not excused:
            yield Violation(broken=Broken.UNANSWERED, at=row.at, text=_name(row))


def forged(facts: Facts) -> Iterator[Violation]:
    """What was done without a command of the controller, unless it may have gone with the topic.

    A command counts for its host and worker alone, a hand-over for its two workers and its key groups.
    """
    away = made_anew(facts.commands)
    commands = {row.body["id"]: (row.body["host"], row.body["worker"]) for row in facts.commands}
    handovers = {row.body["handover"]: _moved(row) for row in facts.commands}
    for row in facts.acks:
        host, worker, command = row.body["host"], row.body["worker"], row.body["command_id"]
        own = commands.get(command) == (host, worker) or within(row.at, away)
        if not own and row.body["phase"] not in DENIED:
            whose = "planted" if command in facts.planted else "unknown" if command not in commands else "other"
            text = f"{host} says {row.body['phase']} to the {whose} command {command} about {worker}"
            yield Violation(broken=Broken.FORGED, at=row.at, text=text)
    for row in facts.handovers:
        if handovers.get(row.body["handover"]) != _moved(row) and not within(row.at, away):
            text = f"{row.body['kind']} of hand-over {row.body['handover']}, which was never commanded so"
            yield Violation(broken=Broken.FORGED, at=row.at, text=text)


def _moved(row: Message) -> tuple[str, str, list[str]]:
    return row.body["source"], row.body["target"], sorted(row.body["key_groups"] or ())


def astray(facts: Facts, strikes: Sequence[Strike], bounds: Bounds) -> Iterator[Violation]:
    """Key groups that a generation gave to others than the placement, though its owner was a member.

    A generation may follow any placement that was the newest at a time from `known_s` before it on.  What was published
    while broker or workers were away, or shortly before, can be known from their return on.
    """
    heard_at = [_heard_at(row, strikes, bounds) for row in facts.placements]
    for generation in facts.generations:
        members = set(generation.owners.values())
        for place, wanted in _in_force(facts, heard_at, generation.at, bounds).items():
            owner = generation.owners.get(place)
            if owner not in wanted and wanted & members == wanted and members:
                text = f"generation {generation.number}: {place[0]}/{place[1]} to {owner}, placed with {sorted(wanted)}"
                yield Violation(broken=Broken.ASTRAY, at=generation.at, text=text)


def _heard_at(placement: Message, strikes: Sequence[Strike], bounds: Bounds) -> float:
    away = (s for s in strikes if not s.spares_job and s.at - bounds.known_s <= placement.at <= s.over_at)
    return max([placement.at, *(strike.over_at for strike in away)])


def _in_force(facts: Facts, heard_at: Sequence[float], at: float, bounds: Bounds) -> dict[Place, set[str]]:
    """The owners that the newest placement that all must know at that time names, and all newer ones."""
    rows = [row for row in facts.placements if row.at <= at]
    known = [number for number in range(len(rows)) if heard_at[number] <= at - bounds.known_s]
    wanted: dict[Place, set[str]] = defaultdict(set)
    for row in rows[known[-1] :] if known else []:
        for place, owner in owners_of(row):
            wanted[place].add(owner)
    return dict(wanted)


def unplaced(facts: Facts) -> Iterator[Violation]:
    """Placements without an owner for a key group that had one before."""
    placed: dict[str, set[Place]] = defaultdict(set)
    for row in facts.placements:
        app, places = row.body["app"], {place for place, _ in owners_of(row)}
        if lacking := sorted(placed[app] - places):
            text = f"{row.epoch} gives nobody {lacking[0][0]}/{lacking[0][1]}, of {len(lacking)} key groups"
            yield Violation(broken=Broken.UNPLACED, at=row.at, text=text)
        placed[app] |= places


def _name(command: Message) -> str:
    body = command.body
    return f"{body['kind']} {body['id']} to {body['host']} about {body['worker']}, epoch {body['epoch']}"
