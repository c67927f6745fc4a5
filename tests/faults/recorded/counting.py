"""Was every input counted once, and in time?  What a death repeated is dated by the death that explains it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.faults.recorded.facts import DELAYS, SOURCE, Facts, Input, Written
from tests.faults.recorded.groups import Commit, Generation, Place
from tests.faults.recorded.history import Strike
from tests.faults.recorded.ownership import Span, between, excused_s
from tests.faults.recorded.verdict import Bounds, Broken, Violation

HELD_UP_S = 1.0
"""An input that takes longer through the job was held up."""

Copies = Mapping[int, Sequence[Written]]
"""All outputs of an operator about one input, by its sequence number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """An output beyond those that there should be, and the death that explains it."""

    output: Written
    death: Strike | None


def copies(rows: Iterable[Written]) -> Copies:
    """The outputs by input, oldest first."""
    found: dict[int, list[Written]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.at):
        found[row.sequence].append(row)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """Which outputs a death, or a rebalance, may have left uncommitted.

    `left` = the workers that left the group because they lacked a broker.
    `given_up` = outputs of living workers about what was in work for too long at a rebalance, and when that ended.
    `committed_at` = when what an output is about was committed first; an output of which that is not known is missing.
    `last_at` = when each process wrote its last record.
    """

    strikes: Sequence[Strike]
    bounds: Bounds
    left: Mapping[Strike, frozenset[str]] = field(default_factory=dict)
    given_up: Mapping[Written, float] = field(default_factory=dict)
    committed_at: Mapping[Written, float] = field(default_factory=dict)
    last_at: Mapping[str, float] = field(default_factory=dict)

    def after(self, row: Written) -> Strike | None:
        """The death of its worker that may have come before the commit of what this output says is done."""
        committed_at = self.committed_at.get(row, float("inf"))
        for strike in self.strikes:
            if row.worker in self.gone(strike) and committed_at > strike.at and self._is_uncommitted(row, strike):
                return strike
        return None

    def gone(self, strike: Strike) -> frozenset[str]:
        """The workers that were out of the group by a strike."""
        return self.left.get(strike, frozenset()).union(strike.dead)

    def _is_uncommitted(self, row: Written, strike: Strike) -> bool:
        """Whether it was written too late to be committed: by what was struck, until its session ended at most.

        Later only by a process that was started meanwhile and has ended, too.
        """
        uncommitted_s = self.bounds.commit_s + self.bounds.commit_takes_s
        if row.at <= strike.at + self.bounds.session_s:
            return strike.at - uncommitted_s <= row.at <= strike.over_at
        last_at = self.last_at.get(row.process, row.at)
        return row.at <= strike.over_at and last_at <= strike.over_at and last_at - uncommitted_s <= row.at


def deaths_of(facts: Facts, extracted: Copies, strikes: Sequence[Strike], bounds: Bounds) -> Deaths:
    """What the deaths of a history may have left uncommitted, by its commits.

    Which of several copies an output of `sums` is about is not recorded: the last one counts, committed last.
    """
    commits, committed_at = _first_commits(facts.commits), dict[Written, float]()
    inputs = {row.sequence: ((SOURCE, row.partition), row.offset) for row in facts.inputs}
    given = {sequence: ((DELAYS, rows[-1].partition), rows[-1].offset) for sequence, rows in extracted.items()}
    for rows, of in ((facts.extracted, inputs), (facts.counted, given)):
        for row in rows:
            if row.sequence in of:
                place, offset = of[row.sequence]
                offsets, times = commits.get(place, ([], []))
                number = bisect_right(offsets, offset)
                committed_at[row] = times[number] if number < len(times) else float("inf")
    last_at: dict[str, float] = {}
    for row in (*facts.extracted, *facts.counted, *facts.changed):
        last_at[row.process] = max(row.at, last_at.get(row.process, 0.0))
    left = {strike: _left(strike, facts.generations) for strike in strikes}
    deaths = Deaths(strikes=strikes, bounds=bounds, left=left, committed_at=committed_at, last_at=last_at)
    return replace(deaths, given_up=_given_up(deaths, [each.at for each in facts.generations]))


