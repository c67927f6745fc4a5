"""Judges a recorded history; pure, and without a line of the product: a defect there cannot hide itself here."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.faults.recorded import answering, commanding, counting, journalling, ownership
from tests.faults.recorded.facts import Facts, Input, Written, read_facts
from tests.faults.recorded.history import History, Strike
from tests.faults.recorded.verdict import ALWAYS, IN_ROUNDS, Bounds, Broken, Cost, Verdict, Violation


def check(history: History, bounds: Bounds) -> Verdict:
    """Everything that is broken in this history, and what each strike cost."""
    facts = read_facts(history)
    extracted, counted = counting.copies(facts.extracted), counting.copies(facts.counted)
    deaths = counting.deaths_of(facts, extracted, history.strikes, bounds)
    repeats = counting.repeats(extracted, counted, deaths)
    missing = counting.lost(facts.inputs, extracted, counted)
    waits = counting.waits(facts.inputs, counted)
    until = max((commit.at for commit in facts.commits), default=0.0)  # by the broker's clock: an agent's may be wrong
    spans = ownership.ownership(facts)
    gaps = list(ownership.gaps(spans, history.strikes, bounds, until))
    costs = _costs(history.strikes, facts, missing, repeats, waits, gaps, deaths)
    violations = [
        *(Violation(broken=Broken.NO_RECORD, text=text) for text in [*facts.holes, *answering.unheard(facts)]),
        *counting.miscounted(facts, extracted, counted, repeats, missing),
        *counting.wrong_commits(facts, extracted, counted, bounds),
        *counting.stale_states(facts),
        *counting.wrong_sums(facts, extracted, history.strikes, deaths),
        *counting.wrong_answers(facts, deaths),
        *ownership.two_owners(facts, spans, bounds),
        *ownership.unowned(gaps),
        *counting.stood_still(counting.silences(facts, extracted), spans, history.strikes, bounds),
        *counting.went_on(facts, history.strikes, bounds),
        *commanding.disordered(facts),
        *commanding.obeyed_late(facts),
        *commanding.obeyed_stale(facts),
        *commanding.reused_ids(facts),
        *commanding.taken_twice(facts, bounds),
        *commanding.unanswered(facts, until),
        *commanding.forged(facts),
        *commanding.astray(facts, history.strikes, bounds),
        *commanding.unplaced(facts),
        *journalling.missing_entries(facts),
        *journalling.unjournalled(facts, bounds),
        *journalling.unpublished(facts),
        *journalling.plans_again(facts),
        *journalling.not_taken(facts, history.strikes, bounds),
        *answering.unnoted(facts),
        *answering.obeyed_twice(facts),
        *answering.denied_and_done(facts),
        *answering.unsigned(facts),
    ]
    return Verdict(violations=tuple(violations), costs=tuple(costs), seen=_seen(facts))


def _seen(facts: Facts) -> Counter[str]:
    return Counter({name: len(getattr(facts, name)) for name in (*ALWAYS, *IN_ROUNDS)})


def _costs(
    strikes: Sequence[Strike],
    facts: Facts,
    missing: Sequence[Input],
    repeats: Sequence[counting.Repeat],
    waits: Sequence[counting.Wait],
    gaps: Sequence[ownership.Gap],
    deaths: counting.Deaths,
) -> list[Cost]:
    """A strike answers for all from the end of the one before until it was steered again, the last one for the rest."""
    allowed = _allowed((*facts.extracted, *facts.counted), deaths)
    costs = []
    for strike, since, until in _turns(strikes):
        held_up = [wait.end for wait in waits if since < wait.start <= until and wait.end > strike.at]
        unowned = [gap.end - gap.start for gap in gaps if since < gap.start <= until]
        costs.append(
            Cost(
                strike=strike,
                lost=sum(1 for row in missing if since < row.at <= until),
                repeated=sum(1 for repeat in repeats if since < repeat.output.at <= until),
                allowed=allowed[strike],
                unowned_s=max(unowned, default=0.0),
                held_up_s=max(held_up, default=strike.at) - strike.at,
                unsteered_s=strike.steered_at - strike.at,
            )
        )
    return costs


def _allowed(rows: Sequence[Written], deaths: counting.Deaths) -> Counter[Strike]:
    """How many outputs each death may have had repeated: what the dead did since their last commit."""
    found = (deaths.after(row) for row in rows)
    return Counter(death for death in found if death is not None)


def _turns(strikes: Sequence[Strike]) -> Iterator[tuple[Strike, float, float]]:
    since = float("-inf")
    for number, strike in enumerate(strikes):
        until = strike.steered_at if number + 1 < len(strikes) else float("inf")
        yield strike, since, until
        since = until
