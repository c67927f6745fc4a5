"""Who owned which key group when, by what the broker and the two sides of each hand-over wrote down.

A span begins with a generation of the group, or with `took` of a hand-over inside one; it ends with the next
generation, or with `released`.  Whatever a worker writes has to lie in a span of its own, or follow one that was
released to it: a broker that dies may lose the word `took`, and until the next generation nobody else owns it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.faults.recorded.facts import CHANGELOG, DELAYS, SOURCE, Facts, Message, Written, place_of
from tests.faults.recorded.groups import Generation, Place
from tests.faults.recorded.history import Strike
from tests.faults.recorded.verdict import Bounds, Broken, Violation

FOR_EVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`worker` owns from `start` to `end`; it may write from `opened` on: it takes over before it says `took`.

    `low`, `high` = offsets of the changelog partition that bound what it writes, where a hand-over names them.
    `heir` = to whom it was released.
    """

    worker: str
    opened: float
    start: float
    end: float = FOR_EVER
    low: int = 0
    high: float = FOR_EVER
    heir: str = ""


def ownership(facts: Facts) -> dict[Place, list[Span]]:
    """The spans of each place, oldest first."""
    spans: dict[Place, list[Span]] = defaultdict(list)
    number = 0
    events: list[Generation | Message] = [*facts.generations, *facts.handovers]
    for event in sorted(events, key=lambda event: event.at):
        if isinstance(event, Generation):
            number = event.number
            _rebalanced(spans, event)
        elif event.body["generation"] == number:
            _handed(spans, event)
    return dict(spans)


def _rebalanced(spans: dict[Place, list[Span]], generation: Generation) -> None:
    for place in spans.keys() | generation.owners.keys():
        _close(spans[place], generation.at)
        if (worker := generation.owners.get(place)) is not None:
            spans[place].append(Span(worker=worker, opened=generation.at, start=generation.at))


def _handed(spans: dict[Place, list[Span]], record: Message) -> None:
    ends = {partition: offset for topic, partition, offset in record.body["ends"] or () if topic == CHANGELOG}
    for place in map(place_of, record.body["key_groups"]):
        row = spans[place]
        if record.body["kind"] == "released":
            _close(row, record.at, ends.get(place[1], FOR_EVER) if place[0] == DELAYS else FOR_EVER)
            row[-1:] = [replace(last, heir=record.body["target"]) for last in row[-1:]]
        else:
            before = row[-1].end if row else record.at
            low = int(row[-1].high) if row and row[-1].high != FOR_EVER else 0
            _close(row, record.at)
            row.append(Span(worker=record.body["target"], opened=min(before, record.at), start=record.at, low=low))


def _close(row: list[Span], at: float, high: float = FOR_EVER) -> None:
    if row and row[-1].end == FOR_EVER:
        row[-1] = replace(row[-1], end=at, high=high)


# ---------------------------------------------------------------------- two owners
def two_owners(facts: Facts, spans: Mapping[Place, Sequence[Span]], bounds: Bounds) -> Iterator[Violation]:
    """Records of workers in what was not theirs: out of their spans, or behind the next owner's first record."""
    home = {row.sequence: row.partition for row in facts.extracted}
    logs: dict[tuple[Place, str], list[Written]] = defaultdict(list)
    for row in facts.extracted:  # extract keeps the key, so input and output have the same partition
        logs[(SOURCE, row.partition), DELAYS].append(row)
    for row in sorted(facts.counted, key=lambda row: row.at):  # a key group may write to several partitions there
        if row.sequence in home:
            logs[(DELAYS, home[row.sequence]), "totals"].append(row)
    for row in facts.changed:
        logs[(DELAYS, row.partition), CHANGELOG].append(row)
    for (place, log), rows in logs.items():
        yield from _strangers(place, log, rows, spans.get(place, ()), bounds.clock_s)