def _given_up(deaths: Deaths, generations: Sequence[float]) -> Mapping[Written, float]:
    """What had been written for longer than a rebalance waits when the next generation began, and was not committed.

    A rebalance ends or gives up whatever is in work, so only the first generation after an output counts.  What a dead
    worker left behind, its death has to explain.
    """
    found, begun = {}, sorted(generations)
    for row, committed_at in deaths.committed_at.items():
        after = begun[bisect_right(begun, row.at) :][:1]
        if after and committed_at > after[0] >= row.at + deaths.bounds.in_work_s:
            dying = (strike for strike in deaths.strikes if strike.at <= after[0] and row.at <= strike.over_at)
            if all(row.worker not in deaths.gone(strike) for strike in dying):
                found[row] = after[0]
    return found


def _left(strike: Strike, generations: Iterable[Generation]) -> frozenset[str]:
    """Those that lacked a broker and had nothing in a generation that began meanwhile."""
    begun = [each for each in generations if strike.at < each.at <= strike.over_at]
    return frozenset(worker for worker in strike.lacking if any(worker not in each.owners.values() for each in begun))


def _first_commits(commits: Iterable[Commit]) -> Mapping[Place, tuple[list[int], list[float]]]:
    """For each place the committed offsets that are larger than all before, and when each was committed."""
    found: dict[Place, tuple[list[int], list[float]]] = {}
    for commit in sorted(commits, key=lambda commit: commit.at):
        offsets, times = found.setdefault(commit.place, ([], []))
        if not offsets or commit.offset > offsets[-1]:
            offsets.append(commit.offset)
            times.append(commit.at)
    return found


def repeats(extracted: Copies, counted: Copies, deaths: Deaths) -> list[Repeat]:
    """Outputs of `extract` beyond the first of an input, and outputs of `sums` beyond one for each of those.

    Each death explains one repeat of what the dead had done and not committed; the other copies it does not.  What was
    given up is due once more.
    """
    found: list[Repeat] = []
    for rows in extracted.values():
        found += _beyond(1, rows, deaths)
    for sequence, rows in counted.items():
        found += _beyond(max(1, len(extracted.get(sequence, ()))), rows, deaths)
    return found


def _beyond(due: int, rows: Sequence[Written], deaths: Deaths) -> Iterator[Repeat]:
    due += sum(1 for row in rows if rows[-1].at > deaths.given_up.get(row, float("inf")))
    if len(rows) > due:
        explaining = [death for row in rows if (death := deaths.after(row)) is not None]
        for number, row in enumerate(rows[due:]):
            yield Repeat(output=row, death=explaining[number] if number < len(explaining) else None)


def lost(inputs: Iterable[Input], extracted: Copies, counted: Copies) -> list[Input]:
    """Inputs that `extract` or `sums` has not done, or `sums` less often than `extract` gave them on."""
    return [
        row
        for row in inputs
        if not extracted.get(row.sequence) or len(counted.get(row.sequence, ())) < len(extracted[row.sequence])
    ]


def miscounted(
    facts: Facts, extracted: Copies, counted: Copies, found: Sequence[Repeat], missing: Sequence[Input]
) -> Iterator[Violation]:
    """Lost, repeated without a death that explains it, and never sent."""
    for row in missing:
        yield Violation(broken=Broken.LOST, at=row.at, text=f"flight {row.sequence} of key group {row.partition}")
    for repeat in found:
        if repeat.death is None:
            text = f"flight {repeat.output.sequence} once more by {repeat.output.process}"
            yield Violation(broken=Broken.REPEATED, at=repeat.output.at, text=text)
    sent = {row.sequence for row in facts.inputs}
    for sequence in sorted((extracted.keys() | counted.keys()) - sent):
        yield Violation(broken=Broken.FOREIGN, text=f"flight {sequence} was never sent")


# ---------------------------------------------------------------------- commits
def wrong_commits(facts: Facts, extracted: Copies, counted: Copies, bounds: Bounds) -> Iterator[Violation]:
    """Committed offsets that go back, or past an input that is not done yet.

    The broker keeps no name with a commit: of two that both commit, one is behind the other, or ahead of its own work.
    """
    source: dict[int, dict[int, float]] = defaultdict(dict)
    for sent in facts.inputs:
        source[sent.partition][sent.offset] = _done_at(extracted.get(sent.sequence, ()))
    delays: dict[int, dict[int, float]] = defaultdict(dict)
    nth: dict[int, int] = defaultdict(int)
    for row in facts.extracted:
        outputs = counted.get(row.sequence, ())[nth[row.sequence] :]
        delays[row.partition][row.offset] = _done_at(outputs)
        nth[row.sequence] += 1
    done_at = {SOURCE: source, DELAYS: delays}
    last: dict[tuple[str, int], int] = defaultdict(int)
    for commit in facts.commits:
        before, last[commit.place] = last[commit.place], commit.offset
        if commit.place[0] not in done_at:
            continue
        if commit.offset < before:
            text = f"{_name(commit)} after {before}"
            yield Violation(broken=Broken.COMMIT_BACK, at=commit.at, text=text)
        done = done_at[commit.place[0]][commit.place[1]]
        ahead = [at for at in range(before, commit.offset) if done.get(at, float("inf")) > commit.at + bounds.clock_s]
        if ahead:
            text = f"{_name(commit)}, and {ahead[0]} was not done"
            yield Violation(broken=Broken.COMMIT_AHEAD, at=commit.at, text=text)


def _done_at(outputs: Sequence[Written]) -> float:
    return outputs[0].at if outputs else float("inf")


def _name(commit: Commit) -> str:
    return f"{commit.place[0]}/{commit.place[1]}: offset {commit.offset} committed"


# ---------------------------------------------------------------------- in time
@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """An input that was held up: from `start`, when it was sent, to `end`, when it was counted first."""

    start: float
    end: float


def waits(inputs: Iterable[Input], counted: Copies) -> list[Wait]:
    """The inputs that were held up."""
    ends = ((row, counted[row.sequence][0].at) for row in inputs if counted.get(row.sequence))
    return [Wait(start=row.at, end=end) for row, end in ends if end - row.at > HELD_UP_S]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """From `start` to `end` a key group had an input to do and did none."""

    place: Place
    start: float
    end: float


def silences(facts: Facts, extracted: Copies) -> Iterator[Silence]:
    """Between an output of a key group and the next, or from when that one's input came, if that was later.

    A worker that is slower than its inputs come is not silent: it works off what waits.
    """
    sent_at = {row.sequence: row.at for row in facts.inputs}
    given_at = {sequence: rows[0].at for sequence, rows in extracted.items()}
    home = {row.sequence: row.partition for row in facts.inputs}
    for topic, outputs, came_at in ((SOURCE, facts.extracted, sent_at), (DELAYS, facts.counted, given_at)):
        last: dict[int, float] = {}
        for row in sorted(outputs, key=lambda row: row.at):
            if row.sequence in home and row.sequence in came_at:
                partition = home[row.sequence]
                start = max(last.get(partition, 0.0), came_at[row.sequence])
                last[partition] = row.at
                yield Silence(place=(topic, partition), start=start, end=row.at)


def stood_still(
    found: Iterable[Silence], spans: Mapping[Place, Sequence[Span]], strikes: Sequence[Strike], bounds: Bounds
) -> Iterator[Violation]:
    """Silences that last longer than the faults of broker and workers explain, from the first fault on.

    What was sent before has waited for workers that had not started yet.
    """
    for silence in found:
        lasted_s = silence.end - silence.start
        if strikes and silence.start >= strikes[0].at and lasted_s > bounds.goes_on_s:
            meanwhile = between(spans.get(silence.place, ()), silence.start, silence.end)
            allowed = bounds.goes_on_s + excused_s(strikes, silence.start, silence.end, bounds, meanwhile)
            if lasted_s > allowed:
                text = f"{silence.place[0]}/{silence.place[1]}: nothing for {lasted_s:.1f} s of {allowed:.1f} allowed"
                yield Violation(broken=Broken.STOOD_STILL, at=silence.start, text=text)