def _strangers(
    place: Place, log: str, rows: Sequence[Written], spans: Sequence[Span], clock_s: float
) -> Iterator[Violation]:
    at_span = 0
    newest: dict[str, str] = {}
    former: set[str] = set()
    for row in rows:
        spans_left = range(at_span, len(spans))
        found = next((number for number in spans_left if _wrote(spans, number, row, log, clock_s)), None)
        former |= {newest.get(row.worker, row.process)} - {row.process}
        newest[row.worker] = row.process
        text = f"{row.process} wrote {log} {row.partition}:{row.offset} of {place[0]}/{place[1]}"
        if found is None:
            owner = next((span.worker for span in reversed(spans) if span.start <= row.at), "nobody")
            yield Violation(broken=Broken.TWO_OWNERS, at=row.at, text=f"{text}, {owner} owned it")
        elif row.process in former:
            yield Violation(broken=Broken.TWO_OWNERS, at=row.at, text=f"{text}, after a later process of that worker")
        else:
            at_span = found


def _wrote(spans: Sequence[Span], number: int, row: Written, log: str, clock_s: float) -> bool:
    span = spans[number]
    if span.heir == row.worker:
        next_at = spans[number + 1].start if number + 1 < len(spans) else FOR_EVER
        if span.end - clock_s <= row.at <= next_at + clock_s:
            return log != CHANGELOG or row.offset >= span.high
    inside = span.worker == row.worker and span.opened - clock_s <= row.at <= span.end + clock_s
    return inside and (log != CHANGELOG or span.low <= row.offset < span.high)


# ---------------------------------------------------------------------- no owner
@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """From `start` to `end` the place had no living owner; at most `allowed` seconds of it."""

    place: Place
    start: float
    end: float
    allowed: float


def gaps(
    spans: Mapping[Place, Sequence[Span]], strikes: Sequence[Strike], bounds: Bounds, until: float
) -> Iterator[Gap]:
    """Between two spans, and from the death of an owner to the next span; until the end of the history."""
    for place, row in spans.items():
        for span, following in zip(row, [*row[1:], None], strict=True):
            death = next((s for s in strikes if span.worker in s.dead and span.start <= s.at < span.end), None)
            start = death.at if death else span.end
            end = following.start if following else until
            if start < end:
                allowed = excused_s(strikes, start, end, bounds) + (0.0 if death else bounds.handover_s)
                rebalanced = following is not None and following.opened == following.start
                if rebalanced and any(s.lacking and s.at < end and start < s.over_at for s in strikes):
                    allowed += bounds.leaves_s  # the rebalance has waited for who lacks a broker
                yield Gap(place=place, start=start, end=end, allowed=allowed)


def excused_s(
    strikes: Iterable[Strike], start: float, end: float, bounds: Bounds, spans: Collection[Span] = ()
) -> float:
    """What faults of workers and of the broker explain of a wait in these spans: their length, a session and a rejoin.

    Of a worker's death without its length: the others take over before it is back, if there are others.  Of a worker's
    lack of a broker only its length, and only to itself: it stays the owner.  If the group rebalances meanwhile, the
    others wait until it leaves.
    """
    excused = 0.0
    for strike in strikes:
        if strike.spares_job or strike.at >= end or start >= strike.steered_at:
            continue
        lasted_s = strike.over_at - strike.at
        if strike.lacking:
            waits_s = bounds.leaves_s if any(start < span.start <= end for span in spans) else 0.0
            excused += lasted_s if any(span.worker in strike.lacking for span in spans) else waits_s
        else:
            excused += 0.0 if strike.dead and not strike.none_left else lasted_s
            excused += bounds.session_s + bounds.rejoin_s
    return excused


def between(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """The spans of a place at any time between."""
    return [span for span in spans if span.start < end and start < span.end]


def unowned(found: Iterable[Gap]) -> Iterator[Violation]:
    """The gaps that lasted too long."""
    for gap in found:
        if gap.end - gap.start > gap.allowed:
            text = (
                f"{gap.place[0]}/{gap.place[1]}: no owner for {gap.end - gap.start:.1f} s of {gap.allowed:.1f} allowed"
            )
            yield Violation(broken=Broken.UNOWNED, at=gap.start, text=text)