def went_on(facts: Facts, strikes: Sequence[Strike], bounds: Bounds) -> Iterator[Violation]:
    """What workers did while they lacked a broker, and none of their commits got through: all of it may be repeated."""
    for strike in strikes:
        rows = [
            row
            for row in (*facts.extracted, *facts.counted)
            if row.worker in strike.lacking and strike.at + bounds.holds_s < row.at <= strike.over_at
        ]
        if rows:
            last = max(rows, key=lambda row: row.at)
            text = f"{len(rows)} outputs of {last.process}, up to {last.at - strike.at:.1f} s after it lost a broker"
            yield Violation(broken=Broken.WENT_ON, at=last.at, text=text)


# ---------------------------------------------------------------------- sums
def wrong_sums(facts: Facts, extracted: Copies, strikes: Sequence[Strike], deaths: Deaths) -> Iterator[Violation]:
    """The table as its changelog left it, against the sums of the inputs: too seldom never, too often for deaths."""
    right: dict[str, tuple[int, int]] = {}
    for sent in facts.inputs:
        flights, minutes = right.get(sent.table_key, (0, 0))
        right[sent.table_key] = flights + 1, minutes + sent.minutes
    found = {row.table_key: (row.flights, row.minutes) for row in facts.changed}
    allowed = _counted_again(facts, extracted, strikes, deaths)
    for key in sorted(found.keys() | right.keys()):
        over = found[key][0] - right[key][0] if key in found and key in right else 0
        if found.get(key) != right.get(key) and not 0 < over <= allowed[key]:
            text = f"{key}: found {found.get(key)}, expected {right.get(key)}, {allowed[key]} repeats allowed"
            yield Violation(broken=Broken.WRONG_SUM, text=text)


def _counted_again(facts: Facts, extracted: Copies, strikes: Sequence[Strike], deaths: Deaths) -> Mapping[str, int]:
    """How often each key of the table may have been counted again.

    For what `extract` gave on once more, or `sums` did once more because it was given up; for what a worker wrote and
    died before its commit; and for what it had in its own store only, which is there when it is started again: then its
    next record counts on from more than the last.
    """
    again = Counter(row.table_key for row in facts.changed if deaths.after(row))
    given_up = Counter(row.sequence for row in facts.counted if row in deaths.given_up)
    for sent in facts.inputs:
        again[sent.table_key] += max(0, len(extracted.get(sent.sequence, ())) - 1) + given_up[sent.sequence]
    last: dict[str, tuple[float, int]] = {}
    for row in facts.changed:
        at, flights = last.get(row.table_key, (float("-inf"), 0))
        if any(row.worker in deaths.gone(strike) and at < strike.over_at and strike.at < row.at for strike in strikes):
            again[row.table_key] += max(0, row.flights - flights - 1)
        last[row.table_key] = row.at, row.flights
    return again


def wrong_answers(facts: Facts, deaths: Deaths) -> Iterator[Violation]:
    """Outputs of `sums` that say what the table never was; a death may have taken the table's record with it."""
    key_of = {row.sequence: row.table_key for row in facts.inputs}
    known = {(row.table_key, row.flights, row.minutes) for row in facts.changed}
    for row in facts.counted:
        said = (key_of.get(row.sequence), row.flights, row.minutes)
        if said[0] is not None and said not in known and deaths.after(row) is None:
            text = f"{row.process} said of flight {row.sequence}: {said}, which its table never had"
            yield Violation(broken=Broken.WRONG_ANSWER, at=row.at, text=text)


def stale_states(facts: Facts) -> Iterator[Violation]:
    """Counts that step back or stay in the order of a changelog's partition: older state was written over newer.

    No death explains that: what a dead worker wrote is in the changelog, and whoever goes on restores it from there.
    """
    last: dict[tuple[int, str], int] = defaultdict(int)
    for row in facts.changed:
        place = row.partition, row.table_key
        if row.flights <= last[place]:
            text = f"{row.process} wrote {row.flights} flights of {row.table_key} after {last[place]}"
            text += f", at {row.partition}:{row.offset} of the changelog"
            yield Violation(broken=Broken.STALE_STATE, at=row.at, text=text)
        last[place] = row.flights
